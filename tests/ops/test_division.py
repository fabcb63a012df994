"""Rounded division, remainders and shifts through the whole pipeline, as eager gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def check(fn: Callable[..., Any], *args: Any) -> None:
    expected = fn(*args)
    got = tatara.compile(fn, fullgraph=True)(*args)
    same(got, expected, rtol=0, atol=0, equal_nan=True)
    report = tatara.explain(fn)(*args)
    assert len(report.kernels) == 1 and not report.host_calls, str(report)


def values(dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    around = torch.arange(-40, 40) if info.min < 0 else torch.arange(0, 80)
    ends = torch.tensor([info.min, info.min + 1, info.max, info.max - 1])
    return torch.cat([around, ends]).to(dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 10, 100, -2, -3, -7])
def test_integers(dtype: torch.dtype, divisor: int) -> None:
    if divisor < 0 and dtype == torch.uint8:
        pytest.skip("a negative number has no uint8")
    x = values(dtype)
    check(lambda x: x // divisor, x)
    check(lambda x: x % divisor, x)
    check(lambda x: torch.fmod(x, divisor), x)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("amount", [0, 1, 3, 6])
def test_shifts(dtype: torch.dtype, amount: int) -> None:
    x = values(dtype)
    check(lambda x: x << amount, x)
    check(lambda x: x >> amount, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_floats(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.1, 3.0, -3.0, float("inf"), -float("inf"), float("nan"), 1e30])
    x = torch.cat([torch.randn(200) * 100, special.repeat_interleave(11)]).to(dtype)
    y = torch.cat([torch.randn(200), special.repeat(11)]).to(dtype)
    check(lambda x, y: x // y, x, y)
    check(lambda x, y: x % y, x, y)
    check(lambda x, y: torch.fmod(x, y), x, y)
    check(lambda x: x // 0.7, x)
    check(lambda x: x % -1.5, x)
