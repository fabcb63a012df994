"""Numbers in class attributes: what varies becomes a symbol."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tatara
from counters import counts


class _Meta(type):
    pass


def _compilations(function: Any, change: Any) -> int:
    compiled = tatara.compile(function)
    x = torch.linspace(-2.0, 2.0, 7)
    with counts() as grown:
        for step in range(6):
            expected, got = function(x), compiled(x)
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
            change(step)
    return grown["graphs"]


@pytest.mark.parametrize("metaclass", [type, _Meta])
@pytest.mark.parametrize("kind", ["class", "subclass", "instance", "instance of a subclass", "argument"])
@pytest.mark.parametrize("value", [lambda step: step + 7, lambda step: step * 0.75 + 1.5], ids=["int", "float"])
def test_a_number_that_varies_compiles_twice(metaclass: type, kind: str, value: Any) -> None:
    base = metaclass("Base", (), {"count": value(20), "unread": 0})
    derived = metaclass("Derived", (base,), {})
    owner = {"class": base, "subclass": derived, "instance": base()}.get(kind, derived())

    def change(step: int) -> None:
        base.count = value(step)  # type: ignore[attr-defined]
        base.unread = step  # type: ignore[attr-defined]

    if kind == "argument":
        inner = tatara.compile(lambda x, holder: x * holder.count)
        x = torch.ones(3)
        with counts() as grown:
            for step in range(6):
                torch.testing.assert_close(inner(x, owner), x * base.count, rtol=0, atol=0)  # type: ignore[attr-defined]
                change(step)
        assert grown["graphs"] == 2
    else:
        assert _compilations(lambda x: x * owner.count, change) == 2


def test_an_instance_attribute_hides_the_number() -> None:
    class Holder:
        count = 5

    holder = Holder()

    def change(step: int) -> None:
        Holder.count = step + 7
        if step == 3:
            holder.count = 100
        if step == 4:
            del holder.count

    _compilations(lambda x: x * holder.count, change)


def test_another_compiler_of_the_same_model_does_no_harm() -> None:
    """torch.compile counts its runs in a class attribute that torch.nn.Module.__init__ reads from then on."""

    class Counter:
        runs = 3
        values: dict[int, int] = {}

    class Part:
        def __init__(self) -> None:
            Counter.values[0] = Counter.runs

    def run(x: torch.Tensor) -> torch.Tensor:
        Part()
        return x + 1

    def change(step: int) -> None:
        Counter.runs += 1

    assert _compilations(run, change) <= 2
    assert Counter.values[0] == Counter.runs - 1
