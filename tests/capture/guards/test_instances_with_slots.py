"""Instances whose attributes are in slots (`__slots__`, dataclasses with slots): as arguments that each call makes anew, and as results."""

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


@dataclasses.dataclass(slots=True)
class Batch:
    x: Tensor
    step: int = 2
    scale: float = 0.5
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: Tensor
    n: int = 1

    def with_x(self, x: Tensor) -> Frozen:
        return dataclasses.replace(self, x=x, n=self.n + 1)


class Base:
    __slots__ = ("__hidden", "left")

    def __init__(self, left: Any) -> None:
        self.left, self.__hidden = left, left + 1

    @property
    def hidden(self) -> Any:
        return self.__hidden


class Derived(Base):
    __slots__ = ("__weakref__", "left", "unset")

    def __init__(self, left: Any, below: Any) -> None:
        super().__init__(below)
        self.left = left
        Base.left.__set__(self, below)  # type: ignore[attr-defined]


class Beside(Base):
    """Has a __dict__ as well."""

    def __init__(self, left: Any) -> None:
        super().__init__(left)
        self.more = left * 2


def plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if dataclasses.is_dataclass(value):
        return [type(value), [plain(getattr(value, each.name)) for each in dataclasses.fields(value)]]
    if isinstance(value, Base):
        return [
            type(value),
            plain(value.left),
            plain(value.hidden),
            hasattr(value, "unset"),
            plain(Base.left.__get__(value)),
        ]  # type: ignore[attr-defined]
    return value


def batch(call: int) -> Batch:
    return Batch(torch.arange(3.0 + call) + call, step=call + 2, scale=0.25 * call)


def reads(call: int, b: Batch) -> Any:
    return b.x * b.step + b.scale


def writes(call: int, b: Batch) -> Any:
    b.x = b.x + 1
    b.step += 3
    b.tags = (*b.tags, "seen")
    return b.x.sum() * b.step


def replaced(call: int, b: Batch) -> Any:
    f = Frozen(b.x, b.step).with_x(b.x * 2)
    return f, [f, copy.copy(b)], dataclasses.replace(b, scale=3.0)


def derived(call: int, b: Batch) -> Any:
    d = Derived(b.x, b.x - 1)
    return d, d.hidden * 2, Beside(b.x).more


def returns_argument(call: int, b: Batch) -> Any:
    return b, b.x + 1


def shared(call: int, b: Batch) -> Any:
    f = Frozen(b.x + 1)
    return [f, {"again": f}["again"] is f, f]


PROGRAMS = [reads, writes, replaced, derived, returns_argument, shared]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_made_anew_in_each_call(program: Callable[..., Any]) -> None:
    run = tatara.compile(program)
    for call in range(8):
        eager, compiled = batch(call), batch(call)
        with counts() as grown:
            found = run(call, compiled)
        assert plain(found) == plain(program(call, eager))
        assert plain(compiled) == plain(eager)
        if program is returns_argument:
            assert found[0] is compiled
        if program is shared:
            assert found[0] is found[2]
    assert grown["graphs"] == grown["recompiles"] == grown["breaks"] == grown["fallbacks"] == 0


def test_derived_slots_of_arguments() -> None:
    def function(d: Any) -> Any:
        return d.left * 2 + d.hidden, hasattr(d, "unset")

    run = tatara.compile(function)
    for call in range(5):
        given = Derived(torch.full((3,), float(call)), torch.ones(3) * call)
        if call == 3:
            given.unset = 1
        assert plain(run(given)) == plain(function(given))
    beside = Beside(torch.ones(3))
    assert plain(run(beside)) == plain(function(beside))


def test_other_classes_and_values_are_told_apart() -> None:
    @dataclasses.dataclass(slots=True)
    class Other:
        x: Tensor
        step: int = 2
        scale: float = 0.5
        tags: tuple[str, ...] = ()

        def factor(self) -> int:
            return 7

    def function(b: Any) -> Any:
        return b.x * (b.factor() if isinstance(b, Other) else 1) if "seen" not in b.tags else b.x - 1

    run = tatara.compile(function)
    x = torch.ones(3)
    for given in (Batch(x), Other(x), Batch(x, tags=("seen",)), Batch(x), Other(x, tags=("seen",)), Other(x)):
        assert torch.equal(run(given), function(given))


def test_in_a_place_that_varies() -> None:
    class Holder:
        current: Any = None

    holder = Holder()
    run = tatara.compile(lambda y: y * holder.current.x + holder.current.step)
    for call in range(6):
        holder.current = Batch(torch.full((2,), float(call)), step=call + 2)
        with counts() as grown:
            assert torch.equal(run(torch.ones(2)), torch.full((2,), 2.0 * call + 2))
    assert grown["graphs"] == grown["recompiles"] == 0


def test_two_arguments_that_are_one() -> None:
    def function(a: Any, b: Any) -> Any:
        a.step += 1
        return a.x * b.step

    run = tatara.compile(function)
    for call in range(4):
        for same in (False, True):
            pairs = []
            for _ in range(2):
                one = Batch(torch.ones(2), step=call)
                pairs.append((one, one if same else Batch(torch.ones(2), step=call)))
            assert torch.equal(run(*pairs[0]), function(*pairs[1]))
            assert pairs[0][0].step == pairs[1][0].step and pairs[0][1].step == pairs[1][1].step


def test_results_are_not_kept() -> None:
    run = tatara.compile(lambda x: Derived(x, x + 1))
    for _ in range(3):
        found = run(torch.ones(2))
        end = weakref.ref(found)
        assert gc.is_tracked(found)
        del found
        assert end() is None


def test_across_a_break() -> None:
    def function(x: Tensor) -> Any:
        f = Frozen(x + 1, 2)
        d = Derived(x, x * 2)
        print(end="")
        return f.with_x(f.x * 2), d, d.hidden + f.n

    run = tatara.compile(function)
    for call in range(4):
        x = torch.full((2,), float(call))
        assert plain(run(x)) == plain(function(x))
