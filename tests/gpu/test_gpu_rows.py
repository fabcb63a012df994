"""Long rows in one walk, and rows that share what they read, on an NVIDIA GPU against eager. Skipped without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the ecosystem's name
from test_gpu_functions import check, randn

import tatara

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SPECIAL = [
    (0, slice(None), float("-inf")),
    (1, slice(5, None), float("-inf")),
    (2, slice(7, 8), float("inf")),
    (3, slice(0, 1), float("nan")),
    (4, slice(-1, None), float("inf")),
    (5, slice(-1, None), float("nan")),
    (6, slice(None), torch.finfo(torch.float32).min),
    (7, slice(100, 200), 80.0),
    (8, slice(0, -1), float("-inf")),
]


@pytest.mark.parametrize("columns", [1000, 20000, 32000, 32001, 50257, 128256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [3, 500, 5000])
def test_losses_of_long_rows(rows: int, dtype: torch.dtype, columns: int) -> None:
    if rows * columns > (2**28 if dtype != torch.float64 else 2**24):
        pytest.skip("large")
    x, target = randn(rows, columns, dtype=dtype) * 3, torch.randint(0, columns, (rows,), device="cuda")
    functions = [
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        lambda x, t: F.cross_entropy(x, t, ignore_index=5),
        lambda x, t: torch.logsumexp(x, -1),
        lambda x, t: torch.log_softmax(x, -1)[:, 3],
    ]
    for function in functions:
        if dtype == torch.float64:  # where eager's kernels on a GPU are as exact as in float32
            expected = function(x.cpu(), target.cpu())
            torch.testing.assert_close(tatara_of(function)(x, target).cpu(), expected, rtol=1e-12, atol=1e-12)
        else:
            check(function, x, target, loose=2)


@pytest.mark.parametrize("columns", [1000, 20000, 32001, 65536])
def test_rows_that_are_walked_again(columns: int) -> None:
    x, target = randn(300, columns), torch.randint(0, columns, (300,), device="cuda")
    check(lambda x: torch.softmax(x, -1), x)
    check(lambda x: torch.log_softmax(x, -1), x)
    check(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), x, target)


def test_softmax_over_columns() -> None:
    check(lambda x: torch.log_softmax(x, 0)[5], randn(20000, 70))
    check(lambda x: torch.log_softmax(x, 1)[:, 5], randn(4, 20000, 70))


@pytest.mark.parametrize("function", [lambda x: torch.logsumexp(x, -1), lambda x: torch.log_softmax(x, -1)[:, 0]])
@pytest.mark.parametrize("columns", [20000, 32001, 70000])
@pytest.mark.parametrize("rows", [9, 6000])
def test_infinities_and_nan_in_long_rows(rows: int, columns: int, function: Callable[..., Any]) -> None:
    x = randn(rows, columns)
    for row, place, value in SPECIAL:
        x[row, place] = value
    expected, actual = function(x), tatara_of(function)(x)
    torch.testing.assert_close(actual, expected, equal_nan=True)


def tatara_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """It past the first call, which eager may answer."""
    compiled = tatara.compile(function)

    def second(*operands: torch.Tensor) -> Any:
        compiled(*operands)
        return compiled(*operands)

    return second


def test_gradients_of_long_rows() -> None:
    x, target = randn(2000, 50257), torch.randint(0, 50257, (2000,), device="cuda")

    def gradient(f: Callable[..., Any]) -> torch.Tensor:
        own = x.clone().requires_grad_()
        f(own, target).backward()
        assert own.grad is not None
        return own.grad

    expected = gradient(F.cross_entropy)
    torch.testing.assert_close(gradient(tatara_of(F.cross_entropy)), expected, rtol=1e-4, atol=1e-8)


def cross(x: torch.Tensor) -> torch.Tensor:
    return 0.2 * (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int64, torch.complex64])
@pytest.mark.parametrize("sizes", [(9, 10), (3001, 2050), (4096, 1026), (2049, 2049), (5003, 1028)])
def test_stencils(dtype: torch.dtype, sizes: tuple[int, int]) -> None:
    x = (randn(*sizes) * 10).to(dtype)
    if dtype != torch.int64:
        check(cross, x, kernels=1)
    check(lambda x: x[2:, :] - 2 * x[1:-1, :] + x[:-2, :], x, kernels=1)
    check(lambda x: x[2:, 1:] - x[1:-1, 1:] + x[:-2, :-1], x, kernels=1)


def test_stencils_in_three_dims() -> None:
    x = randn(130, 200, 260)
    inner = (slice(1, -1),) * 3

    def laplace(x: torch.Tensor) -> torch.Tensor:
        total = -6 * x[inner]
        for dim in range(3):
            for step in (slice(None, -2), slice(2, None)):
                total = total + x[tuple(step if d == dim else slice(1, -1) for d in range(3))]
        return total

    check(laplace, x, kernels=1)
    check(lambda x: x.unfold(1, 3, 1).sum(-1), x)


def test_steps_of_a_stencil() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[1:-1, 1:-1] += 0.1 * cross(x) + y
        return x * 2

    x, y = randn(2050, 2050), randn(2048, 2048)
    first, second = x.clone(), x.clone()
    compiled = tatara.compile(step)
    for _ in range(3):
        torch.testing.assert_close(compiled(first, y), step(second, y))
        torch.testing.assert_close(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sums_of_many_long_rows(dtype: torch.dtype) -> None:
    x = randn(5000, 20000, dtype=dtype)
    check(lambda x: x.sum(-1), x, loose=20)
    check(lambda x: x.argmax(-1), x)
    check(lambda x: x.float().var(-1), x, loose=20)
