"""Comparisons of arrays in native loops, and parts of arrays by such masks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def number_by_mask(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(a.shape[0]):
        row = a[i]
        row[row > 0.5] = 0
        b[i][b[i] <= 0] = i


def one_mask_twice(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(a.shape[0]):
        inside = np.less(np.abs(a), 0.9)
        k[inside] = i
        a[inside] = a[inside] ** 2 + b[inside]


def escape(a: Any, b: Any, k: Any, z: Any) -> None:
    c = a + 1j * b
    for n in range(40):
        inside = abs(z) < 2.0
        k[inside] = n
        z[inside] = z[inside] ** 2 + c[inside]


def masks_made_alike(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(20):
        a[a > 0] = a[a > 0] * 0.5 + i
        b[a != 3] += 1.5


def divides_where_it_can(a: Any, b: Any, k: Any, z: Any) -> None:
    a[::3] = 0
    for i in range(20):
        b[a > 0] = b[a > 0] / 3 + np.sqrt(a[a > 0])


def bools_of_masks(a: Any, b: Any, k: Any, z: Any) -> Any:
    for i in range(20):
        both = (a > 0.2) & (b < 0.1) | ~(k == i)
        a[both] -= 0.01
    return both


def where(a: Any, b: Any, k: Any, z: Any) -> Any:
    for i in range(a.shape[0]):
        a[i] = np.where(b[i] > 0, a[i] + 1, 2)
        k[i] = np.where(k[i] >= i, k[i], 7)
    return k


def compared_sizes(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(a.shape[0]):
        b[a >= a[i]] = i


def reads_what_it_writes(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(20):
        a[1:][a[1:] > 0.3] = 0.25
        a[:-1][a[1:] > 0.2] = i


NATIVE = [number_by_mask, one_mask_twice, escape, masks_made_alike, bools_of_masks, where, compared_sizes]
NATIVE += [divides_where_it_can, reads_what_it_writes]


# What is not read as native code, and is right anyway.
def mask_of_rows(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(20):
        a[a[:, 0] > 0.5] = i


def part_that_is_kept(a: Any, b: Any, k: Any, z: Any) -> Any:
    for i in range(20):
        part = a[a > 0.5]
        b[0, 0] += part.sum() + i
    return part


def other_masks(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(20):
        a[a > 0.5] = b[a > 0.5][::-1]


def sums_of_bools(a: Any, b: Any, k: Any, z: Any) -> Any:
    for i in range(20):
        found = (a > 0.5) + (b > 0.5)
    return found


def wrong_number_of_values(a: Any, b: Any, k: Any, z: Any) -> None:
    for i in range(20):
        a[a > 0.5] = b[b > 0.1]


def divides_by_zero(a: Any, b: Any, k: Any, z: Any) -> None:
    a[0] = 0
    for i in range(20):
        b[a >= 0] = b[a >= 0] / a[a >= 0]


def nans(a: Any, b: Any, k: Any, z: Any) -> None:
    a[::2] = np.nan
    for i in range(20):
        b[a > 0.5] = i
        b[a != a] -= 1


OTHERS = [mask_of_rows, part_that_is_kept, other_masks, sums_of_bools, wrong_number_of_values, divides_by_zero, nans]


def _outcome(f: Callable[..., Any]) -> list[Any]:
    rng = np.random.default_rng(9)
    given = [rng.random((20, 17)), rng.random((20, 17)) - 0.5, rng.integers(0, 20, (20, 17))]
    given.append(np.zeros((20, 17), np.complex128))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = f(*given)
        except Exception as error:
            result = (type(error), str(error))
    told = [(w.category, str(w.message)) for w in said if "tatara" not in str(w.message)]
    return [result, *given, told]


@pytest.mark.parametrize("program", NATIVE + OTHERS, ids=lambda f: f.__name__)
def test_masks_in_a_loop_do_what_numpys_do(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    before = tatara.stats()
    for _ in range(2):
        for got, expected in zip(_outcome(compiled), copy.deepcopy(_outcome(program)), strict=True):
            assert type(got) is type(expected)
            if isinstance(expected, np.ndarray):
                assert (got.dtype, got.shape, got.strides) == (expected.dtype, expected.shape, expected.strides)
                np.testing.assert_allclose(got, expected, rtol=1e-12)
            else:
                assert got == expected
    now = tatara.stats()
    if program in NATIVE:
        assert now["native_loop_runs"] - before["native_loop_runs"] == 2
