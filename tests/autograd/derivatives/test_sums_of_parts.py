"""Gradients of parts of a tensor are one tensor where the parts don't meet, and kernels of a loop's turns are compiled once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


def grads(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    result = function(*leaves)
    torch.autograd.backward(result, torch.cos(torch.arange(result.numel()).reshape(result.shape)).to(result.dtype))
    return [x.grad for x in leaves]


def check(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> None:
    compiled = tatara.compile(function, fullgraph=True)
    expected = grads(function, inputs)
    for _ in range(3):
        same(grads(compiled, inputs), expected)
    assert tatara.stats()["fallbacks"] == 0


def reader(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that adds up parts of a [6, 8, 5] tensor: rows, slices with and without steps, parts of parts, the whole."""
    pick = random.Random(seed)
    steps: list[tuple[Any, ...]] = []
    for _ in range(pick.randrange(2, 14)):
        dim = pick.randrange(3)
        size = (6, 8, 5)[dim]
        start = pick.randrange(size)
        end = pick.randrange(start + 1, size + 1)
        kind = pick.choice(["row", "row", "slice", "slice", "from the end", "step", "inner", "whole"])
        steps.append((kind, dim, start, end, pick.uniform(-2, 2)))

    def read(x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(())
        for kind, dim, start, end, factor in steps:
            if kind == "row":
                part = x.select(dim, start)
            elif kind == "slice":
                part = x.narrow(dim, start, end - start)
            elif kind == "from the end":
                part = x.select(dim, -1)
            elif kind == "step":
                part = x.transpose(0, dim)[start::2]
            elif kind == "inner":
                part = x.select(dim, start)[1:3]
            else:
                part = x
            total = total + (part * factor).sin().sum()
        return total

    return read


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_parts_of_any_kind(seed: int, dtype: torch.dtype) -> None:
    check(reader(seed), [torch.linspace(-3, 3, 240, dtype=dtype).reshape(6, 8, 5)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex128])
@pytest.mark.parametrize("seed", range(4))
def test_other_dtypes(seed: int, dtype: torch.dtype) -> None:
    check(reader(seed), [torch.linspace(-1, 1, 240).to(dtype).reshape(6, 8, 5)])


def test_windows_that_meet() -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[i : i + 4].pow(2).sum() for i in range(13)])

    check(windows, [torch.linspace(-3, 3, 16, dtype=torch.float64)])


def test_second_derivatives() -> None:
    def curvature(x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        (g,) = torch.autograd.grad(sum((row.pow(3).sum() for row in x), torch.zeros(())), x, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), x)[0]

    compiled = tatara.compile(curvature)
    x = torch.linspace(-1, 1, 36).reshape(12, 3)
    expected = curvature(x.clone())
    for _ in range(3):
        same(compiled(x.clone()), expected)


def cells(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    results = []
    for row in x:
        h = torch.tanh(row @ w + h @ u)
        results.append(h)
    return torch.stack(results)


def inputs_of_cells(turns: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, dtype=torch.float64, generator=generator) / 4

    return [draw(turns, 4, 16), draw(4, 16), draw(16, 16), draw(16, 16)]


def test_turns_of_a_loop_share_their_code() -> None:
    """The gradient of what a loop reads takes each element once, and the number of kernels' codes does not grow with the turns."""
    counted = []
    for turns in (100, 200):
        inputs = inputs_of_cells(turns)
        compiled = tatara.compile(cells, fullgraph=True)
        expected = grads(cells, inputs)
        with tatara.kernel_history() as history:
            for _ in range(3):
                same(grads(compiled, inputs), expected)
        codes = {event.loops for event in history.launches}
        with tatara.kernel_history() as history:
            grads(compiled, inputs)
        counted.append((len(codes), sum(event.bytes for event in history.launches)))
    (kernels, before), (more_kernels, after) = counted
    assert more_kernels <= kernels + 8
    # Twice the turns move twice the bytes, and no more: the gradient of x is written in parts.
    assert after < 2.3 * before
