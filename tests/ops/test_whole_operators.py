"""Elementwise operators whose loops, derivative, batching and NumPy name are registered in one file, each with one row here:
every dtype, layouts, NaN and infinities, first and second derivative, forward mode, vmap, against eager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import numpy as np
import tatara
from results import same


@dataclass(frozen=True)
class Whole:
    fn: Callable[..., Any]
    operands: int
    # Where derivatives are compared.
    low: float
    high: float
    native: tuple[torch.dtype, ...]
    numpy: Callable[..., Any] | None = None


HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64)
WHOLE_NUMBERS = (torch.uint8, torch.int32, torch.int64)
OPERATORS = {
    "logaddexp": Whole(torch.logaddexp, 2, -3, 3, (*HALVES, *FLOATS), np.logaddexp),
    "logaddexp2": Whole(torch.logaddexp2, 2, -3, 3, (*HALVES, *FLOATS), np.logaddexp2),
    "mvlgamma": Whole(lambda x: torch.mvlgamma(x, 3), 1, 1.2, 6, (*WHOLE_NUMBERS, *HALVES, *FLOATS)),
    "erfcx": Whole(torch.special.erfcx, 1, -2, 6, (torch.bool, *WHOLE_NUMBERS, *FLOATS)),
}
DTYPES = (torch.bool, *WHOLE_NUMBERS, *HALVES, *FLOATS, torch.complex64)
each = pytest.mark.parametrize("name", OPERATORS)


def values(op: Whole, dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    span = op.high - op.low
    shapes = [torch.rand(5, 7, generator=g, dtype=torch.float64) * span + op.low for _ in range(op.operands)]
    return [x.abs().to(dtype) if not dtype.is_floating_point else x.to(dtype) for x in shapes]


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    return [x, x.t(), x[:, ::2], x[0], x[0, 0], x[:0], x[:, :1].expand(5, 4)]


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return type(error), str(error).splitlines()[0]


@each
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values(name: str, dtype: torch.dtype) -> None:
    op = OPERATORS[name]
    for args in zip(*(layouts(x) for x in values(op, dtype)), strict=True):
        fn = tatara.compile(op.fn)
        for _ in range(2):
            got, expected = outcome(fn, *args), outcome(op.fn, *args)
            if isinstance(expected, tuple):
                assert got == expected
                continue
            same(got, expected, equal_nan=True)
        if dtype in op.native and args[0].numel() > 0:
            assert not tatara.explain(op.fn)(*args).host_calls


@each
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(name: str, dtype: torch.dtype) -> None:
    op = OPERATORS[name]
    inf, tiny, huge = float("inf"), torch.finfo(dtype).tiny, torch.finfo(dtype).max
    special = [
        float("nan"),
        inf,
        -inf,
        0.0,
        -0.0,
        tiny,
        -tiny,
        huge,
        -huge,
        0.5,
        -0.5,
        1.0,
        -1.0,
        2.0,
        -2.0,
        30.0,
        -30.0,
        1e4,
    ]
    line = torch.tensor(special, dtype=dtype)
    args = [line] if op.operands == 1 else [line[:, None], line[None, :]]
    assert_close(tatara.compile(op.fn)(*args), op.fn(*args), equal_nan=True)
    dense = torch.linspace(-12, 60, 4001, dtype=dtype)
    args = [dense] if op.operands == 1 else [dense, dense.flip(0)]
    # Of exponentials: an error of half a unit in x^2 is one of x^2 half units in the result.
    assert_close(tatara.compile(op.fn)(*args), op.fn(*args), rtol=4e-5 if dtype == torch.float32 else 1e-13, atol=0)


@each
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_derivatives(name: str, dtype: torch.dtype) -> None:
    op = OPERATORS[name]

    def twice(*args: torch.Tensor) -> Any:
        y = op.fn(*args)
        first = torch.autograd.grad(y, args, torch.ones_like(y), create_graph=True)
        second = torch.autograd.grad(sum((g * (1 + i)).sum() for i, g in enumerate(first)), args)
        return y, *(g.detach() for g in first), *second

    for seed in range(2):
        args = [x.requires_grad_() for x in values(op, dtype, seed)]
        got, expected = tatara.compile(twice)(*args), twice(*args)
        for a, b in zip(got, expected, strict=True):
            assert_close(
                a, b, rtol=2e-4 if dtype == torch.float32 else 1e-8, atol=1e-5 if dtype == torch.float32 else 1e-9
            )
    if dtype == torch.float64:
        assert torch.autograd.gradcheck(tatara.compile(op.fn), [x.requires_grad_() for x in values(op, dtype, 3)])


@each
def test_transforms(name: str) -> None:
    op = OPERATORS[name]
    args = values(op, torch.float64)
    for dims in (0, 1):

        def batched(*args: torch.Tensor, dims: int = dims) -> Any:
            return torch.vmap(op.fn, in_dims=dims, out_dims=dims)(*args)

        assert_close(tatara.compile(batched)(*args), batched(*args))
        assert not tatara.explain(batched)(*args).host_calls

    def pushed(*args: torch.Tensor) -> Any:
        return torch.func.jvp(op.fn, args, tuple(torch.ones_like(x) for x in args))

    for a, b in zip(tatara.compile(pushed)(*args), pushed(*args), strict=True):
        assert_close(a, b)


@each
def test_numpy_name(name: str) -> None:
    op = OPERATORS[name]
    if op.numpy is None:
        pytest.skip("NumPy has none")
    args = [x.numpy() for x in values(op, torch.float64)]
    numpy = op.numpy

    def fn(*args: Any) -> Any:
        return numpy(*args)

    np.testing.assert_allclose(tatara.compile(fn)(*args), fn(*args), rtol=1e-12)
    assert not tatara.explain(fn)(*args).host_calls
