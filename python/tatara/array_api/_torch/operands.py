"""Operands on their way into torch: Python numbers, wide unsigned integers, axes."""

from __future__ import annotations

from typing import Any

import torch

from tatara.array_api._torch import types

_SIGN_BIT = -(2**63)


def number(value: types.Scalar, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A Python number as a tensor without dimensions."""
    if dtype is torch.uint64 and value >= 2**63:  # type: ignore[operator]
        return torch.full((), int(value) - 2**64, dtype=torch.int64, device=device).to(dtype)  # type: ignore[arg-type]
    if dtype in types.WIDE_UNSIGNED:
        return torch.full((), value, dtype=torch.int64, device=device).to(dtype)
    return torch.full((), value, dtype=dtype, device=device)


def together(x1: Any, x2: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Two operands as tensors of their common type. At least one is a tensor."""
    if isinstance(x1, torch.Tensor) and isinstance(x2, torch.Tensor) and x1.dtype is x2.dtype:
        return x1, x2
    if types.is_scalar(x2):
        dtype = types.with_scalar(x1.dtype, x2)
        return as_type(x1, dtype), number(x2, dtype, x1.device)
    if types.is_scalar(x1):
        dtype = types.with_scalar(x2.dtype, x1)
        return number(x1, dtype, x2.device), as_type(x2, dtype)
    dtype = types.promote(x1.dtype, x2.dtype)
    return as_type(x1, dtype), as_type(x2, dtype)


def as_type(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x if x.dtype is dtype else x.to(dtype)


def is_wide(x: torch.Tensor) -> bool:
    return x.dtype in types.WIDE_UNSIGNED


def bits(x: torch.Tensor) -> torch.Tensor:
    """A tensor for arithmetic modulo a power of two: int64 instead of a wide unsigned type. Back with `as_type`."""
    return x.to(torch.int64) if x.dtype in types.WIDE_UNSIGNED else x


def ordered(x: torch.Tensor) -> torch.Tensor:
    """A tensor that torch can compare and sort, whose elements are in the same order."""
    if x.dtype is torch.uint64:
        return x.to(torch.int64) ^ _SIGN_BIT
    if x.dtype is torch.bool:
        return x.to(torch.uint8)
    return bits(x)


def from_ordered(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The way back from `ordered`."""
    if dtype is torch.uint64:
        return (x ^ _SIGN_BIT).to(dtype)
    return as_type(x, dtype)


def computable(x1: Any, x2: Any) -> tuple[torch.Tensor, Any, torch.dtype]:
    """Two operands for torch's arithmetic, and the type of the result. The second stays a number where torch takes it so."""
    if isinstance(x1, torch.Tensor) and x1.dtype not in types.WIDE_UNSIGNED:
        if isinstance(x2, torch.Tensor):
            if x1.dtype is x2.dtype:
                return x1, x2, x1.dtype
        elif types.with_scalar(x1.dtype, x2) is x1.dtype:
            return x1, x2, x1.dtype
    a, b = together(x1, x2)
    return bits(a), bits(b), a.dtype


def comparable(x1: Any, x2: Any) -> tuple[torch.Tensor, Any]:
    """Two operands for torch's comparisons of order."""
    if isinstance(x1, torch.Tensor) and isinstance(x2, float) and x1.is_floating_point():
        return x1, x2
    a, b = together(x1, x2)
    return ordered(a), ordered(b)


def axes_of(x: torch.Tensor, axis: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """Axes as a tuple of numbers that are not negative; all of them for None."""
    if axis is None:
        return tuple(range(x.ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    return tuple([one_axis(each, x.ndim) for each in given])


def one_axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise IndexError(f"axis {axis} is out of range for {ndim} dimensions")
    return axis + ndim if axis < 0 else axis
