"""Functions over `Array`, made from those over tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from tatara.array_api import _tensors
from tatara.array_api._array import Array


def _opened(value: Any) -> Any:
    if isinstance(value, Array):
        return value.tensor
    # Nested sequences of numbers are long, and hold no arrays as a rule.
    if isinstance(value, (list, tuple)) and any(isinstance(each, (Array, list, tuple)) for each in value):
        return type(value)([_opened(each) for each in value])
    return value


def _closed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Array(value)
    if isinstance(value, tuple):
        parts = [_closed(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _over_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        own = {name: _opened(value) for name, value in options.items()}
        return _closed(function(*[_opened(each) for each in args], **own))

    return call


def _of(found: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for name, value in found.items():
        if isinstance(value, ModuleType):
            module = ModuleType(f"tatara.array_api.arrays.{name}", value.__doc__)
            module.__dict__.update(_of({each: getattr(value, each) for each in value.__all__}))
            module.__dict__["__all__"] = value.__all__
            value = module
        elif callable(value) and not isinstance(value, torch.dtype) and name != "__array_namespace_info__":
            value = _over_arrays(value)
        result[name] = value
    return result


def namespace() -> dict[str, Any]:
    """Everything that the standard names."""
    return _of(_tensors.namespace())
