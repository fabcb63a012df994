"""Compiled code keeps nothing alive that the program lets go of: a weak reference, made before or after the calls, tells."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


class Thing:
    limit = 3

    def __init__(self) -> None:
        self.factor = 2.0
        self.inner: Any = None

    def scale(self, x: Any) -> Any:
        return x * self.factor


class Holder:
    thing: Any = None


class Place:
    """Somewhere that a function finds an object, and how the program lets go of it there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.holder = Holder()
        self.cell: Any = None
        if name == "class attribute":
            self.holder = type("Own", (Holder,), {"thing": Thing()})  # type: ignore[assignment]
        elif name == "nested attribute":
            self.holder.thing = Thing()
            self.holder.thing.inner = Thing()
        else:
            self.holder.thing = Thing()

    def found(self) -> Any:
        return self.holder.thing.inner if self.name == "nested attribute" else self.holder.thing

    def finder(self) -> Callable[[], Any]:
        holder, thing = self.holder, self.holder.thing
        if self.name == "nested attribute":
            return lambda: holder.thing.inner
        if self.name == "closure":

            def find() -> Any:
                return thing

            self.cell = find.__closure__
            return find
        if self.name == "default":
            find = lambda found=thing: found  # noqa: E731
            self.cell = find
            return find
        return lambda: holder.thing

    def drop(self) -> None:
        if self.name == "nested attribute":
            self.holder.thing.inner = None
        else:
            self.holder.thing = None
        if self.name == "closure":
            self.cell[0].cell_contents = None
        if self.name == "default":
            self.cell.__defaults__ = (None,)


def _reads(x: Any, thing: Any) -> Any:
    return x * thing.factor


def _calls(x: Any, thing: Any) -> Any:
    return thing.scale(x)


def _compares(x: Any, thing: Any) -> Any:
    return x + 1 if thing is x else x - 1


def _asks_identity(x: Any, thing: Any) -> Any:
    return x + len({id(thing), id(x)})


def _writes(x: Any, thing: Any) -> Any:
    thing.inner = 3
    return x + thing.inner


def _keys(x: Any, thing: Any) -> Any:
    return x + {thing: 1}[thing]


def _breaks(x: Any, thing: Any) -> Any:
    y = x * thing.factor
    print(end="")
    return y * thing.factor


def _refers(x: Any, thing: Any) -> Any:
    return x + (1 if weakref.ref(thing)() is thing else 2)


USES = [_reads, _calls, _compares, _asks_identity, _writes, _keys, _breaks, _refers]
PLACES = ["attribute", "nested attribute", "class attribute", "closure", "default", "argument"]


def _alive(place_name: str, use: Callable[[Any, Any], Any], before: bool, compiled: bool) -> list[bool]:
    place = Place(place_name)
    find = place.finder()

    def by_place(x: Any) -> Any:
        return use(x, find())

    if place_name == "argument":
        function: Any = tatara.compile(use) if compiled else use
        call: Callable[[Any], Any] = lambda x: function(x, place.found())  # noqa: E731
    else:
        call = tatara.compile(by_place) if compiled else by_place
    reference = weakref.ref(place.found()) if before else None
    for _ in range(3):
        call(torch.ones(3))
    reference = reference or weakref.ref(place.found())
    seen = [reference() is not None]
    place.drop()
    gc.collect()
    return [*seen, reference() is not None]


@pytest.mark.parametrize("before", [True, False], ids=["referred before", "referred after"])
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__[1:])
@pytest.mark.parametrize("place", PLACES)
def test_lets_go_with_the_program(place: str, use: Callable[[Any, Any], Any], before: bool) -> None:
    assert _alive(place, use, before, compiled=True) == _alive(place, use, before, compiled=False) == [True, False]


def test_what_a_call_replaces_ends_in_the_call() -> None:
    def replaces(holder: Any, x: Any) -> Any:
        holder.reference = weakref.ref(holder.thing)
        holder.thing = Thing()
        return x + (1 if holder.reference() is None else 2)

    f = tatara.compile(replaces)
    for _ in range(3):
        ours, theirs = Holder(), Holder()
        ours.thing, theirs.thing = Thing(), Thing()
        assert torch.equal(f(ours, torch.ones(2)), replaces(theirs, torch.ones(2)))
        assert ours.reference() is None  # type: ignore[attr-defined]


def test_a_reference_that_is_replaced_calls_nothing() -> None:
    said: list[str] = []
    holder = Holder()
    holder.thing = Thing()
    holder.reference = weakref.ref(holder.thing, lambda _: said.append("old"))  # type: ignore[attr-defined]

    def asks(x: Any) -> Any:
        return x + (1 if holder.reference() is None else 2)  # type: ignore[attr-defined]

    f = tatara.compile(asks)
    for _ in range(2):
        f(torch.ones(2))
    holder.reference = weakref.ref(holder.thing, lambda _: said.append("new"))  # type: ignore[attr-defined]
    holder.thing = None
    assert said == ["new"]
    assert torch.equal(f(torch.ones(2)), asks(torch.ones(2)))


def test_another_object_at_the_place_of_one_that_ended() -> None:
    holder = Holder()

    def reads(x: Any) -> Any:
        return x * holder.thing.factor

    f = tatara.compile(reads, options={"recompile_limit": 50})
    for k in range(20):  # new objects get the memory of old ones
        holder.thing = None
        holder.thing = Thing()
        holder.thing.factor = float(k)
        assert torch.equal(f(torch.ones(2)), reads(torch.ones(2)))


def test_ended_objects_count_for_the_limit() -> None:
    """Of a kind that is guarded by identity alone: others are inputs once they have been another object."""

    class Slotted:
        __slots__ = ("__dict__", "__weakref__", "limit")  # both

        def __init__(self) -> None:
            self.limit = 3

    holder = Holder()

    def compares(x: Any) -> Any:
        return x + (1 if holder.thing is x else holder.thing.limit)

    f = tatara.compile(compares, options={"recompile_limit": 4})
    before = tatara.stats()["graphs"]
    with pytest.warns(RuntimeWarning, match="recompile_limit"):
        for _ in range(12):
            holder.thing = Slotted()
            f(torch.ones(2))
    assert tatara.stats()["graphs"] - before <= 4


@pytest.mark.parametrize("make", [lambda n: float("nan") * n, lambda n: complex(math.nan, n)], ids=["float", "complex"])
def test_each_call_has_a_nan_of_its_own(make: Callable[[int], Any]) -> None:
    def keeps(table: dict[Any, int], x: Any) -> Any:
        nan = make(len(table) + 1) if len(table) < 0 else make(1)
        table[nan] = table[nan] = 2
        return x + len(table)

    f = tatara.compile(keeps)
    ours: dict[Any, int] = {}
    theirs: dict[Any, int] = {}
    for _ in range(4):
        assert torch.equal(f(ours, torch.ones(2)), keeps(theirs, torch.ones(2)))
    assert len(ours) == len(theirs) == 4


def test_a_nan_from_outside_is_itself() -> None:
    nan = math.nan

    def keeps(table: dict[Any, int], x: Any) -> Any:
        table[nan] = 1
        return x + len(table)

    f = tatara.compile(keeps)
    ours: dict[Any, int] = {}
    theirs: dict[Any, int] = {}
    for _ in range(4):
        assert torch.equal(f(ours, torch.ones(2)), keeps(theirs, torch.ones(2)))
    assert len(ours) == len(theirs) == 1
    assert next(iter(ours)) is nan
