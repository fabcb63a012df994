"""Reductions over a dimension that is not the innermost one, whose results are needed along it: threads of a block share columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the ecosystem's name
from test_gpu_functions import check, compare, randn
from torch.utils._pytree import tree_map

import tatara

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SHAPES = [(2, 640, 16, 16), (3, 100, 7, 7), (1, 17, 5), (2, 1000, 3), (64, 24, 33), (1, 5000, 40), (500, 64, 30, 8)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def _rms(x: torch.Tensor) -> torch.Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * (wide.square().mean(1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x.movedim(1, -1), (x.shape[1],)).movedim(-1, 1)


def _variance(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    variance, mean = torch.var_mean(x, 1, keepdim=True)
    return (x - mean) * variance.rsqrt(), variance, mean


def _extremes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    low, high = x.aminmax(dim=1, keepdim=True)
    return (x - low) / (high - low), low, high.squeeze(1) * 2


def _two_walks(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred / centred.abs().sum(1, keepdim=True)


def _first_place(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    best = x.argmax(1, keepdim=True)
    return best, torch.arange(x.shape[1], device=x.device).view(-1, *[1] * (x.dim() - 2)) == best


FUNCTIONS = {
    "rms": _rms,
    "layer norm": _norm,
    "softmax": lambda x: torch.softmax(x, 1),
    "log softmax": lambda x: torch.log_softmax(x * 2, 1) + 1,
    "variance": _variance,
    "extremes": _extremes,
    "two walks": _two_walks,
    "normalize": lambda x: F.normalize(x, dim=1),
    "group norm": lambda x: F.group_norm(x, 1),
    "first place": _first_place,
    "place in its column": lambda x: (x > x.mean(1, keepdim=True)) & (x < x.amax(1, keepdim=True)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_columns(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for shape in SHAPES:
        x = randn(*shape, dtype=dtype)
        other = x.mT if x.dim() == 3 else x.to(memory_format=torch.channels_last)
        for given in (x, other):
            if dtype == torch.float64:  # where eager's kernels on a GPU are as exact as in float32
                expected, actual = FUNCTIONS[name](given.cpu()), tatara.compile(FUNCTIONS[name])(given)
                torch.testing.assert_close(tree_map(torch.Tensor.cpu, actual), expected, rtol=1e-11, atol=1e-11)
            else:
                check(FUNCTIONS[name], given, loose=4)


@pytest.mark.parametrize("function", [_rms, lambda x: torch.softmax(x, 1), _variance])
def test_sizes_that_vary(function: Callable[..., Any]) -> None:
    compiled = tatara.compile(function, dynamic=True)
    for shape in [(2, 640, 16, 16), (3, 100, 7, 7), (5, 33, 1, 9), (2, 3000, 3, 4), (1, 17, 40, 40)]:
        x = randn(*shape)
        compare(compiled(x), function(x), 4)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_whole_numbers(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (4, 300, 12, 2), device="cuda").to(dtype)
    check(lambda v: v.long() - v.sum(1, keepdim=True), x)
    check(lambda v: v.any(1, keepdim=True) & ~v.bool(), x)
    check(lambda v: (v.long() + 1) * (v.long() * 2 - 1).prod(1, keepdim=True), x)


def test_complex_numbers() -> None:
    x = randn(4, 300, 24, dtype=torch.complex64)
    check(lambda v: v / v.sum(1, keepdim=True), x, loose=10)
    check(lambda v: v - v.mean(1, keepdim=True), x, loose=4)


def test_infinite_and_missing_numbers() -> None:
    x = randn(3, 200, 12, 2)
    x[0, 5, 3] = float("inf")
    x[1, 7, 2] = float("nan")
    x[2, :, 1] = float("-inf")
    for function in (lambda v: torch.softmax(v, 1), lambda v: v - v.amax(1, keepdim=True), _first_place):
        torch.testing.assert_close(tatara.compile(function)(x), function(x), equal_nan=True)


def test_gradients() -> None:
    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = _norm(x) * weight.view(-1, 1, 1) + _rms(x) + torch.softmax(x, 1)
        return (y * y.detach().cos()).sum()

    for shape in [(2, 640, 16, 16), (3, 100, 7, 7)]:
        x, weight = randn(*shape).requires_grad_(), randn(shape[1]).requires_grad_()
        expected = torch.autograd.grad(loss(x, weight), (x, weight))
        actual = torch.autograd.grad(tatara.compile(loss)(x, weight), (x, weight))
        compare([g.contiguous() for g in actual], [g.contiguous() for g in expected], 10)


def test_sums_into_few_places() -> None:
    x, index = randn(4, 600, 20), torch.randint(0, 30, (600,), device="cuda")

    def scattered(v: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4, 30, 20, device=v.device).index_add(1, i, v - v.mean(1, keepdim=True))

    check(scattered, x, index, loose=10)
