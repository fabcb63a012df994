"""Sorting and selection by rows on a GPU against eager: values bit by bit, indices, strides; which kernels run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def data(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    """With many equal elements, both zeros, infinities and NaN."""
    if dtype == torch.bool:
        return torch.rand(*sizes, device="cuda") > 0.5
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        wide = torch.randint(info.min, info.max, sizes, device="cuda", dtype=dtype)
        return torch.where(torch.rand(*sizes, device="cuda") < 0.3, wide // 16 * 16, wide)
    x = torch.randn(*sizes, device="cuda")
    x = torch.where(torch.rand(*sizes, device="cuda") < 0.3, x.round(), x)
    for value in (0.0, -0.0, float("nan"), float("inf"), -float("inf")):
        x = torch.where(torch.rand(*sizes, device="cuda") < 0.02, torch.full_like(x, value), x)
    return x.to(dtype)


def calls(function: Callable[..., Any], *inputs: Any) -> tuple[Any, int, int]:
    """The second call's result, and how many kernels and host operators it ran."""
    compiled = tatara.compile(function)
    compiled(*inputs)
    before = tatara.stats()
    result = compiled(*inputs)
    after = tatara.stats()
    assert after["fallbacks"] == before["fallbacks"]
    return (
        result,
        after["kernels_launched"] - before["kernels_launched"],
        after["host_calls"] - before["host_calls"],
    )


def bits(x: torch.Tensor) -> torch.Tensor:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x if x.dtype == torch.bool else x.view(whole)


def same(actual: Any, expected: Any) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (e.dtype, e.shape, e.stride())
        assert torch.equal(bits(a), bits(e))


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE, torch.bool], ids=str)
@pytest.mark.parametrize("columns", [1, 2, 5, 32, 100, 256, 1000, 1024, 1500, 4096])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dtype: torch.dtype, columns: int, descending: bool) -> None:
    x = data(77, columns, dtype=dtype)
    result, kernels, host = calls(lambda v: torch.sort(v, dim=-1, stable=True, descending=descending), x)
    same(result, torch.sort(x, dim=-1, stable=True, descending=descending))
    assert (kernels, host) == (1, 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("columns, k", [(1, 1), (40, 3), (1024, 8), (1000, 16), (3000, 100), (50257, 5), (300001, 1)])
@pytest.mark.parametrize("largest", [False, True])
def test_topk(dtype: torch.dtype, columns: int, k: int, largest: bool) -> None:
    x = data(33, columns, dtype=dtype)
    (values, indices), kernels, host = calls(lambda v: torch.topk(v, k, largest=largest), x)
    expected, order = torch.sort(x, dim=-1, stable=True, descending=largest)
    # Which of equal elements are taken is not defined; here it is the first ones.
    same((values, indices), (expected[:, :k].contiguous(), order[:, :k].contiguous()))
    assert (kernels, host) == (1, 0)


def test_views_and_fusion() -> None:
    x = data(8, 64, 200, dtype=torch.float32)
    result, kernels, host = calls(lambda v: torch.sort(v[:, 3:, 5:], dim=-1, stable=True), x)
    same(result, torch.sort(x[:, 3:, 5:], dim=-1, stable=True))
    assert (kernels, host) == (1, 0)
    result, kernels, host = calls(lambda v: torch.argsort(v * 2, dim=-1, stable=True) + 1, x)
    assert torch.equal(result, torch.argsort(x * 2, dim=-1, stable=True) + 1)
    assert host == 0
    picked, kernels, host = calls(lambda v: torch.sort(v, dim=-1, stable=True)[1], x)
    assert torch.equal(picked, torch.sort(x, dim=-1, stable=True)[1])
    assert (kernels, host) == (1, 0)


def test_left_to_the_host() -> None:
    for x, dim in ((data(64, 30, dtype=torch.float32), 0), (data(3, 5000, dtype=torch.float32), 1)):
        result, _, host = calls(lambda v, d=dim: torch.sort(v, dim=d, stable=True), x)
        same(result, torch.sort(x, dim=dim, stable=True))
        assert host == 1
    whole = data(64, 100, dtype=torch.int64)  # with equal elements, of which eager takes any
    result, _, host = calls(lambda v: torch.topk(v, 8), whole)
    same(result, torch.topk(whole, 8))
    assert host == 1
    empty = torch.empty(0, 16, device="cuda")
    result, _, _ = calls(lambda v: torch.sort(v, dim=-1), empty)
    same(result, torch.sort(empty, dim=-1))
