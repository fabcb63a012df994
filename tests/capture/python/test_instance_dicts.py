"""The `__dict__` of an object that comes with a call: read and written as its attributes are, and kept by nobody."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


class _Plain:
    pass


class _Dict(OrderedDict[str, int]):
    pass


class _Tuple(tuple[int, ...]):
    pass


_MAKE: dict[str, Callable[[], Any]] = {
    "plain": _Plain,
    "dict": lambda: _Dict(a=1),
    "tuple": lambda: _Tuple((1, 2)),
}


def _reads(x: Any, o: Any) -> Any:
    some = sum(v is not None for v in o.__dict__.values())
    return x * o.__dict__["t"] + some + len(o.__dict__) + ("u" in o.__dict__), o.__dict__.get("missing", o.__dict__)


def _writes(x: Any, o: Any) -> Any:
    o.__dict__["n"] = o.__dict__.get("n", 0) + 1
    o.m = o.__dict__["n"] * 2
    return x * o.n + o.m, o.__dict__


@pytest.mark.parametrize("f", [_reads, _writes])
@pytest.mark.parametrize("made", list(_MAKE))
def test_as_in_eager(made: str, f: Callable[..., Any]) -> None:
    compiled = tatara.compile(f, fullgraph=True)
    for call in range(5):
        o = _MAKE[made]()
        o.t, o.u = torch.randn(2), None
        if call == 3:
            o.w = 7
        other = copy.copy(o)
        x = torch.randn(2)
        (got, attributes), (expected, _) = compiled(x, o), f(x, other)
        torch.testing.assert_close(got, expected)
        assert attributes is o.__dict__
        assert list(o.__dict__) == list(other.__dict__)
        assert o.__dict__.get("m") == other.__dict__.get("m")
    assert len(compiled._report()["recompiles"]) == 1  # another attribute


@pytest.mark.parametrize("made", list(_MAKE))
def test_kept_by_nobody(made: str) -> None:
    compiled = tatara.compile(_reads, fullgraph=True)
    for _ in range(3):
        o = _MAKE[made]()
        o.t, o.u = torch.randn(2), None
        reference = weakref.ref(o.t)
        compiled(torch.randn(2), o)
        del o
        gc.collect()
        assert reference() is None
    assert len(compiled._report()["recompiles"]) == 0


def test_a_class_of_autograd_made_in_the_call() -> None:
    """torch.masked makes one in each call, and a counter numbers them."""
    compiled = tatara.compile(lambda x: torch.masked.sum(x, 1) + torch.masked.amax(x, 1), fullgraph=True)
    for _ in range(3):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), x.sum(1) + x.amax(1))

    def with_own_class(x: Any) -> Any:
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient * 3

        return Twice.apply(x).sum()

    compiled = tatara.compile(with_own_class)
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 3.0))
