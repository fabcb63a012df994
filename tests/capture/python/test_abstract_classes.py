"""What abstract base classes say of objects and classes: the same in each call until somebody registers a class."""

from __future__ import annotations

import abc
import collections.abc
import enum
import functools
import numbers
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from tatara.report._report import report_of


def new_classes() -> tuple[type, type, type]:
    """An abstract class, one below it, and a class that is registered with neither."""

    class Shape(abc.ABC):
        pass

    class Round(Shape):
        pass

    class Ball:
        pass

    return Shape, Round, Ball


def asks_isinstance(shape: type) -> Callable[..., Any]:
    return lambda x, v: x + 1 if isinstance(v, shape) else x - 1


def asks_issubclass(shape: type) -> Callable[..., Any]:
    return lambda x, v: x + 1 if issubclass(type(v), shape) else x - 1


def asks_several(shape: type) -> Callable[..., Any]:
    return lambda x, v: x + 1 if isinstance(v, (int, shape)) else x - 1


def asks_in_a_helper(shape: type) -> Callable[..., Any]:
    def kind(v: Any) -> int:
        return sum(isinstance(each, shape) for each in (v, 1, v))

    return lambda x, v: x * kind(v)


def matches(shape: type) -> Callable[..., Any]:
    def run(x: Any, v: Any) -> Any:
        match v:
            case shape():
                return x + 1
            case _:
                return x - 1

    return run


def dispatches(shape: type) -> Callable[..., Any]:
    @functools.singledispatch
    def kind(v: Any) -> int:
        return 1

    @kind.register(shape)
    def _(v: Any) -> int:
        return 2

    return lambda x, v: x * kind(v)


def asks_a_map(shape: type) -> Callable[..., Any]:
    return lambda x, v: x * len(list(filter(functools.partial(lambda kind, o: isinstance(o, kind), shape), [v, 2])))


WAYS = [asks_isinstance, asks_issubclass, asks_several, asks_in_a_helper, matches, dispatches, asks_a_map]


def registers_it(shape: type, below: type, ball: type) -> None:
    shape.register(ball)  # type: ignore[attr-defined]


def registers_it_below(shape: type, below: type, ball: type) -> None:
    below.register(ball)  # type: ignore[attr-defined]


def registers_a_base(shape: type, below: type, ball: type) -> None:
    shape.register(ball.__mro__[0])  # type: ignore[attr-defined]


def registers_by_a_third(shape: type, below: type, ball: type) -> type:
    class Third(abc.ABC):
        pass

    Third.register(ball)
    shape.register(Third)  # type: ignore[attr-defined]
    return Third


def registers_another(shape: type, below: type, ball: type) -> None:
    class Other:
        pass

    shape.register(Other)  # type: ignore[attr-defined]


CHANGES = [registers_it, registers_it_below, registers_a_base, registers_by_a_third, registers_another]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("of_a_base", [False, True])
def test_registered_between_calls(way: Callable[..., Any], change: Callable[..., Any], of_a_base: bool) -> None:
    kept = []  # registries hold classes by weak references

    def outcomes(compiled: bool) -> list[list[float]]:
        shape, below, ball = new_classes()
        made = (type("Small", (ball,), {}) if of_a_base else ball)()
        run = way(shape)
        if compiled:
            run = tatara.compile(run)
        x = torch.ones(2)
        found = [run(x, made).tolist() for _ in range(3)]
        kept.append(change(shape, below, ball))
        found += [run(x, made).tolist() for _ in range(3)]
        found.append(run(x, below()).tolist())
        return found

    assert outcomes(True) == outcomes(False)


def test_registration_of_other_classes_compiles_nothing_again() -> None:
    shape, below, ball = new_classes()
    run = tatara.compile(asks_isinstance(shape))
    x = torch.ones(2)
    run(x, ball())
    registers_another(shape, below, ball)
    run(x, ball())
    assert len(report_of(run).graphs) == 1


def test_code_behind_an_answer_runs_once() -> None:
    """The interpreter keeps what `__subclasshook__` says: a call that finds the answer kept does not run it again."""

    def outcomes(compiled: bool) -> tuple[list[list[float]], list[type]]:
        asked: list[type] = []

        class Shape(abc.ABC):
            @classmethod
            def __subclasshook__(cls, other: type) -> Any:
                asked.append(other)
                return hasattr(other, "area")

        class Flat:
            area = 2

        class Line:
            pass

        def program(x: Any, v: Any) -> Any:
            return x + 1 if isinstance(v, Shape) else x - 1

        run = tatara.compile(program) if compiled else program
        found = [run(torch.ones(2), v).tolist() for v in (Flat(), Line(), Flat(), Line())]
        return found, [each.__name__ for each in asked]  # type: ignore[misc]

    assert outcomes(True) == outcomes(False)


class Color(enum.Enum):
    RED = 1


@typing.runtime_checkable
class Sized(typing.Protocol):
    def __len__(self) -> int: ...


class WithClass:
    """Shows another class than it has."""

    __class__ = property(lambda self: dict)  # type: ignore[assignment]


ABSTRACT = [
    # Of ByteString, Python 3.12 warns whenever somebody asks.
    *(getattr(collections.abc, name) for name in collections.abc.__all__ if name != "ByteString"),
    *(getattr(numbers, name) for name in numbers.__all__),
    Sized,
]
OBJECTS: list[Callable[[], Any]] = [
    lambda: 1, lambda: 1.5, lambda: 2j, lambda: "a", lambda: b"a", lambda: [1], lambda: (1, 2), lambda: {1: 2}, lambda: {1},
    lambda: None, lambda: torch.Size([2]), lambda: torch.ones(2), lambda: Color.RED, lambda: len, lambda: iter([1]),
    lambda: WithClass(), lambda: range(3), lambda: new_classes()[2](),
]  # fmt: skip


@pytest.mark.parametrize("abstract", ABSTRACT, ids=lambda each: each.__name__)
def test_no_answer_breaks_the_graph(abstract: type) -> None:
    """Also where the interpreter has kept no answer, and asks the classes below and those registered."""

    class New(abstract):  # type: ignore[misc, valid-type]
        """Below the abstract class, found by its list of subclasses alone: no name leads to it."""

    def program(x: Any, v: Any) -> Any:
        return (x + 1 if isinstance(v, abstract) else x - 1), (x * 2 if issubclass(type(v), abstract) else x * 3)

    for make in OBJECTS:
        run = tatara.compile(program)
        x = torch.ones(2)
        for _ in range(2):
            v = make()
            got, want = run(x, v), program(x, v)
            assert [each.tolist() for each in got] == [each.tolist() for each in want]
        assert [each.reason for each in report_of(run).breaks] == []


def test_the_order_of_bases_is_followed() -> None:
    """Read by its descriptor, as inspect.getattr_static does, and changed between calls."""

    class First:
        factor = 2

    class Second:
        factor = 3

    class Own(First):
        pass

    order = type.__dict__["__mro__"]

    def program(x: Any, kind: type) -> Any:
        for base in order.__get__(kind):
            if "factor" in base.__dict__:
                return x * base.__dict__["factor"]
        return x

    run = tatara.compile(program)
    x = torch.ones(2)
    for _ in range(3):
        assert run(x, Own).tolist() == program(x, Own).tolist()
    assert [each.reason for each in report_of(run).breaks] == []
    Own.__bases__ = (Second,)
    for _ in range(3):
        assert run(x, Own).tolist() == program(x, Own).tolist()
