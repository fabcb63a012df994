"""How results are compared with eager's."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any

import torch


def same(ours: Any, theirs: Any, strides: bool = True, **tolerances: Any) -> None:
    """Asserts equal values and all else that a program sees of them: types, dtypes, shapes, strides (unless False), whether
    gradients are wanted, leaves, keys in their order, attributes. Tensors within torch.testing.assert_close's tolerances or these.
    """
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert not strides or ours.stride() == theirs.stride()
        assert (ours.requires_grad, ours.is_leaf) == (theirs.requires_grad, theirs.is_leaf)
        torch.testing.assert_close(ours, theirs, **tolerances)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key], strides, **tolerances)
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, strides, **tolerances)
    elif is_plain(theirs):
        same(vars(ours), vars(theirs), strides, **tolerances)
    else:
        assert ours == theirs


def is_plain(value: Any) -> bool:
    """An instance that is what its attributes are."""
    known = isinstance(value, type | types.FunctionType | types.ModuleType)
    compared = type(value).__eq__ is not object.__eq__ and not dataclasses.is_dataclass(value)
    return hasattr(value, "__dict__") and not compared and not known


def plain(value: Any) -> Any:
    """Lists of numbers in place of tensors, whatever holds them; lists, tuples and deques alike."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | collections.deque):
        return [plain(each) for each in value]
    return value
