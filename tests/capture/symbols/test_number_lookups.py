"""Numbers that vary as keys, indices and operands of Python's own functions: what comes of them is guarded, not the value."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


class State:
    """What a program counts in."""

    def __init__(self) -> None:
        self.count = 2
        self.milestones = Counter([5, 11, 11])
        self.rates = {4: 0.5, 9: 0.25, 40: 0.125}
        self.names = {4: "half", 9: None}
        self.table = [0.5 / (1 + i) for i in range(60)]
        self.mixed = [1, 0.5] * 30
        self.borders = [4, 9, 20]
        self.odd = {3, 5, 7, 9, 11, 13}


def _in_counter(x: Any, s: State) -> Any:
    return x * 0.5 ** s.milestones[s.count] if s.count in s.milestones else x + 1


def _missing(x: Any, s: State) -> Any:
    return x * 0.5 ** s.milestones[s.count]


def _not_in_dict(x: Any, s: State) -> Any:
    return x if s.count not in s.rates else x * s.rates[s.count]


def _get(x: Any, s: State) -> Any:
    return x * s.rates.get(s.count, 2.0) + (1 if s.names.get(s.count) is None else 0)


def _in_set(x: Any, s: State) -> Any:
    return x * 2 if s.count in s.odd or s.count in {2, 4} else x - 1


def _in_range(x: Any, s: State) -> Any:
    return x * 2 if s.count in range(3, 30, 3) else x - 1


def _list_item(x: Any, s: State) -> Any:
    return x * s.table[s.count] + s.table[-s.count]


def _mixed_item(x: Any, s: State) -> Any:
    return x * s.mixed[s.count]


def _bisect(x: Any, s: State) -> Any:
    return x * bisect_right(s.borders, s.count) - bisect_left(s.borders, s.count)


def _floor(x: Any, s: State) -> Any:
    part = 1.0 + s.count / 7.5
    cycle = math.floor(part)
    return x * (part - cycle) * 0.5 ** (cycle - 1)


def _whole(x: Any, s: State) -> Any:
    half = s.count * 0.3
    a, b = int(half), round(half)
    return x * (half - a) + (a / (1 + b)) * round(half, 1), a, [b, abs(a - b), -a, a // 2, a % 3, divmod(half, 2.0)]


def _math(x: Any, s: State) -> Any:
    return (
        x * math.cos(s.count) + math.pow(s.count, 0.5) - math.fmod(s.count, 3),
        math.isnan(s.count / 2),
        math.isqrt(4),
    )


def _bits(x: Any, s: State) -> Any:
    return x * (1.0 / (1 + (s.count & 3))) + 0.5 * (s.count ^ 5)


def _whole_needed(x: Any, s: State) -> Any:
    return x.repeat(1 + int(s.count / 10))


LIMITS: dict[Callable[..., Any], int] = {
    _in_counter: 4,
    _missing: 3,
    _not_in_dict: 3,
    _get: 6,
    _in_set: 4,
    _in_range: 3,
    _list_item: 2,
    _mixed_item: 3,
    _bisect: 9,
    _floor: 2,
    _whole: 2,
    _math: 2,
    _bits: 2,
    _whole_needed: 6,
}


@pytest.mark.parametrize("function", list(LIMITS), ids=lambda f: f.__name__)
@pytest.mark.parametrize("inside", [True, False], ids=["attribute", "argument"])
def test_counts(function: Callable[..., Any], inside: bool) -> None:
    """The counter lives in an object from before, or is an argument's."""
    held, plain = State(), State()

    def step(x: Any) -> Any:
        held.count += 1
        return function(x, held)

    def given(x: Any, s: State) -> Any:
        s.count += 1
        return function(x, s)

    run = tatara.compile(step if inside else given)
    for _ in range(40):
        x = torch.randn(3)
        plain.count += 1
        want = function(x, plain)
        got = run(x) if inside else run(x, held)
        torch.testing.assert_close(got, want)
        assert held.__dict__ == plain.__dict__
        assert all(type(a) is type(b) for a, b in zip(_leaves(got), _leaves(want), strict=True))
    assert tatara.stats()["graphs"] <= LIMITS[function]
    assert tatara.stats()["breaks"] == 0


def _leaves(tree: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(tree)


def test_changes_of_a_table_are_seen() -> None:
    s = State()

    def step(x: Any) -> Any:
        s.count += 1
        return x * s.table[s.count] if s.count in s.odd else x + len(s.names)

    run = tatara.compile(step)
    for i in range(12):
        if i == 5:
            s.odd.add(8)
        if i == 7:
            s.table[10] = 3.0
        if i == 8:
            s.odd.add(11)
            s.table[11] = 7  # an int
        before, x = s.count, torch.randn(3)
        want = step(x)
        s.count = before
        torch.testing.assert_close(run(x), want)


def test_errors_of_look_ups() -> None:
    s = State()
    s.table = [0.5, 0.25, 0.125, 0.1, 0.2]

    def item(x: Any) -> Any:
        s.count += 1
        return x * s.table[s.count]

    def key(x: Any) -> Any:
        s.count += 1
        return x * s.rates[s.count]

    run = tatara.compile(item)
    for _ in range(2):
        torch.testing.assert_close(run(torch.ones(2)), torch.ones(2) * s.table[s.count])
    with pytest.raises(IndexError, match="list index out of range"):
        run(torch.ones(2))
    assert s.count == 5
    s.count = 2
    run = tatara.compile(key)
    with pytest.raises(KeyError, match="3"):
        run(torch.ones(2))
    torch.testing.assert_close(run(torch.ones(2)), torch.ones(2) * 0.5)
    with pytest.raises(KeyError, match="5"):
        run(torch.ones(2))


class Divided:
    """The right side of a divmod() that numbers know nothing of."""

    def __rdivmod__(self, number: Any) -> Any:
        return "divided", number


def _error(function: Callable[..., Any], *args: Any) -> str:
    try:
        return str(function(*args))
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize(
    "number",
    [lambda s: s.count, lambda s: s.count * 0.3, lambda s: math.floor(s.count * 1.7)],
    ids=["int", "float", "made_int"],
)
def test_operands_that_are_no_numbers(number: Callable[[State], Any]) -> None:
    """divmod() asks the other operand, and a modulus that varies is read."""

    def step(x: Any, s: State) -> Any:
        s.count += 1
        n = number(s)
        wrong = [_error(divmod, n, "5"), _error(divmod, 2j, n), _error(pow, 2, 3, n), _error(pow, n, 3, n)]
        return x * n, divmod(n, Divided()), divmod(n, 2), wrong

    tatara.reset()
    held, plain = State(), State()
    run = tatara.compile(step)
    for _ in range(4):
        x = torch.randn(3)
        got, want = run(x, held), step(x, plain)
        torch.testing.assert_close(got[0], want[0])
        assert got[1:] == want[1:]
        assert [type(a) for a in got[1][1:] + got[2]] == [type(a) for a in want[1][1:] + want[2]]
