"""What generated NumPy programs (`make fuzz`, class numpy_loops) did otherwise than NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from util import check

import numpy as np
import tatara

SQUARE = np.random.default_rng(0).standard_normal((5, 5))


def _rows(w: Any) -> Any:
    q = w.T.copy()
    for i in range(5):
        q[i] += q[i, 0]
    return q


def _turned(w: Any) -> Any:
    q = w.T.copy()
    q[:] = q.T
    q += q.T
    return q


def _viewed(w: Any) -> Any:
    q = np.where(w.T > 0, w.T, 0.5)
    q[0] += 1
    return q, q[1]


@pytest.mark.parametrize("program", [_rows, _turned, _viewed])
def test_results_with_views_lie_as_in_numpy(program: Callable[[Any], Any]) -> None:
    """A copy of a transposed array lies row by row, also where there are views of it and it is written to."""
    check(program, SQUARE, graphs=1)


@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint8])
@pytest.mark.parametrize(
    "program",
    [
        lambda k: (k[1] + k[2]) * 0.5,
        lambda k: k[1] * k[2] + 0,
        lambda k: (k[0] - k[1] * 1) // 2,
        lambda k: k[1] + int(k[2]),
        lambda k: [k[i] * 3 for i in range(4)],
    ],
)
def test_scalars_of_whole_numbers_warn(program: Callable[[Any], Any], dtype: Any) -> None:
    compiled = tatara.compile(program)
    for most in (True, False, True, True):
        k = np.array([2, 3, 4, 1], dtype=dtype)
        if most:
            k[1] = np.iinfo(dtype).max
        outcomes = []
        for function in (program, compiled):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                outcomes.append((repr(function(k)), [str(each.message) for each in said]))
        assert outcomes[0] == outcomes[1]


def test_a_fault_behind_writes_that_stay() -> None:
    """Calls that NumPy makes itself have written to arrays; then a graph finds a fault. NumPy runs its calls, and no more."""

    def program(x: Any, w: Any, k: Any, m: Any) -> Any:
        n = len(x)
        r = x * 1
        for i in range(0, n, 2):
            if i != 4:
                if i > 2:
                    r[-1:0:-1] = r[1:]
                    r[::-1] /= m * np.cos(0.5)
                    r = (w.T[0] * 0.5) + 0 * r
            else:
                np.add.at(r, k % n, x)
                if r[i] >= 0:
                    r[1:] += ((x[::-1] + w[:, -i - 1]) + r)[:-1]
        r[1:] = r[:-1]
        return r

    draw = np.random.default_rng(12)
    x, w = draw.standard_normal(12), draw.standard_normal((12, 12))
    k, m = draw.integers(0, 9, 12), draw.random(12) > 0.4
    compiled = tatara.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            np.testing.assert_array_equal(compiled(x, w, k, m), program(x, w, k, m))
