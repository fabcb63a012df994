"""The namespace over tensors: functions of `_torch` for tensors, those of the NumPy namespace for arrays."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import torch

from tatara.array_api import _names
from tatara.array_api._torch import creation, inspection, types

# torch does without NumPy.
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
numpy: Any = importlib.import_module("numpy") if HAS_NUMPY else None
of_arrays: Any = importlib.import_module("tatara.array_api.numpy") if HAS_NUMPY else None


Function: TypeAlias = Callable[..., Any]


def by_kind(function: Function, space: str) -> Function:
    """A function of tensors that hands NumPy arrays on to the NumPy namespace."""
    if not HAS_NUMPY:
        return function
    array = numpy.ndarray

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        for each in args:
            if isinstance(each, array) or (type(each) in (list, tuple) and each and isinstance(each[0], array)):
                return _of_arrays(space, function.__name__, args, options)
        return function(*args, **options)

    return call


def _of_arrays(space: str, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    own = getattr(getattr(of_arrays, space) if space else of_arrays, name)
    return own(*[_as_numpys(each) for each in args], **{key: _as_numpys(each) for key, each in options.items()})


def _as_numpys(value: Any) -> Any:
    """Data types of this namespace are NumPy's there."""
    return getattr(of_arrays, _NAMES[value]) if isinstance(value, torch.dtype) and value in _NAMES else value


_NAMES = {dtype: name for name, dtype in types.NAMES.items()}


def _functions(module: str, names: tuple[str, ...], space: str) -> dict[str, Function]:
    found = importlib.import_module(f"tatara.array_api._torch.{module}")
    return {name: by_kind(getattr(found, name), space) for name in names}


def _extension(name: str, module: str, names: tuple[str, ...]) -> ModuleType:
    result = ModuleType(f"tatara.array_api.{name}", f"The {name} extension of the standard.")
    result.__dict__.update(_functions(module, names, name))
    result.__dict__["__all__"] = list(names)
    return result


def namespace() -> dict[str, Any]:
    """Everything that the standard names."""
    result: dict[str, Any] = {name: getattr(creation, name) for name in _names.CONSTANTS}
    result.update(types.NAMES)
    for module, names in _names.FUNCTIONS.items():
        # Making a tensor from an array is what asarray() and from_dlpack() are for.
        found = _functions(module, names, "")
        for name in ("asarray", "from_dlpack"):
            if name in found:
                found[name] = getattr(creation, name)
        result.update(found)
    result["linalg"] = _extension("linalg", "linear", _names.LINALG)
    result["fft"] = _extension("fft", "fourier", _names.FFT)
    result["__array_namespace_info__"] = inspection.array_namespace_info
    return result
