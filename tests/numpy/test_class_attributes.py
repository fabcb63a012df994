"""Class attributes that traced code reads: guarded by what was read, numbers that vary become symbols."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest

import numpy as np
import tatara

X = np.linspace(-2.0, 2.0, 7)


def _classes() -> tuple[type, type]:
    class Base:
        scale = 2.0
        count = 3
        name = "base"
        unread = 0

        def twice(self, x: Any) -> Any:
            return x * 2

    class Derived(Base):
        extra = 5

    return Base, Derived


def _graphs(function: Any, change: Any, calls: int = 6) -> int:
    """Calls the compiled function between changes, each time compared with eager. The number of compilations."""
    compiled = tatara.compile(function)
    before = tatara.stats()["graphs"]
    for step in range(calls):
        expected, got = function(X), compiled(X)
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype
        change(step)
    return int(tatara.stats()["graphs"] - before)


def _set(cls: type, name: str, value: Any) -> Any:
    return lambda step: setattr(cls, name, value(step))


@pytest.mark.parametrize("place", ["base", "derived"])
@pytest.mark.parametrize("through", ["class", "instance", "fresh instance", "derived instance", "super"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", lambda step: step + 10),
        ("scale", lambda step: step * 0.5),
        ("name", lambda step: "n" * step),
        ("twice", lambda step: lambda self, x: x * (step + 3)),
    ],
    ids=["int", "float", "str", "method"],
)
def test_a_change_of_what_was_read_is_seen(place: str, through: str, name: str, value: Any) -> None:
    base, derived = _classes()

    class Reader(derived):  # type: ignore[misc, valid-type]
        def read(self, name: str) -> Any:
            return getattr(super(), name)

    kept, kept_derived, reader = base(), derived(), Reader()

    def owner() -> Any:
        if through == "class":
            return derived
        if through == "instance":
            return kept
        if through == "fresh instance":
            return derived()
        return kept_derived

    def run(x: Any) -> Any:
        found = reader.read(name) if through == "super" else getattr(owner(), name)
        if name == "twice":
            return found(kept, x) if through == "class" else found(x)
        return x * (len(found) if name == "name" else found)

    def run_by_attribute(x: Any) -> Any:
        if through == "super":
            return run(x)
        if name == "count":
            return x * owner().count
        if name == "scale":
            return x * owner().scale
        if name == "name":
            return x * len(owner().name)
        return owner().twice(kept, x) if through == "class" else owner().twice(x)

    target = base if place == "base" else derived
    _graphs(run, _set(target, name, value))
    base.count, base.scale, base.name = 3, 2.0, "base"
    _graphs(run_by_attribute, _set(target, name, value))


def test_what_was_not_read_compiles_nothing() -> None:
    base, derived = _classes()
    instance = derived()
    assert _graphs(lambda x: x * instance.count, _set(base, "unread", lambda step: step)) == 1
    assert _graphs(lambda x: instance.twice(x), _set(derived, "fresh", lambda step: f"{step}")) == 1


def test_an_instance_attribute_hides_the_class_attribute() -> None:
    base, derived = _classes()
    instance = derived()

    def change(step: int) -> None:
        base.count = step + 7
        if step == 3:
            instance.count = 100

    _graphs(lambda x: x * instance.count, change)


def test_names_are_read_in_other_ways() -> None:
    for read in (
        lambda cls: vars(cls)["count"],
        lambda cls: cls.__dict__["count"],
        lambda cls: object.__getattribute__(cls(), "count"),
        lambda cls: type.__getattribute__(cls, "count"),
        lambda cls: getattr(cls, "count", None),
        lambda cls: int("absent" in dir(cls)) + 3,
        lambda cls: operator.attrgetter("count")(cls),
        lambda cls: operator.attrgetter("inner.name", "inner.count")(SimpleNamespace(inner=cls()))[1],
        lambda cls: 4 if hasattr(cls, "absent") else 5,
    ):
        base, _ = _classes()

        def change(step: int, base: type = base) -> None:
            base.count = step + 20  # type: ignore[attr-defined]
            if step == 2:
                base.absent = 1  # type: ignore[attr-defined]

        _graphs(lambda x, read=read, base=base: x * read(base), change)


def test_another_metaclass_or_getter_is_asked() -> None:
    class Meta(type):
        limit = 4

        @property
        def count(cls) -> int:
            return cls.limit

    class WithMeta(metaclass=Meta):
        pass

    _graphs(lambda x: x * WithMeta.count, _set(Meta, "limit", lambda step: step + 9))

    class Getter:
        count = 3

        def __getattribute__(self, name: str) -> Any:
            found = object.__getattribute__(self, name)
            return found + 1 if isinstance(found, int) else found

    instance = Getter()
    _graphs(lambda x: x * instance.count, _set(Getter, "count", lambda step: step + 9))


def test_instances_of_generic_classes_have_no_state_in_c() -> None:
    """`typing.Generic` is written in C from Python 3.12 on."""
    kind = TypeVar("kind")

    class Box(Generic[kind]):
        def __init__(self, value: kind) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Box) and self.value == other.value

        def __hash__(self) -> int:
            return hash(self.value)

    first, second = Box(2.0), Box(3.0)

    def f(x: Any) -> Any:
        largest = max((first, second), key=operator.attrgetter("value"))
        return x * largest.value if largest in (first, second) else x

    compiled = tatara.compile(f, fullgraph=True)
    np.testing.assert_array_equal(compiled(X), X * 3)
    first.value = 5.0
    np.testing.assert_array_equal(compiled(X), X * 5)
