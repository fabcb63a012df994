"""Sums and other reductions within native loops."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def _first_axis(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i, :] = np.sum(a[i] * m, axis=0)


def _last_axis_as_method(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i, :] += (a[i] - m).sum(axis=-1)


def _two_axes(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0] - 2):
        out[i, :] = np.sum(a[i : i + 2, :, :, np.newaxis] * m[:, np.newaxis, :], axis=(1, 2))[0, :]


def _all_axes(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i, 0] = np.sum(a[i] * m, axis=(0, 1))


def _largest_and_smallest(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i, :] = np.max(a[i] - m, axis=0) + np.min(a[i], 1)
        out[i, 1] = a[i].max() * (m * a[i]).min()


def _means(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        centred = a[i] - np.mean(a[i], axis=0, keepdims=True)
        out[i, :] = centred.mean(axis=1) + np.mean(m)


def _products(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i, :] = np.prod(a[i], axis=0) + m.prod(axis=1, keepdims=False)


def _extremum_with_nan(a: Any, m: Any, out: Any) -> None:
    m[3, 4] = np.nan
    for i in range(a.shape[0]):
        out[i, :] = np.max(m, axis=0) + a[i, 0]


def _extremum_of_nothing(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i, 0] = a[i, :i, 0].max()


def _of_what_is_written(a: Any, m: Any, out: Any) -> None:
    for i in range(1, a.shape[0]):
        out[i, :] = np.sum(out[:i, :], axis=0) + a[i, 0, :]


def _axis_out_of_range(a: Any, m: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        out[i, :] = np.sum(a[i] * m, axis=2)


@pytest.mark.parametrize(
    ("program", "native"),
    [
        (_first_axis, 1),
        (_last_axis_as_method, 1),
        (_two_axes, 1),
        (_all_axes, 1),
        (_of_what_is_written, 1),
        (_largest_and_smallest, 1),
        (_means, 1),
        (_products, 1),
        (_extremum_of_nothing, 0),
        (_axis_out_of_range, 0),
    ],
)
def test_a_reduction_over_axes_in_a_loop_is_numpys(program: Callable[..., None], native: int) -> None:
    def arguments() -> list[Any]:
        rng = np.random.default_rng(3)
        return [rng.random((20, 9, 9)), rng.random((9, 9)), rng.random((20, 9))]

    compiled = tatara.compile(program)
    before = tatara.stats()
    for _ in range(2):
        mine, theirs = arguments(), arguments()
        errors = []
        for f, given in ((compiled, mine), (program, theirs)):
            try:
                f(*given)
            except Exception as error:
                errors.append((type(error), str(error)))
        assert len(errors) in (0, 2)
        assert errors[:1] == errors[1:]
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    now = tatara.stats()
    assert now["native_loops"] - before["native_loops"] == native
    assert now["native_loop_runs"] - before["native_loop_runs"] == 2 * native


def test_an_extremum_with_a_nan_in_a_loop_is_numpys() -> None:
    rng = np.random.default_rng(3)
    given = [rng.random((20, 9, 9)), rng.random((9, 9)), rng.random((20, 9))]
    mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
    tatara.compile(_extremum_with_nan)(*mine)
    _extremum_with_nan(*theirs)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_extrema_and_sums_of_ints_in_a_loop_are_numpys() -> None:
    def program(a: Any, out: Any) -> None:
        for i in range(a.shape[0]):
            out[i, 0] = a[i].max()
            out[i, 1] = np.min(a[i])
            out[i, 2] = a[i].sum() * np.int64(3)

    for dtype in (np.int64, np.int32):
        a = np.arange(-200, 200, dtype=dtype).reshape(20, 20) ** 3
        mine, theirs = np.zeros((20, 3), dtype), np.zeros((20, 3), dtype)
        tatara.compile(program)(a, mine)
        program(a, theirs)
        np.testing.assert_array_equal(mine, theirs)
