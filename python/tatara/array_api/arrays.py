"""The standard over objects of its own: `Array` has the standard's operators, indexing and methods, where tensors have torch's.

The functions are those of `tatara.array_api`. They take arrays and tensors and give arrays.
"""

from __future__ import annotations

from tatara.array_api import _arrays, _names
from tatara.array_api._array import Array as Array

__array_api_version__ = _names.VERSION

globals().update(_arrays.namespace())

__all__ = [*_names.ALL, "Array", "__array_api_version__"]
