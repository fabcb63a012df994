"""Arrays as tensors and back, for functions of arrays that run as functions of tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import func as func
from torch.utils import _pytree as pytree

import numpy as np
from tatara._errors import InvalidArgument


def number(value: Any) -> Any:
    """A Python float as an array: something that can be differentiated by."""
    return np.asarray(value) if type(value) in (float, complex) else value


def holds_tensors(item: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(item))


def _to_tensor(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray | np.generic):
        return leaf
    array = np.asarray(leaf)
    # What torch cannot share: negative strides. What it may not: nobody writes to such an array, nor to a copy of a scalar.
    if any(stride < 0 for stride in array.strides) or not array.flags.writeable:
        array = array.copy()
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise InvalidArgument(f"an array that torch has no element type for: {error}") from None


def to_tensors(item: Any) -> Any:
    return pytree.tree_map(_to_tensor, item)


def _to_array(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    array = leaf.detach().resolve_conj().resolve_neg().numpy()
    return array if array.ndim else array[()]


def to_arrays(item: Any) -> Any:
    """Tensors as arrays in the same memory; those without dimensions as NumPy's scalars, which its functions give."""
    return pytree.tree_map(_to_array, item)
