"""Sizes and numbers that inputs alone decide are there before the graph, which is one then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
LINEAR = torch.nn.Linear(6, 6)


def count(x: Tensor, ids: Tensor) -> Any:
    """A check of the number of marked places, between two layers."""
    h = LINEAR(x).relu()
    n = (ids == 1).sum().item()
    return LINEAR(h) * 2 + n, n


def merge(x: Tensor, ids: Tensor) -> Any:
    """Rows are put where ids say so."""
    h = LINEAR(x).relu()
    places = (ids > 1).nonzero()[:, 0]
    rows = LINEAR(h)[places]
    return torch.zeros_like(h).index_put((places,), rows * 2).sin(), rows.shape[0]


def lists(x: Tensor, ids: Tensor) -> Any:
    """Splits by numbers that a list has."""
    h = LINEAR(x).tanh()
    a, b = (ids[:2] % 3 + 1).tolist()
    return torch.cat([LINEAR(h[:a]) * 2, LINEAR(h[a : a + b]).cos()])


def repeated(x: Tensor, ids: Tensor) -> Any:
    """Rows are repeated, and a mask made of positions."""
    h = LINEAR(x).tanh()
    rows = h.repeat_interleave(ids % 3, 0)
    return LINEAR(rows) + torch.arange(rows.shape[0])[:, None]


EARLY = [count, merge, lists, repeated]


def written(x: Tensor, ids: Tensor) -> Any:
    """What is read has been written to in the call."""
    h = LINEAR(x).relu()
    ids.add_(1)
    n = (ids == 1).sum().item()
    return LINEAR(h) + n, ids.clone()


def through_a_view(x: Tensor, ids: Tensor) -> Any:
    h = LINEAR(x).relu()
    first = ids[:3]
    first.mul_(2)
    n = int(ids.max())
    return LINEAR(h) + n


def drawn(x: Tensor, ids: Tensor) -> Any:
    """Numbers drawn before and behind."""
    a = torch.rand(6)
    n = torch.randint(0, 4, ()).item()
    return LINEAR(x) * a + torch.rand(6) + n + (ids == 2).sum().item()


def computed(x: Tensor, ids: Tensor) -> Any:
    """What inputs decide, and what a layer decides."""
    n = (ids == 1).sum().item()
    h = LINEAR(x)
    kept = h[h.detach().sum(1) > 0]
    return LINEAR(kept) + n + (ids == 0).sum().item() * kept.shape[0]


def behind(x: Tensor, ids: Tensor) -> Any:
    """The second question is an error where the first is answered otherwise."""
    h = LINEAR(x).relu()
    if (ids < 0).any():
        return h * 3
    rows = torch.repeat_interleave(torch.arange(8), ids)
    return LINEAR(h)[rows] * 2


OTHERS = [written, through_a_view, drawn, computed, behind]


def _inputs(number: int, needs: bool) -> list[Tensor]:
    torch.manual_seed(number)
    ids = torch.randint(0, 4, (8,))
    if number in (3, 5, 6):
        ids[2] = -1
    return [torch.randn(8, 6).requires_grad_(needs), ids.abs() if number == 6 else ids]


def _call(function: Callable[..., Any], number: int, needs: bool) -> list[Any]:
    x, ids = _inputs(number, needs)
    torch.manual_seed(number)
    with torch.set_grad_enabled(needs):
        try:
            result = function(x, ids)
        except (RuntimeError, ValueError) as error:
            return [type(error).__name__, str(error).splitlines()[0], ids]
    first = result[0] if isinstance(result, tuple) else result
    gradients = torch.autograd.grad(first.square().sum(), [x, LINEAR.weight]) if needs else ()
    return [result, *gradients, ids, torch.rand(2)]


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("program", EARLY + OTHERS)
def test_as_eager(program: Callable[..., Any], needs: bool) -> None:
    compiled = tatara.compile(program)
    for number in range(9):
        same(_call(compiled, number, needs), _call(program, number, needs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("program", EARLY)
def test_one_graph(program: Callable[..., Any], needs: bool) -> None:
    x, ids = _inputs(0, needs)
    with torch.set_grad_enabled(needs):
        report = tatara.explain(program)(x, ids)
    assert (len(report.graphs), len(report.breaks)) == (1, 0)


def test_one_compilation_serves_all() -> None:
    compiled = tatara.compile(merge)
    for number in range(9):
        compiled(*_inputs(number, False))
    assert (tatara.stats()["graphs"], tatara.stats()["recompiles"]) == (1, 0)
