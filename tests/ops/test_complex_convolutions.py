"""Convolutions of complex numbers, and what goes with them: padding by complex numbers, powers in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

CONVOLUTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...], int]] = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=1), (2, 4, 9), (6, 4, 3), 6),
    "strided": (lambda x, w, b: F.conv2d(x, w, b, stride=2), (2, 4, 9, 8), (6, 4, 3, 2), 6),
    "dilated": (lambda x, w, b: F.conv2d(x, w, b, dilation=2), (2, 4, 9, 8), (6, 4, 3, 2), 6),
    "groups": (lambda x, w, b: F.conv2d(x, w, b, groups=2, padding="same"), (2, 4, 9, 8), (6, 2, 3, 3), 6),
    "one image": (lambda x, w, b: F.conv2d(x, w, b), (4, 9, 8), (6, 4, 3, 3), 6),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b), (1, 2, 5, 5, 5), (3, 2, 2, 2, 2), 3),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), (2, 4, 5, 6), (4, 3, 3, 3), 3),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, dtype: torch.dtype, bias: bool) -> None:
    function, image, weight, filters = CONVOLUTIONS[name]
    operands = [torch.randn(image, dtype=dtype), torch.randn(weight, dtype=dtype)]
    operands.append(torch.randn(filters, dtype=dtype))
    if not bias:
        operands[2] = torch.zeros(0)

    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return function(x, w, b if bias else None)

    compiled = tatara.compile(program)
    for _ in range(2):
        with torch.no_grad():
            same(compiled(*operands), program(*operands), rtol=1e-4, atol=1e-4)
    sides: list[list[Any]] = []
    for run in (program, compiled):
        leaves = [t.clone().requires_grad_(t.numel() > 0) for t in operands]
        run(*leaves).abs().sum().backward()
        sides.append([t.grad for t in leaves if t.numel() > 0])
    for theirs, ours in zip(*sides, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_padding_by_a_complex_number(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.constant_pad_nd(x, (1, 2), 1.5 - 2j) * 2

    compiled = tatara.compile(program)
    x = torch.randn(3, 4, dtype=dtype)
    for _ in range(2):
        same(compiled(x), program(x))
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("base", [torch.float32, torch.int64, torch.complex64])
@pytest.mark.parametrize("exponent", [2, 0.5, 1.5j, torch.float32, torch.complex64])
def test_float_power(base: torch.dtype, exponent: Any) -> None:
    def of(dtype: torch.dtype) -> torch.Tensor:
        return torch.randint(1, 5, (3, 4)) if dtype == torch.int64 else torch.rand(3, 4).add(1).to(dtype)

    x = of(base)
    y = of(exponent) if isinstance(exponent, torch.dtype) else exponent

    def program(x: torch.Tensor, y: Any) -> torch.Tensor:
        return torch.float_power(x, y)

    compiled = tatara.compile(program)
    for _ in range(2):
        same(compiled(x, y), program(x, y))
    if x.dtype == torch.int64:
        return
    sides = []
    for run in (program, compiled):
        leaf = x.clone().requires_grad_()
        run(leaf, y).abs().sum().backward()
        sides.append(leaf.grad)
    torch.testing.assert_close(sides[1], sides[0])
    assert tatara.stats()["fallbacks"] == 0
