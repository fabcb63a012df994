"""Weak references that the program holds where a graph breaks, as handles of hooks do: later calls make them again."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tatara  # noqa: E402
from counters import counts  # noqa: E402


class Grab:
    """Keeps what a layer gives, and looks at it."""

    def __init__(self, module: Any) -> None:
        self.shown, self.out = "", None
        self.handle = module.register_forward_hook(self)

    def __call__(self, module: Any, args: Any, out: Any) -> None:
        self.shown = str(out.tolist())
        self.out = out

    def close(self) -> None:
        self.handle.remove()


def test_hooks_that_look_at_values() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def f(x: Any) -> Any:
        grab = Grab(net[0])
        y = net(x)
        grab.close()
        return y, grab.out, grab.shown, len(net[0]._forward_hooks)

    compiled = tatara.compile(f)
    with torch.no_grad(), counts() as count:
        for i in range(8):
            x = torch.arange(6.0).view(2, 3) + i
            ours, theirs = compiled(x), f(x)
            assert torch.allclose(ours[0], theirs[0])
            assert torch.allclose(ours[1], theirs[1])
            assert ours[3] == theirs[3] == 0
    assert count["graphs"] <= 4


def test_the_same_reference() -> None:
    table: OrderedDict[str, int] = OrderedDict(a=1)

    def f(x: Any) -> Any:
        reference = weakref.ref(table)
        y = x + 1
        str(y.tolist())
        return y * 2, reference, reference() is table, weakref.ref(table) is reference

    compiled = tatara.compile(f)
    for i in range(4):
        y, reference, found, same = compiled(torch.ones(2) + i)
        assert torch.equal(y, (torch.ones(2) + i + 1) * 2)
        assert reference() is table
        assert found
        assert same


def _removed(hooked: Any, x: Any) -> Any:
    handle = hooked.register_forward_hook(lambda m, a, o: o * 2)
    str(x.tolist())
    y = hooked(x)
    alive = handle.hooks_dict_ref() is hooked._forward_hooks
    handle.remove()
    return y, alive, handle.hooks_dict_ref() is hooked._forward_hooks


def _context(hooked: Any, x: Any) -> Any:
    with hooked.register_forward_hook(lambda m, a, o: o * 2):
        str(x.tolist())
        y = hooked(x)
    return y, len(hooked._forward_hooks)


@pytest.mark.parametrize("body", [_removed, _context], ids=lambda f: f.__name__)
def test_handles(body: Callable[..., Any]) -> None:
    layer = nn.Linear(3, 3)
    compiled = tatara.compile(body)
    with torch.no_grad():
        for i in range(5):
            x = torch.arange(3.0) + i
            ours, theirs = compiled(layer, x), body(layer, x)
            assert torch.allclose(ours[0], theirs[0])
            assert ours[1:] == theirs[1:]
