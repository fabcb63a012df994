"""The standard over NumPy arrays: NumPy itself, but for what it does not do by the standard yet."""

from __future__ import annotations

import numpy
from tatara.array_api import _names, _numpy

__array_api_version__ = _names.VERSION

globals().update({name: getattr(numpy, name) for name in _names.ALL if hasattr(numpy, name)})
globals().update(_numpy.namespace())

__all__ = [*_names.ALL, "__array_api_version__"]
