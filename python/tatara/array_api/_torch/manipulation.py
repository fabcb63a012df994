"""Shapes: views where torch has views."""

from __future__ import annotations

import builtins
import itertools
from typing import TypeAlias

import torch

from tatara.array_api._torch import types
from tatara.array_api._torch.operands import as_type, axes_of, bits, one_axis

Axes: TypeAlias = int | tuple[int, ...]
Arrays: TypeAlias = tuple[torch.Tensor, ...] | list[torch.Tensor]


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def broadcast_arrays(*arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.broadcast_tensors(*arrays))


def broadcast_to(x: torch.Tensor, /, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.broadcast_to(x, shape)


def _of_one_type(arrays: Arrays) -> list[torch.Tensor]:
    dtype = types.result_type(*arrays)
    return [as_type(each, dtype) for each in arrays]


def concat(arrays: Arrays, /, *, axis: int | None = 0) -> torch.Tensor:
    """Joined along an axis; flattened first for None."""
    own = _of_one_type(arrays)
    if axis is None:
        return torch.cat([each.reshape(-1) for each in own])
    axis = one_axis(axis, own[0].ndim)
    # torch lets an empty vector pass beside anything.
    for each in own:
        if each.ndim != own[0].ndim:
            raise ValueError("concat() wants arrays of as many dimensions each")
    return torch.cat(own, dim=axis)


def stack(arrays: Arrays, /, *, axis: int = 0) -> torch.Tensor:
    return torch.stack(_of_one_type(arrays), dim=axis)


def unstack(x: torch.Tensor, /, *, axis: int = 0) -> tuple[torch.Tensor, ...]:
    return tuple(torch.unbind(x, dim=one_axis(axis, x.ndim)))


def expand_dims(x: torch.Tensor, /, axis: Axes) -> torch.Tensor:
    """Axes of size one at places of the result."""
    given = axis if isinstance(axis, tuple) else (axis,)
    places = sorted([one_axis(each, x.ndim + len(given)) for each in given])
    for one, other in itertools.pairwise(places):
        if one == other:
            raise ValueError(f"axis {one} is given twice")
    for place in places:
        x = x.unsqueeze(place)
    return x


def squeeze(x: torch.Tensor, /, axis: Axes) -> torch.Tensor:
    """Torch leaves axes of other sizes alone; here they are an error."""
    axes = axes_of(x, axis)
    for each in axes:
        if x.shape[each] != 1:
            raise ValueError(f"axis {each} has {x.shape[each]} elements, so it cannot be removed")
    return torch.squeeze(x, axes)


def flip(x: torch.Tensor, /, *, axis: Axes | None = None) -> torch.Tensor:
    return as_type(torch.flip(bits(x), axes_of(x, axis)), x.dtype)


def permute_dims(x: torch.Tensor, /, axes: tuple[int, ...]) -> torch.Tensor:
    return torch.permute(x, tuple(axes))


def moveaxis(x: torch.Tensor, source: Axes, destination: Axes, /) -> torch.Tensor:
    return torch.movedim(x, source, destination)


def reshape(x: torch.Tensor, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> torch.Tensor:
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(f"this shape needs a copy: {error}") from error
    return torch.reshape(x.clone() if copy else x, shape)


def roll(x: torch.Tensor, /, shift: Axes, *, axis: Axes | None = None) -> torch.Tensor:
    if axis is None:
        return as_type(torch.roll(bits(x), shift), x.dtype)
    axes = axes_of(x, axis)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    return as_type(torch.roll(bits(x), shifts, axes), x.dtype)


def repeat(x: torch.Tensor, repeats: int | torch.Tensor, /, *, axis: int | None = None) -> torch.Tensor:
    """Each element several times. Counts that are an array make a GPU wait for their sum."""
    if isinstance(repeats, torch.Tensor):
        repeats = repeats.to(torch.int64)
    if axis is None:
        x, axis = x.reshape(-1), 0
    return as_type(torch.repeat_interleave(bits(x), repeats, dim=one_axis(axis, x.ndim)), x.dtype)


def tile(x: torch.Tensor, repetitions: tuple[int, ...], /) -> torch.Tensor:
    return torch.tile(x, tuple(repetitions))
