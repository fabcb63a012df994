"""Namespaces that `tools/array_api.py` gives to array-api-tests."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch

import tatara
from tatara.array_api import _array, _arrays, _names, _tensors

# Python objects: nothing of a tensor to compile.
PLAIN = {
    "asarray",
    "from_dlpack",
    "finfo",
    "iinfo",
    "isdtype",
    "can_cast",
    "result_type",
    "broadcast_shapes",
    "__array_namespace_info__",
}

if os.environ.get("ARRAY_API_DEVICE"):
    torch.set_default_device(os.environ["ARRAY_API_DEVICE"])


def _compiled(found: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for name, value in found.items():
        if isinstance(value, ModuleType):
            module = ModuleType(value.__name__)
            module.__dict__.update(_compiled({each: getattr(value, each) for each in value.__all__}))
            module.__all__ = value.__all__
            value = module
        elif callable(value) and name not in PLAIN and name not in _names.DATA_TYPES:
            value = tatara.compile(value, options={"recompile_limit": 1 << 20})
        result[name] = value
    return result


def compiled_numpy() -> ModuleType:
    """The namespace of NumPy arrays with each function compiled by itself."""
    import tatara.array_api.numpy as found

    module = ModuleType("tatara.array_api.numpy")
    module.__dict__.update(_compiled({name: getattr(found, name) for name in _names.ALL}))
    module.__array_api_version__ = _names.VERSION
    return module


def compiled() -> ModuleType:
    """The namespace of `Array` with each function compiled by itself."""
    module = ModuleType("tatara.array_api.arrays")
    module.__dict__.update(_arrays._of(_compiled(_tensors.namespace())))
    module.__dict__.update(Array=_array.Array, __array_api_version__=_names.VERSION)
    return module


def eager() -> ModuleType:
    """The namespace of `Array`."""
    import tatara.array_api.arrays

    return tatara.array_api.arrays
