"""Plain data that a program gives a class (counters, flags) is an effect, as attributes of instances are."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


class Base:
    count: Any = 0
    total = 0.0
    name = "a"
    flag = False

    def __init__(self) -> None:
        Base.count += 1
        self.id = Base.count

    @classmethod
    def bump(cls) -> Any:
        cls.count += 1
        return cls.count


class Derived(Base):
    count = 0


START = dict(vars(Base)), dict(vars(Derived))


def reset() -> None:
    for cls, state in zip((Base, Derived), START, strict=True):
        for name in ("count", "total", "name", "flag"):
            if name in state:
                setattr(cls, name, state[name])


def state() -> Any:
    return Base.count, Base.total, Base.name, Base.flag, Derived.count


def counted(x: torch.Tensor, i: int) -> Any:
    Base.count += 1
    return x * Base.count


def read_and_written_twice(x: torch.Tensor, i: int) -> Any:
    y = x * Base.count
    Base.count += 2
    Base.total = Base.total * 0.5 + Base.count
    return y + Base.count + Base.total


def by_instances(x: torch.Tensor, i: int) -> Any:
    first, second = Base(), Derived()
    type(first).count += 1
    return x * first.id + second.id * second.count


def by_a_class_method(x: torch.Tensor, i: int) -> Any:
    return x * Base.bump() + Derived.bump()


def by_setattr(x: torch.Tensor, i: int) -> Any:
    setattr(Base, "count", Base.count + 1)  # noqa: B010
    return x * Base.count


def from_one_to_another(x: torch.Tensor, i: int) -> Any:
    Derived.count = Base.count + 1
    Base.count = Derived.count
    return x * Derived.count


def flags(x: torch.Tensor, i: int) -> Any:
    Base.flag = not Base.flag
    Base.name = "b" if Base.flag else "c"
    return x * 2 if Base.flag else x


def raises_later(x: torch.Tensor, i: int) -> Any:
    Base.count += 1
    if i == 5:
        raise ValueError(Base.count)
    return x * Base.count


def fails_later(x: torch.Tensor, i: int) -> Any:
    Base.count += 1
    return torch.index_select(x, 0, torch.tensor([0, 9 if i in (4, 5) else 1])) * Base.count


STEPS = [
    counted,
    read_and_written_twice,
    by_instances,
    by_a_class_method,
    by_setattr,
    from_one_to_another,
    flags,
    raises_later,
    fails_later,
]


def in_turn(function: Callable[..., Any], calls: int = 9) -> list[Any]:
    reset()
    seen = []
    for i in range(calls):
        try:
            result = function(torch.ones(3) * i, i)
        except Exception as error:
            result = type(error), str(error).splitlines()[0]
        seen.append((result, state()))
    reset()
    return seen


@pytest.mark.parametrize("step", STEPS)
def test_writes(step: Callable[..., Any]) -> None:
    same(in_turn(tatara.compile(step)), in_turn(step))
    stats = tatara.stats()
    assert stats["graphs"] <= 3 and stats["breaks"] == 0


def around_a_break(x: torch.Tensor, i: int) -> Any:
    Base.count += 1
    y = x * Base.count
    value = float(y.sum())
    Base.count += 1
    return y + Base.count + value


def helper(x: torch.Tensor) -> float:
    Base.count += 1
    value = float(x.sum())
    Base.count += 1
    return value


def in_a_call_that_breaks(x: torch.Tensor, i: int) -> Any:
    return helper(x) * Base.count + x


@pytest.mark.parametrize("step", [around_a_break, in_a_call_that_breaks])
def test_breaks(step: Callable[..., Any]) -> None:
    same(in_turn(tatara.compile(step)), in_turn(step))


class Meta(type):
    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        super().__setattr__("told", name)


class Abstract(abc.ABC):
    count = 0


class WithMeta(metaclass=Meta):
    count = 0
    told = ""


class Descriptor:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> int:
        return 7


class WithDescriptor:
    count: Any = Descriptor()


class Holder:
    count: Any = torch.ones(3)


@pytest.mark.parametrize("kind", [Abstract, WithMeta, WithDescriptor, Holder])
def test_other_classes_are_as_in_eager(kind: Any) -> None:
    def step(x: torch.Tensor) -> Any:
        y = x * kind.count
        kind.count = kind.count + 1
        return y * kind.count

    before = dict(vars(kind))
    runs = []
    for function in (step, tatara.compile(step)):
        seen = []
        for i in range(6):
            seen.append((function(torch.ones(3) * i), vars(kind)["count"], getattr(kind, "told", None)))
        runs.append(seen)
        type.__setattr__(kind, "count", before["count"])
    same(runs[1], runs[0])


def test_hooks_that_a_step_puts_on_and_takes_off() -> None:
    layer = nn.Linear(3, 3)
    module = nn.Sequential(layer, nn.ReLU())

    def step(x: torch.Tensor) -> torch.Tensor:
        handle = layer.register_forward_hook(lambda module, args, output: output * 2)
        result = module(x)
        handle.remove()
        return result

    compiled = tatara.compile(step)
    with torch.no_grad():
        for i in range(5):
            before = RemovableHandle.next_id
            same(compiled(torch.ones(3) * i), step(torch.ones(3) * i))
            assert RemovableHandle.next_id == before + 2 and not layer._forward_hooks
    assert tatara.stats()["breaks"] == 0
