"""Sums, products, extremes, moments, and other reductions along axes."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from tatara.array_api._torch import types
from tatara.array_api._torch.operands import as_type, axes_of, bits, from_ordered, one_axis, ordered

Axes: TypeAlias = int | tuple[int, ...] | None


def _along(
    function: Callable[..., torch.Tensor], x: torch.Tensor, axis: Axes, keepdims: builtins.bool, **options: Any
) -> torch.Tensor:
    # torch takes no axes for all of them; here it is none of them. So is a tensor without dimensions.
    axes = axes_of(x, axis)
    if not axes:
        return function(x.unsqueeze(-1), dim=(-1,), keepdim=False, **options)
    return function(x, dim=axes, keepdim=keepdims, **options)


def sum(
    x: torch.Tensor, /, *, axis: Axes = None, dtype: torch.dtype | None = None, keepdims: builtins.bool = False
) -> torch.Tensor:
    """Small integers are added as the widest integers of their sign."""
    goal = types.accumulator(x.dtype) if dtype is None else dtype
    own = torch.int64 if goal in types.UNSIGNED else goal
    return as_type(_along(torch.sum, as_type(x, own), axis, keepdims, dtype=own), goal)


def prod(
    x: torch.Tensor, /, *, axis: Axes = None, dtype: torch.dtype | None = None, keepdims: builtins.bool = False
) -> torch.Tensor:
    """Small integers are multiplied as the widest integers of their sign."""
    goal = types.accumulator(x.dtype) if dtype is None else dtype
    own = torch.int64 if goal in types.UNSIGNED else goal
    result = as_type(x, own)
    axes = axes_of(x, axis)
    # torch has products along one axis only. From the last, so that the others stay where they are.
    for each in sorted(axes, reverse=True):
        result = torch.prod(result, dim=each, keepdim=keepdims, dtype=own)
    return as_type(result if axes else result.clone(), goal)


def max(x: torch.Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return from_ordered(_along(torch.amax, ordered(x), axis, keepdims), x.dtype)


def min(x: torch.Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return from_ordered(_along(torch.amin, ordered(x), axis, keepdims), x.dtype)


def _of_floats(x: torch.Tensor) -> torch.Tensor:
    return x if types.is_floating(x.dtype) else x.to(torch.get_default_dtype())


def mean(x: torch.Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return _along(torch.mean, _of_floats(x), axis, keepdims)


def var(
    x: torch.Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> torch.Tensor:
    return _along(torch.var, _of_floats(x), axis, keepdims, correction=correction)


def std(
    x: torch.Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: builtins.bool = False
) -> torch.Tensor:
    return _along(torch.std, _of_floats(x), axis, keepdims, correction=correction)


def cumulative_sum(
    x: torch.Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: torch.dtype | None = None,
    include_initial: builtins.bool = False,
) -> torch.Tensor:
    return _cumulative(torch.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: torch.Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: torch.dtype | None = None,
    include_initial: builtins.bool = False,
) -> torch.Tensor:
    return _cumulative(torch.cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(
    function: Callable[..., torch.Tensor],
    initial: int,
    x: torch.Tensor,
    axis: int | None,
    dtype: torch.dtype | None,
    include_initial: builtins.bool,
) -> torch.Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"an axis is wanted for an array of {x.ndim} dimensions")
        axis = 0
    goal = types.accumulator(x.dtype) if dtype is None else dtype
    own = torch.int64 if goal in types.UNSIGNED else goal
    if x.ndim == 0:
        x = x.unsqueeze(0)
    axis = one_axis(axis, x.ndim)
    result = function(as_type(x, own), dim=axis, dtype=own)
    if include_initial:
        shape = list(x.shape)
        shape[axis] = 1
        result = torch.cat([torch.full(shape, initial, dtype=own, device=x.device), result], dim=axis)
    return as_type(result, goal)


def all(x: torch.Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return _along(torch.all, _truth(x), axis, keepdims)


def any(x: torch.Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return _along(torch.any, _truth(x), axis, keepdims)


def _truth(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.bool else x != 0


def count_nonzero(x: torch.Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return _along(torch.sum, _truth(x), axis, keepdims, dtype=torch.int64)


def diff(
    x: torch.Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: torch.Tensor | None = None,
    append: torch.Tensor | None = None,
) -> torch.Tensor:
    """Differences of neighbours, n times over."""
    if n < 0:
        raise ValueError(f"differences are taken a number of times, not {n}")
    axis = one_axis(axis, x.ndim)
    parts = [each for each in (prepend, x, append) if each is not None]
    dtype = types.result_type(*parts)
    whole = torch.cat([bits(as_type(each, dtype)) for each in parts], dim=axis) if len(parts) > 1 else bits(x)
    return as_type(torch.diff(whole, n=n, dim=axis), dtype)


def argmax(x: torch.Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return _place(torch.argmax, x, axis, keepdims)


def argmin(x: torch.Tensor, /, *, axis: int | None = None, keepdims: builtins.bool = False) -> torch.Tensor:
    return _place(torch.argmin, x, axis, keepdims)


def _place(
    function: Callable[..., torch.Tensor], x: torch.Tensor, axis: int | None, keepdims: builtins.bool
) -> torch.Tensor:
    if axis is not None:
        return function(ordered(x), dim=one_axis(axis, x.ndim), keepdim=keepdims)
    result = function(ordered(x).reshape(-1), dim=0)
    return result.reshape((1,) * x.ndim) if keepdims else result
