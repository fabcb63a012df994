"""Complex tensors through the whole pipeline: one native kernel, values of eager (bit for bit where it matters)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

DTYPES = [torch.complex64, torch.complex128]
EDGE = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 1e30, 1e-30, 1e38, -1e-42]


def check(fn: Callable[..., Any], *args: Any, exact: bool = False, kernels: int = 1) -> None:
    expected = fn(*args)
    got = tatara.compile(fn, fullgraph=True)(*args)
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
    same(got, expected, equal_nan=True, **tolerance)
    report = tatara.explain(fn)(*args)
    assert len(report.kernels) == kernels, str(report)
    assert len(report.host_calls) == 0, str(report)


def edges(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    z = torch.tensor([complex(a, b) for a, b in itertools.product(EDGE, EDGE)], dtype=dtype)
    return z.repeat_interleave(z.numel()), z.repeat(z.numel())


ONE = {
    "negative and sums": lambda a, b: -(a + b - a * 2),
    "alpha": lambda a, b: torch.add(a, b, alpha=2 + 1j),
    "numbers": lambda a, b: a * (1.5 - 2j) + 1,
    "select": lambda a, b: torch.where(a.real > 0, a, b * 2),
    "conjugate": lambda a, b: a.conj_physical() * b,
    "parts": lambda a, b: a.real + b.imag * 2,
    "magnitude": lambda a, b: (a * b).abs(),
    "functions": lambda a, b: a.exp() + b.log() * a.sqrt(),
    "powers": lambda a, b: a**2 + b**3,
    "power": lambda a, b: a**b,
    "logic": lambda a, b: torch.logical_and(a, b),
    "other width": lambda a, b: a.to(torch.complex64 if a.dtype == torch.complex128 else torch.complex128) * 2,
    "from integers": lambda a, b: torch.arange(50).to(a.dtype) * 2j,
    "pairs": lambda a, b: torch.view_as_real(a * 2) + 1,
    "sum": lambda a, b: (a * b).sum(),
    "mean": lambda a, b: (a * b).mean(),
    "product": lambda a, b: a[:20].prod(),
    "scan": lambda a, b: a.cumsum(0),
    "lookup": lambda a, b: a[torch.arange(0, 1003, 7)] * b[:144],
    "join": lambda a, b: torch.cat([a * 2, b]),
    "padding": lambda a, b: torch.nn.functional.pad(a * b, (3, 4)),
}
MATRIX = {
    "sum of columns": lambda m: m.sum(0),
    "sum of rows": lambda m: m.sum(1),
    "product of columns": lambda m: m[:5].prod(0),
    "product of rows": lambda m: m[:, :7].prod(1),
    "transposed": lambda m: m.t() * 2 + 1,
    "transposed sum": lambda m: m[:, :37] + m[:, :37].t(),
    "backwards": lambda m: m.flip(1) * 2,
    "strided": lambda m: m[:, ::3] * 2,
    "triangle": lambda m: m.tril() * 2,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ONE)
def test_vectors(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    check(ONE[name], torch.randn(1003, dtype=dtype), torch.randn(1003, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MATRIX)
def test_matrices(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    check(MATRIX[name], torch.randn(37, 53, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_edges(dtype: torch.dtype) -> None:
    x, y = edges(dtype)
    check(lambda a, b: a * b, x, y, exact=True)
    check(lambda a, b: a / b, x, y, exact=True)
    check(lambda a, b: a == b, x, y)
    check(lambda a, b: a != b, x, y)
    check(lambda a: a.abs(), x)
    check(lambda a: a.to(torch.bool), x)
    check(lambda a: a.log(), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_magnitudes_of_all_scales(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    top = 38 if dtype == torch.complex64 else 307
    z = torch.cat([torch.randn(100, dtype=dtype) * 10.0**e for e in range(-top - 6, top + 1, top // 9)])
    got = tatara.compile(lambda a: a.abs(), fullgraph=True)(z)
    exact = torch.hypot(z.real.double(), z.imag.double())
    scale = exact if dtype == torch.complex64 else z.abs()
    torch.testing.assert_close(got, scale.to(got.dtype), rtol=2e-7 if dtype == torch.complex64 else 4e-16, atol=2e-45)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quotients(dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    check(lambda a, b: a / b, torch.randn(999, dtype=dtype), torch.randn(999, dtype=dtype), exact=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes_by_index(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    a, b = torch.randn(103, dtype=dtype), torch.randn(77, dtype=dtype)
    check(lambda a, b: a.index_add(0, torch.arange(77) % 10, b), a, b, kernels=2)


def test_mandelbrot() -> None:
    def mandelbrot(c: torch.Tensor) -> torch.Tensor:
        z = torch.zeros_like(c)
        count = torch.zeros(c.shape, dtype=torch.int64)
        for _ in range(12):
            z = torch.where(z.abs() < 2, z * z + c, z)
            count = count + (z.abs() < 2)
        return count

    re, im = torch.meshgrid(torch.linspace(-2, 0.5, 61), torch.linspace(-1, 1, 47), indexing="ij")
    check(mandelbrot, re + im * 1j)
