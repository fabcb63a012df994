"""Helpers in C of NumPy's own Python code, as code that can be traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class ArrayConverter:
    """`numpy._core._multiarray_umath._array_converter` for arrays, numbers and sequences of these."""

    def __init__(self, *given: Any) -> None:
        self._given = given
        self._arrays = tuple([each if isinstance(each, np.ndarray) else np.asarray(each) for each in given])
        self._numbers = tuple([type(each) in (int, float, complex) for each in given])
        self.scalar_input = tuple(
            [not isinstance(g, np.ndarray) and a.ndim == 0 for g, a in zip(given, self._arrays, strict=True)]
        )

    def __len__(self) -> int:
        return len(self._given)

    def __getitem__(self, index: int) -> Any:
        return self.as_arrays()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.as_arrays())

    def as_arrays(self, *, subok: bool = True, pyscalars: str = "convert_if_no_array") -> tuple[Any, ...]:
        convert = pyscalars == "convert" or (pyscalars == "convert_if_no_array" and all(self._numbers))
        if convert or not any(self._numbers):
            return self._arrays
        return tuple([g if n else a for g, n, a in zip(self._given, self._numbers, self._arrays, strict=True)])

    def result_type(self, *extra: Any, ensure_inexact: bool = False) -> np.dtype[Any]:
        types = [g if n else a.dtype for g, n, a in zip(self._given, self._numbers, self._arrays, strict=True)]
        if ensure_inexact:
            types.append(1.0)
        return np.result_type(*types, *extra)

    def wrap(self, made: Any, /, to_scalar: bool | None = None) -> Any:
        if to_scalar is None:
            to_scalar = all(self.scalar_input)
        return made[()] if to_scalar and isinstance(made, np.ndarray) and made.ndim == 0 else made


class Broadcast:
    """`numpy.broadcast`, for what tells of shapes."""

    def __init__(self, *given: Any) -> None:
        self.shape = np.broadcast_shapes(*[each.shape if hasattr(each, "shape") else np.shape(each) for each in given])
        self.ndim = self.nd = len(self.shape)
        self.size = 1
        for each in self.shape:
            self.size *= each


def monotonicity(bins: Any) -> int:
    """`numpy._core.multiarray._monotonicity`: 1 where no element is below the one before it, -1 where none is above, else 0."""
    if len(bins) < 2:
        return 1
    if bool(np.all(bins[1:] >= bins[:-1])):
        return 1
    return -1 if bool(np.all(bins[1:] <= bins[:-1])) else 0
