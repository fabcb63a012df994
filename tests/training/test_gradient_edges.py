"""Gradients at the edges of the numbers, and which gradients under create_graph have a history, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara

EDGES = [float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 0.0, 2.0, -2.0]
AT_EDGES = {
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    "huber, wide": lambda x: F.huber_loss(x, torch.zeros_like(x), delta=2.0, reduction="none"),
    "smooth l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    "l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), beta=0.0, reduction="none"),
    "amax": lambda x: x.amax(),
    "amin": lambda x: x.amin(),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "aminmax": lambda x: torch.stack(list(torch.aminmax(x))),
    "logsumexp": lambda x: x.logsumexp(0),
    "logsumexp of nothing": lambda x: torch.stack([x[1], x[1]]).logsumexp(0),
    "logsumexp with inf": lambda x: torch.stack([x[0], x[1], x[3]]).logsumexp(0),
    "logsumexp with -inf": lambda x: torch.stack([x[4], x[1], x[3]]).logsumexp(0),
    "logsumexp with nan": lambda x: torch.stack([x[2], x[1], x[3]]).logsumexp(0),
}


@pytest.mark.parametrize("name", AT_EDGES)
@pytest.mark.parametrize("finite", [False, True])
def test_gradients_at_edges(name: str, finite: bool) -> None:
    function = AT_EDGES[name]
    numbers = torch.tensor(EDGES, dtype=torch.float64)
    if finite:
        numbers = torch.where(numbers.isfinite(), numbers, 0.5)

    def gradient(of: Callable[[Any], Any]) -> torch.Tensor:
        x = numbers.clone().requires_grad_()
        return torch.autograd.grad(of(x).sum(), x)[0]

    compiled = tatara.compile(function)
    for _ in range(2):
        torch.testing.assert_close(gradient(compiled), gradient(function), equal_nan=True)


HISTORIES = {
    "conv": (lambda x, w, b: F.conv1d(x, w, b), [(2, 3, 8), (4, 3, 3), (4,)]),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), [(3, 5), (5,), (5,)]),
    "batch norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [(4, 5), (5,), (5,)]),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 4, 2), (4,), (4,)]),
    "bilinear": (lambda x, y, w, b: F.bilinear(x, y, w, b), [(2, 3), (2, 4), (5, 3, 4), (5,)]),
    "prelu": (lambda x, w: F.prelu(x, w), [(4,), (1,)]),
    "nll": (lambda x: F.nll_loss(x, torch.tensor([0, 2])), [(2, 3)]),
    "pad": (lambda x: F.pad(x, (1, 2), "reflect"), [(2, 3, 5)]),
    "cumprod of one": (lambda x: x.cumprod(0), [(1,)]),
    "determinant of one": (lambda x: torch.linalg.det(x), [(1, 1)]),
    "no power": (lambda x: torch.linalg.matrix_power(x, 0), [(3, 3)]),
    "solve": (lambda x: torch.linalg.solve_triangular(torch.eye(3), x, upper=True), [(3, 2)]),
    "count": (lambda x: torch.linalg.vector_norm(x, 0), [(3,)]),
}


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("first_alone", [False, True])
def test_histories_of_first_gradients(name: str, first_alone: bool) -> None:
    function, shapes = HISTORIES[name]
    torch.manual_seed(0)
    values = [torch.randn(shape) for shape in shapes]

    def first(of: Callable[..., Any]) -> list[Any]:
        leaves = [v.clone().requires_grad_(i == 0 or not first_alone) for i, v in enumerate(values)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return list(torch.autograd.grad(of(*leaves).sum(), wanted, create_graph=True, allow_unused=True))

    compiled = tatara.compile(function)
    for _ in range(2):
        for ours, theirs in zip(first(compiled), first(function), strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert ours.requires_grad == theirs.requires_grad
                torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("eps", [None, 0.1])
def test_second_derivatives_of_logit_are_numbers(eps: float | None) -> None:
    compiled = tatara.compile(lambda x: torch.logit(x, eps))
    x = torch.tensor([0.02, 0.3, 0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(compiled, (x,))
