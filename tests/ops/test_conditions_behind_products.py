"""What follows a product asks where along its own dims an element is, where the loop over rows stands for several dims: conditions that
always hold are left out for each of the rows that are computed side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
SHAPES = [(4, 16), (2, 4), (3, 5), (7, 3), (1, 8), (5, 13), (2, 3, 4)]


def whole(d: Tensor) -> Tensor:
    return torch.slice_scatter(torch.zeros_like(d), d, -2, 0, d.shape[-2])


def twice(d: Tensor) -> Tensor:
    return torch.slice_scatter(torch.ones_like(d), whole(d).sin(), 0, 0, d.shape[0])


def some(d: Tensor) -> Tensor:
    return torch.slice_scatter(torch.zeros_like(d), d[..., 1:, :], -2, 0, d.shape[-2] - 1)


def first(d: Tensor) -> Tensor:
    return torch.select_scatter(d, torch.zeros_like(d[0]), 0, 0)


def where(d: Tensor) -> Tensor:
    return torch.where(torch.arange(d.shape[-2])[:, None] < 99, d, d * 0)


def padded(d: Tensor) -> Tensor:
    return F.pad(d, (0, 0, 0, 0)) + F.pad(d, (0, 0, 1, 0))[..., 1:, :]


AFTER: list[Callable[[Tensor], Tensor]] = [whole, twice, some, first, where, padded]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("columns", [40, 96])
@pytest.mark.parametrize("after", AFTER)
def test_conditions(shape: tuple[int, ...], columns: int, after: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(96, columns, dtype=torch.float64)

    def program(x: Tensor, z: Tensor) -> Tensor:
        return after((x @ weight).view(*shape, columns) + z)

    rows = torch.Size(shape).numel()
    x, z = torch.randn(rows, 96, dtype=torch.float64), torch.randn(*shape, columns, dtype=torch.float64)
    compiled = tatara.compile(program)
    for _ in range(3):
        same(compiled(x, z), program(x, z))


def gradients(call: Any, x: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(call(x).square().sum(), leaves))


def test_two_layers_that_slice_all_words() -> None:
    """The gradients of a sum of products, where both layers take all of the words by a slice."""
    torch.manual_seed(0)
    weights = [torch.randn(96, 96, dtype=torch.float64) / 10 for _ in range(6)]

    def layer(x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = torch.tanh(x @ q) + torch.sin(x @ k) + torch.cos(x @ v) + x
        return F.layer_norm(y, (96,))[:, :16]

    def program(x: Tensor) -> Tensor:
        return layer(layer(x, *weights[:3]), *weights[3:])[:, 0]

    x = torch.randn(4, 16, 96, dtype=torch.float64, requires_grad=True)
    compiled = tatara.compile(program)
    with counts() as grown:
        for _ in range(3):
            same(gradients(compiled, x, [x]), gradients(program, x, [x]))
    assert grown["graphs"] == 1
