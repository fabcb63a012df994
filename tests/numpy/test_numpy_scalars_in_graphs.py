"""Graphs of arrays with scalars of NumPy's, or arrays without dimensions, among their inputs."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("kind", ["scalar", "array"])
def test_a_graph_with_a_scalar_input_runs_as_a_kernel(dtype: Any, kind: str) -> None:
    def program(x: Any, a: Any, b: Any) -> Any:
        return x * a + b

    compiled = tatara.compile(program)
    x = np.arange(24).astype(dtype).reshape(4, 6)
    for n in (3, 3, 5, 2):
        a, b = (dtype(v) if kind == "scalar" else np.array(v, dtype) for v in (n, 7 * n))
        before = tatara.stats()["kernels_launched"]
        got, expected = compiled(x, a, b), program(x, a, b)
        assert (got.dtype, got.strides) == (expected.dtype, expected.strides)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert tatara.stats()["kernels_launched"] == before + 1


def test_arithmetic_on_scalars_warns_as_numpys_does() -> None:
    def program(x: Any, a: Any, b: Any) -> Any:
        return x * 2 + (a * b + a), a - b

    compiled = tatara.compile(program)
    x = np.arange(12)
    for a, b in ((2, 3), (2**62, 4), (-(2**63), 1), (5, 6)):
        outcomes = []
        for f in (compiled, program):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                results = f(x, np.int64(a), np.int64(b))
            outcomes.append((results, [str(w.message) for w in said if "tatara" not in str(w.message)]))
        (got, told), (expected, told_by_numpy) = outcomes
        assert told == told_by_numpy
        for mine, theirs in zip(got, expected, strict=True):
            assert type(mine) is type(theirs)
            np.testing.assert_array_equal(mine, theirs)
