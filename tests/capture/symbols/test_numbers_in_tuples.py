"""Numbers in tuples that vary from call to call are symbols: tuples of the program's state, and those that come with a call."""

from __future__ import annotations

import collections
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.linspace(-1, 2, 3)
Carry = collections.namedtuple("Carry", "count hidden rate")


class Nested(typing.NamedTuple):
    count: int
    hidden: torch.Tensor
    inner: tuple[Any, ...]


class Owner:
    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)


def plain(owner: Any, x: torch.Tensor) -> Any:
    count, hidden, rate = owner.state
    hidden = hidden * 0.9 + x * rate
    owner.state = (count + 1, hidden, rate * 0.99)
    return hidden * count


def named(owner: Any, x: torch.Tensor) -> Any:
    state = owner.state
    owner.state = Carry(state.count + 1, state.hidden * 0.9 + x, state.rate * 0.99)
    return state.hidden * state.count


def replaced(owner: Any, x: torch.Tensor) -> Any:
    state = owner.state
    owner.state = state._replace(count=state.count + 1, hidden=state.hidden + x * state.rate)
    return state


def nested(owner: Any, x: torch.Tensor) -> Any:
    state = owner.state
    inner = (state.inner[0] + 1, (state.inner[1][0] * 0.5,))
    owner.state = Nested(state.count + 2, state.hidden + x, inner)
    return state.hidden * state.count + inner[0] * inner[1][0]


def in_containers(owner: Any, x: torch.Tensor) -> Any:
    count, hidden = owner.state["all"][0]
    owner.state["all"][0] = (count + 1, hidden + x)
    return hidden * count


def twice(owner: Any, x: torch.Tensor) -> Any:
    first, second = owner.state
    assert first is second
    owner.state = [(first[0] + 1, second[1] + x)] * 2
    return second[1] * first[0] + second[0]


def kept(owner: Any, x: torch.Tensor) -> Any:
    state = owner.state
    owner.old, owner.state = state, (state[0] + 1, x)
    return x * state[0]


STATES: list[tuple[Callable[..., Any], Callable[[], Any]]] = [
    (plain, lambda: (0, torch.zeros(3), 1.0)),
    (named, lambda: Carry(0, torch.zeros(3), 1.0)),
    (replaced, lambda: Carry(0, torch.zeros(3), 1.0)),
    (nested, lambda: Nested(0, torch.zeros(3), (5, (1.0,)))),
    (in_containers, lambda: {"all": [(0, torch.zeros(3))]}),
    (twice, lambda: [(0, torch.zeros(3))] * 2),
    (kept, lambda: (0, torch.zeros(3))),
]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(("step", "make"), STATES, ids=lambda f: f.__name__)
def test_states(step: Callable[..., Any], make: Callable[[], Any], given: bool) -> None:
    """Of an object that comes with the call, or that the function has."""
    compiled, eager = Owner(state=make()), Owner(state=make())
    function = tatara.compile(step if given else lambda x: step(compiled, x))
    for i in range(12):
        result = function(compiled, X * i) if given else function(X * i)
        same((result, vars(compiled)), (step(eager, X * i), vars(eager)))
    stats = tatara.stats()
    assert stats["graphs"] <= 4 and stats["breaks"] == 0


def in_a_closure(state: Any, x: torch.Tensor) -> Any:
    def inner() -> torch.Tensor:
        return x * state[0] + state[1]

    return inner(), state


def in_a_comprehension(pairs: Any, x: torch.Tensor) -> Any:
    return [x * a + b for a, b in pairs]


def of_a_dict(table: Any, x: torch.Tensor) -> Any:
    return {key: (value[0] + 1, value[1] * x) for key, value in table.items()}


def summed(state: Any, x: torch.Tensor) -> Any:
    return x * sum(state) + len(state)


GIVEN: list[tuple[Callable[..., Any], Callable[[int], Any]]] = [
    (in_a_closure, lambda k: (k, k * 0.5)),
    (in_a_closure, lambda k: Nested(k, torch.ones(3), ())),
    (in_a_comprehension, lambda k: [(k, 1.5 * k), (k + 2, 0.5)]),
    (of_a_dict, lambda k: {"a": (k, 2.0), "b": (2 * k, 0.5 * k)}),
    (summed, lambda k: (k, 1.5 * k)),
]


@pytest.mark.parametrize(("function", "make"), GIVEN)
def test_arguments(function: Callable[..., Any], make: Callable[[int], Any]) -> None:
    compiled = tatara.compile(function)
    for k in range(12):
        same(compiled(make(k), X), function(make(k), X))
    assert tatara.stats()["graphs"] <= 3


def in_a_set_too(state: Any, other: Any, x: torch.Tensor) -> Any:
    return x * state[0] if state in other else x - state[0]


def as_a_key(state: Any, other: Any, x: torch.Tensor) -> Any:
    return x * other.get(state, 0) + state[0]


def compared(state: Any, other: Any, x: torch.Tensor) -> Any:
    return (x, state is other, state == other) if state == (3, 1) else (x * state[0], state is other, state == other)


def hashed(state: Any, other: Any, x: torch.Tensor) -> Any:
    return x * (hash(state) % 7), str(state)


def held_by_a_frozenset(state: Any, other: Any, x: torch.Tensor) -> Any:
    return x * state[0] + max(max(each) for each in other)


def others(state: tuple[int, int]) -> list[Any]:
    return [{(3, 1), (4, 1)}, {(3, 1): 2, (4, 1): 3}, state, tuple(state), frozenset([state]), [state, {state}]]


@pytest.mark.parametrize("function", [in_a_set_too, as_a_key, compared, hashed, held_by_a_frozenset])
def test_what_c_code_asks_of_a_tuple(function: Callable[..., Any]) -> None:
    for which in range(len(others((0, 0)))):
        compiled = tatara.compile(function)
        for k in range(8):
            state = (k, 1)
            other = others(state)[which]

            def outcome(called: Callable[..., Any], state: Any = state, other: Any = other) -> Any:
                try:
                    return called(state, other, X)
                except Exception as error:
                    return type(error), str(error)

            same(outcome(compiled), outcome(function))
