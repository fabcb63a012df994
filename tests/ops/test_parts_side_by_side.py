"""Parts that are joined along a short dim (quaternions, rotations), which a kernel on a CPU computes side by side, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


def _quaternions(a: Tensor, b: Tensor) -> Tensor:
    w, x, y, z = a.unbind(-1)
    s, t, u, v = b.unbind(-1)
    parts = [w * s - x * t - y * u - z * v, w * t + x * s + y * v - z * u]
    parts += [w * u - x * v + y * s + z * t, w * v + x * u - y * t + z * s]
    return torch.stack(parts, -1)


def _rotation(a: Tensor, b: Tensor) -> Tensor:
    c, s = a[..., 0].cos(), b[..., 0].sin()
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    return torch.stack([c, -s, zero, s, c, zero, zero, zero, one], -1).reshape(*c.shape, 3, 3)


def _matrix(a: Tensor, b: Tensor) -> Tensor:
    w, x, y, z = (a + b).unbind(-1)
    rows = [[1 - y * y, x * y, z * w], [w + x, z, x - z], [y, y * w, w - 2]]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def _into(a: Tensor, b: Tensor) -> Tensor:
    a.copy_(torch.stack([a[..., 1], -a[..., 0], a[..., 3] * b[..., 0], a[..., 2]], -1))
    return a * 2


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "quaternions": _quaternions,
    "cross": lambda a, b: torch.stack(
        [a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1], a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2]], -1
    ),
    "rotation": _rotation,
    "rotation scaled": lambda a, b: _rotation(a, b) * a[..., 1, None, None] + 1,
    "matrix": _matrix,
    "several stores": lambda a, b: (_quaternions(a, b), _quaternions(a, b) * 2, a + b),
    "unequal parts": lambda a, b: torch.cat([a[..., :1] * 2, b[..., 1:] + 1, a[..., 2:3] - b[..., :1]], -1),
    "summed": lambda a, b: _quaternions(a, b).sum(-1),
    "normed": lambda a, b: torch.nn.functional.normalize(_quaternions(a, b), dim=-1),
    "turned": lambda a, b: _quaternions(a, b).transpose(0, -1).contiguous(),
    "padded": lambda a, b: torch.nn.functional.pad(a * b, (1, 2)) * 2,
    "rows joined": lambda a, b: torch.cat([a * 2, b - 1], 0),
    "chosen": lambda a, b: torch.where(torch.arange(4) > 1, a, b * 2),
    "into an operand": _into,
    "points": lambda a, b: torch.stack([a.sum(-1), b.prod(-1), a[..., 0]], -1),
}
SIZES = [(1,), (2,), (7,), (8,), (33,), (1000,), (3, 5), (2, 40), (70, 3), (2, 3, 20)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, sizes: tuple[int, ...]) -> None:
    for dtype in (torch.float64, torch.float32):
        tatara.reset()
        compiled = tatara.compile(PROGRAMS[name])
        for _ in range(3):
            a, b = torch.randn(*sizes, 4, dtype=dtype), torch.randn(*sizes, 4, dtype=dtype)
            mine = a.clone(), b.clone()
            same(compiled(*mine), PROGRAMS[name](a, b), rtol=1e-5, atol=1e-5)
            same(mine, (a, b))


@pytest.mark.parametrize("name", ["quaternions", "cross", "unequal parts"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.complex64], ids=str)
def test_other_numbers(name: str, dtype: torch.dtype) -> None:
    compiled = tatara.compile(PROGRAMS[name])
    for _ in range(3):
        a, b = (torch.randn(50, 4) * 8).to(dtype), (torch.randn(50, 4) * 8).to(dtype)
        same(compiled(a, b), PROGRAMS[name](a, b), rtol=2e-2, atol=1)


@pytest.mark.parametrize("name", ["quaternions", "rotation", "matrix", "several stores", "normed"])
def test_gradients(name: str) -> None:
    compiled = tatara.compile(PROGRAMS[name])
    for _ in range(3):
        a, b, found = torch.randn(40, 4, dtype=torch.float64), torch.randn(40, 4, dtype=torch.float64), []
        for function in (PROGRAMS[name], compiled):
            leaves = a.clone().requires_grad_(), b.clone().requires_grad_()
            results = function(*leaves)
            sum(each.sin().sum() for each in (results if isinstance(results, tuple) else (results,))).backward()
            found.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", ["quaternions", "rotation", "matrix"])
def test_lengths_that_vary(name: str) -> None:
    compiled = tatara.compile(PROGRAMS[name])
    for n in (9, 30, 4, 1, 100, 0, 17):
        a, b = torch.randn(n, 4, dtype=torch.float64), torch.randn(n, 4, dtype=torch.float64)
        torch.testing.assert_close(compiled(a, b), PROGRAMS[name](a, b))


def test_one_kernel_and_no_choice() -> None:
    report = tatara.explain(_quaternions)(torch.randn(1000, 4), torch.randn(1000, 4))
    (kernel,) = report.kernels
    assert "select" not in kernel.loops and "vector" in kernel.loops
    assert not report.host_calls
    report = tatara.explain(_rotation)(torch.randn(1000, 4), torch.randn(1000, 4))
    assert not report.host_calls
    assert not any("select" in kernel.loops for kernel in report.kernels)
