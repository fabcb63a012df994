"""Indexing, searching, sorting and sets."""

from __future__ import annotations

import builtins
from typing import NamedTuple

import torch

from tatara.array_api._torch import types
from tatara.array_api._torch.operands import as_type, bits, from_ordered, one_axis, ordered, together

# --- Indexing.


def _indices(indices: torch.Tensor, size: int) -> torch.Tensor:
    # torch's gathers count from the front only.
    own = as_type(indices, torch.int64)
    return torch.where(own < 0, own + size, own)


def take(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int | None = None) -> torch.Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"an axis is wanted for an array of {x.ndim} dimensions")
        axis = 0
    axis = one_axis(axis, x.ndim)
    if indices.ndim != 1:
        raise ValueError(f"take() wants one-dimensional indices, not {indices.ndim} dimensions")
    return as_type(torch.index_select(bits(x), axis, _indices(indices, x.shape[axis])), x.dtype)


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    axis = one_axis(axis, x.ndim)
    if indices.ndim != x.ndim:
        raise ValueError(f"the indices have {indices.ndim} dimensions, the array {x.ndim}")
    own = _indices(indices, x.shape[axis])
    shape = list(torch.broadcast_shapes(_without(x, axis), _without(own, axis)))
    whole = torch.broadcast_to(bits(x), [*shape[:axis], x.shape[axis], *shape[axis + 1 :]])
    places = torch.broadcast_to(own, [*shape[:axis], own.shape[axis], *shape[axis + 1 :]])
    return as_type(torch.gather(whole, axis, places), x.dtype)


def _without(x: torch.Tensor, axis: int) -> tuple[int, ...]:
    return (*x.shape[:axis], 1, *x.shape[axis + 1 :])


# --- Searching.


def nonzero(x: torch.Tensor, /) -> tuple[torch.Tensor, ...]:
    if x.ndim == 0:
        raise ValueError("nonzero() wants an array with dimensions")
    return tuple(torch.nonzero(bits(x), as_tuple=True))


def where(condition: torch.Tensor, x1: torch.Tensor | types.Scalar, x2: torch.Tensor | types.Scalar, /) -> torch.Tensor:
    a, b = together(x1, x2)
    return as_type(torch.where(as_type(condition, torch.bool), bits(a), bits(b)), a.dtype)


def searchsorted(
    x1: torch.Tensor, x2: torch.Tensor | float, /, *, side: str = "left", sorter: torch.Tensor | None = None
) -> torch.Tensor:
    """Places in a sorted vector."""
    if side not in ("left", "right"):
        raise ValueError(f"side is 'left' or 'right', not {side!r}")
    if x1.ndim != 1:
        raise ValueError(f"searchsorted() looks into a one-dimensional array, not into {x1.ndim} dimensions")
    a, b = together(x1, x2)
    if sorter is not None:
        a = take(a, sorter)
    return torch.searchsorted(ordered(a).contiguous(), ordered(b).contiguous(), right=side == "right")


# --- Sorting.


def sort(
    x: torch.Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> torch.Tensor:
    values, _ = torch.sort(ordered(x), dim=axis, descending=descending, stable=stable)
    return from_ordered(values, x.dtype)


def argsort(
    x: torch.Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True
) -> torch.Tensor:
    return torch.argsort(ordered(x), dim=axis, descending=descending, stable=stable)


# --- Sets. NaNs are all different.


class UniqueAll(NamedTuple):
    """Values, where each is first, where each element went, and how often."""

    values: torch.Tensor
    indices: torch.Tensor
    inverse_indices: torch.Tensor
    counts: torch.Tensor


class UniqueCounts(NamedTuple):
    """Values and how often they are there."""

    values: torch.Tensor
    counts: torch.Tensor


class UniqueInverse(NamedTuple):
    """Values and where each element went."""

    values: torch.Tensor
    inverse_indices: torch.Tensor


def unique_all(x: torch.Tensor, /) -> UniqueAll:
    order, firsts = _runs(x)
    places = torch.nonzero(firsts).reshape(-1)
    inverse = torch.empty_like(order).scatter_(0, order, torch.cumsum(firsts, 0) - 1)
    ends = torch.cat([places[1:], places.new_full((min(places.shape[0], 1),), order.shape[0])])
    indices = order[places]
    return UniqueAll(_picked(x, indices), indices, inverse.reshape(x.shape), ends - places)


def unique_counts(x: torch.Tensor, /) -> UniqueCounts:
    result = unique_all(x)
    return UniqueCounts(result.values, result.counts)


def unique_inverse(x: torch.Tensor, /) -> UniqueInverse:
    result = unique_all(x)
    return UniqueInverse(result.values, result.inverse_indices)


def unique_values(x: torch.Tensor, /) -> torch.Tensor:
    order, firsts = _runs(x)
    return _picked(x, order[firsts])


def _picked(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Elements of a flattened array."""
    return as_type(bits(x.reshape(-1))[places], x.dtype)


def _runs(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The order of the elements of a flattened array, equal ones as they stand, and which of the sorted ones are new."""
    flat = x.reshape(-1)
    if types.is_complex(x.dtype):
        order = torch.argsort(flat.imag, stable=True)
        order = order[torch.argsort(flat.real[order], stable=True)]
    else:
        order = torch.argsort(ordered(flat), stable=True)
    in_order = bits(flat)[order]
    first = torch.ones((min(flat.shape[0], 1),), dtype=torch.bool, device=x.device)
    return order, torch.cat([first, in_order[1:] != in_order[:-1]])


def isin(
    x1: torch.Tensor | types.Scalar, x2: torch.Tensor | types.Scalar, /, *, invert: builtins.bool = False
) -> torch.Tensor:
    """Which elements of one array are in the other. NaN is in none."""
    if types.is_scalar(x1) and types.is_scalar(x2):
        raise TypeError("isin() wants an array")
    a, b = together(x1, x2)
    if types.is_complex(a.dtype):
        found = (a.unsqueeze(-1) == b.reshape(-1)).any(-1)
        return ~found if invert else found
    return torch.isin(ordered(a), ordered(b), invert=invert)
