"""Strides of gradients, beside eager's: of products in every layout, and of compiled blocks whose results are not contiguous."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Function = Callable[..., Any]

PRODUCTS: dict[str, Function] = {
    "mm": lambda a, b, c: a @ b,
    "transposed": lambda a, b, c: b.mT @ a.mT,
    "addmm": lambda a, b, c: torch.addmm(c, a, b, alpha=2, beta=0.5),
    "linear": lambda a, b, c: F.linear(a, b.mT),
    "linear with bias": lambda a, b, c: F.linear(a, b.mT, c[0]),
    "linear of three dimensions": lambda a, b, c: F.linear(a[None].expand(2, -1, -1), b.mT),
    "matmul of three dimensions": lambda a, b, c: torch.stack((a, a)) @ b,
    "bmm": lambda a, b, c: torch.bmm(a[None], b[None]),
    "einsum": lambda a, b, c: torch.einsum("ij,jk->ki", a, b),
    "of results": lambda a, b, c: (a * a) @ (b * 3),
}


def matrix(rows: int, columns: int, layout: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    if layout == "transposed":
        return torch.randn(columns, rows, dtype=dtype).mT.requires_grad_()
    if layout == "strided":
        return torch.randn(rows, 2 * columns, dtype=dtype)[:, ::2].requires_grad_()
    return torch.randn(rows, columns, dtype=dtype).requires_grad_()


def first(product: Function) -> Function:
    def gradients(a: Any, b: Any, c: Any) -> Any:
        y = product(a, b, c)
        return [y.detach(), *torch.autograd.grad(y.abs().square().sum(), (a, b))]

    return gradients


def second(product: Function) -> Function:
    def gradients(a: Any, b: Any, c: Any) -> Any:
        y = product(a, b, c)
        g = torch.autograd.grad(y.tanh().square().sum(), (a, b), create_graph=True)
        roots = (g[0].sin() * 2).sum() + g[1].cos().sum()
        return [*(each.detach() for each in g), *torch.autograd.grad(roots, (a, b))]

    return gradients


def broken(product: Function) -> Function:
    def gradients(a: Any, b: Any, c: Any) -> Any:
        y = product(a, b, c)
        float(y.detach().abs().sum())  # ends the graph
        return [y.detach(), *torch.autograd.grad((y * y).abs().sum(), (a, b))]

    return gradients


# Roots of complex gradients are not real: no second ones.
FORMS = [
    pytest.param(form, dtype, id=f"{form.__name__}-{str(dtype).removeprefix('torch.')}")
    for form in (first, second, broken)
    for dtype in (torch.float64, torch.complex128)
    if form is not second or dtype is torch.float64
]


@pytest.mark.parametrize(("form", "dtype"), FORMS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_gradients_of_products(product: str, form: Function, dtype: torch.dtype) -> None:
    function = form(PRODUCTS[product])
    for a, b in itertools.product(("contiguous", "transposed", "strided"), repeat=2):
        compiled = tatara.compile(function)
        operands = matrix(5, 7, a, dtype), matrix(7, 3, b, dtype), matrix(5, 3, "contiguous", dtype)
        for _ in range(2):
            same(compiled(*operands), function(*operands))
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize(
    "equation",
    [
        "ij,jk->ik",
        "ij,jk->ki",
        "bij,bjk->bki",
        "bij,kj->kbi",
        "bij,bkj->ibk",
        "ijl,jk->kil",
        "ijl,jk->ikl",
        "ijl,jkm->kmil",
    ],
)
def test_results_of_einsum(equation: str) -> None:
    sizes = dict(zip("bijklm", (2, 5, 7, 3, 4, 6), strict=True))
    first, second = equation.split("->")[0].split(",")
    a, b = (torch.randn([sizes[each] for each in labels]) for labels in (first, second))

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum(equation, a, b)

    compiled = tatara.compile(function)
    for _ in range(2):
        same([compiled(a, b)], [function(a, b)])


BLOCKS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "transposed": (lambda x: x.mT.sin(), (4, 6)),
    "permuted": (lambda x: (x.permute(2, 0, 1) * 2).tanh(), (3, 4, 5)),
    "channels last": (lambda x: x.contiguous(memory_format=torch.channels_last).exp(), (2, 3, 4, 5)),
    "one channel": (lambda x: x.contiguous(memory_format=torch.channels_last).exp(), (2, 1, 4, 5)),
    "product": (lambda x: (x @ x.mT).mT.sin(), (4, 6)),
    "contiguous": (lambda x: x.mT.contiguous().sin(), (4, 6)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_with_results_of_other_layouts(name: str, dynamic: bool) -> None:
    """The gradient of a block's result comes in its layout, contiguous, or spread out from one number."""
    block, sizes = BLOCKS[name]
    compiled = tatara.compile(block, dynamic=dynamic)
    ends: list[Function] = [
        lambda y: y.sum(),
        lambda y: y.square().sum(),
        lambda y: (y * torch.arange(float(y.numel()), dtype=y.dtype).reshape(y.shape)).sum(),
        lambda y: y.flatten().cumsum(0).square().sum(),
    ]
    for grown in (0, 1, 2):
        shape = [size + grown * (size > 1) for size in sizes]
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for at, end in enumerate(ends):
            ours, theirs = ([*torch.autograd.grad(end(f(x)), x)] for f in (compiled, block))
            torch.testing.assert_close(ours, theirs)
            if at < 2:  # a contiguous gradient of a result that is not would keep its layout in eager
                assert ours[0].stride() == theirs[0].stride()
            (g,) = torch.autograd.grad(end(compiled(x)), x, create_graph=True)
            (h,) = torch.autograd.grad(end(block(x)), x, create_graph=True)
            if g.requires_grad:
                ours, theirs = (torch.autograd.grad(each.square().sum(), x) for each in (g, h))
                torch.testing.assert_close(ours, theirs)
        y, z = compiled(x), block(x)
        examples = torch.randn(3, *y.shape, dtype=y.dtype)
        ours, theirs = (torch.autograd.grad(each, x, examples, is_grads_batched=True) for each in (y, z))
        torch.testing.assert_close(ours, theirs)
    assert tatara.stats()["fallbacks"] == 0
