"""On a GPU: scatters of every kind and type, where many threads meet at one element and where none do."""

from __future__ import annotations

import pytest
import torch
from graph_counts import counted

import tatara

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WHOLE = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
ROWS = {"one row": 1, "few rows": 7, "many rows": 5000}  # of the result; 5000 are added


def values(dtype: torch.dtype, *sizes: int, kind: str) -> torch.Tensor:
    if dtype not in FLOATS:
        return torch.randint(-5 if dtype != torch.uint8 else 0, 6, sizes, device="cuda").to(dtype)
    x = torch.randn(*sizes, device="cuda", dtype=torch.float64)
    # Products of 5000 factors that stay near 1.
    return (torch.exp(x * 1e-4) if kind == "prod" else x).to(dtype)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("kind", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", FLOATS + WHOLE)
def test_reduce(dtype: torch.dtype, rows: str, kind: str, include_self: bool) -> None:
    def reduced(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, index, source, kind, include_self=include_self)

    torch.manual_seed(0)
    n = ROWS[rows]
    x, source = values(dtype, n, 3, kind=kind), values(dtype, 5000, 3, kind=kind)
    index = torch.randint(n, (5000, 3), device="cuda")
    compiled = tatara.compile(reduced)
    with counted():
        compiled(x, index, source)  # by eager
        got = compiled(x, index, source)
    if dtype in FLOATS and kind in ("sum", "prod", "mean"):
        # Eager rounds each step of a half type, so the whole is compared in float64.
        expected = reduced(x.double(), index, source.double()).to(dtype)
        tolerance = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 2e-4, torch.float64: 1e-10}[dtype]
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    else:
        expected = reduced(x, index, source)
        assert torch.equal(got, expected)
    assert got.stride() == expected.stride()


@pytest.mark.parametrize("kind", ["amax", "amin"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinities(dtype: torch.dtype, kind: str) -> None:
    def reduced(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, index, source, kind)

    torch.manual_seed(0)
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -1.0], device="cuda").to(dtype)
    x = torch.cat([special, torch.zeros(100, device="cuda").to(dtype)])
    source = special[torch.randint(1, 5, (1000,), device="cuda")]
    source[7] = float("nan")
    index = torch.randint(105, (1000,), device="cuda")
    compiled = tatara.compile(reduced)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, index, source), reduced(x, index, source), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.bfloat16, torch.uint8])
def test_adds(dtype: torch.dtype) -> None:
    def added(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.index_add(0, index, source), torch.index_put(x, (index,), source, accumulate=True)

    torch.manual_seed(0)
    # Much larger than what is added, so that narrow types are not widened first.
    source = torch.randint(0, 3, (40, 3), device="cuda").to(dtype)
    x, index = torch.zeros(5000, 3, device="cuda", dtype=dtype), torch.randint(5, (40,), device="cuda")
    compiled = tatara.compile(added)
    with counted():
        for _ in range(2):
            for got, expected in zip(compiled(x, index, source), added(x, index, source), strict=True):
                torch.testing.assert_close(got, expected)
