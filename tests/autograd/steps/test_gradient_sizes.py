"""Gradients of a pass inside of compiled code, where sizes vary: their sizes are those of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


def loss_of(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin().sum()


def by_grad(x: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(loss_of(x), x)
    return found


def by_backward(x: torch.Tensor) -> torch.Tensor:
    loss_of(x).backward()
    found, x.grad = x.grad, None
    return found


def by_backward_of_a_transposed(x: torch.Tensor) -> torch.Tensor:
    loss_of(x.t() * x.t()).backward()
    found, x.grad = x.grad, None
    return found


def by_second(x: torch.Tensor) -> torch.Tensor:
    (first,) = torch.autograd.grad(loss_of(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return second + first.detach()


def by_intermediate(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    (found,) = torch.autograd.grad(y.square().sum(), y)
    return found


def by_intermediate_transposed(x: torch.Tensor) -> torch.Tensor:
    y = x.t()
    (found,) = torch.autograd.grad(y.exp().sum(), y)
    return found


def by_expanded(x: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(x.sum(), x)
    return found


def by_func(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(loss_of)(x.detach())


PASSES = [
    by_grad,
    by_backward,
    by_backward_of_a_transposed,
    by_second,
    by_intermediate,
    by_intermediate_transposed,
    by_expanded,
    by_func,
]
USES: dict[str, Callable[[torch.Tensor], Any]] = {
    "as it is": lambda g: g,
    "detached": lambda g: g.detach(),
    # The stride of a dimension of one element means nothing.
    "shape": lambda g: (g.shape, g.numel(), g.stride() if len(g) > 1 else (), len(g)),
    "scaled": lambda g: g / g.shape[0],
    "reshaped": lambda g: g.reshape(g.shape[0] * g.shape[1]) * 2,
    "transposed": lambda g: g.t(),
    "sliced": lambda g: g[1:],
    "made like it": lambda g: (torch.ones(g.shape), torch.zeros_like(g), g.new_zeros(g.size(0))),
    "joined": lambda g: torch.cat([g, g]),
    "loop": lambda g: sum(g[i].sum() for i in range(g.shape[0])),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("gradient", PASSES)
def test_sizes(gradient: Callable[[torch.Tensor], torch.Tensor], use: Callable[[torch.Tensor], Any]) -> None:
    def function(x: torch.Tensor) -> Any:
        return use(gradient(x))

    compiled = tatara.compile(function)
    for size in (4, 4, 5, 6, 7, 1):
        x = torch.randn(size, 3, requires_grad=True)
        expected, actual = function(x), compiled(x)
        same(actual, expected)


OUTSIDE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: (x * 2).sum(),
    "mean": lambda x: x.mean(),
    "of rows": lambda x: x.sum(0),
    "of columns": lambda x: x.sum(1),
    "flat": lambda x: (x.reshape(-1) * 2).sum(),
    "transposed": lambda x: (x.t() * 3).sum(0),
    "two of several": lambda x: torch.stack([x.sum(), (x.t() @ torch.ones(x.shape[0])).sum()]),
    "products of expanded": lambda x: torch.bmm(x.expand(2, *x.shape), x.t().expand(2, x.shape[1], x.shape[0])),
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(2, x.shape[1])).mean(),
}


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("function", OUTSIDE.values(), ids=OUTSIDE)
def test_a_backward_that_reads_no_tensor_of_that_size(
    function: Callable[[torch.Tensor], torch.Tensor], again: bool
) -> None:
    compiled = tatara.compile(function)
    before = tatara.stats()
    for sizes in ((4, 3), (4, 3), (5, 3), (6, 3), (7, 3), (7, 5), (3, 8)):
        found = []
        for call in (function, compiled):
            torch.manual_seed(0)
            x = torch.randn(*sizes, requires_grad=True)
            weights = torch.randn(call(x).shape, requires_grad=True)
            result = call(x)
            (gradient,) = torch.autograd.grad(result, x, weights, create_graph=again)
            found.append([result.detach(), gradient.detach()])
            if again:
                found[-1] += torch.autograd.grad(gradient.square().sum(), (weights, x), allow_unused=True)
        for a, b in zip(*found, strict=True):
            if a is None or b is None:
                assert a is b
                continue
            torch.testing.assert_close(b, a)
    after = tatara.stats()
    assert (after["fallbacks"], after["breaks"]) == (before["fallbacks"], before["breaks"])
