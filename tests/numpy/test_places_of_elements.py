"""Calls that put elements in other places, and arrays that run backwards: values, strides, flags, shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from util import check, same

import numpy as np
import tatara

RNG = np.random.default_rng(7)
A, B = RNG.uniform(0.1, 0.9, (4, 6)), RNG.uniform(0.1, 0.9, (4, 6))

# Without a call of NumPy's in later runs.
NATIVE: dict[str, Callable[..., Any]] = {
    "hstack": lambda x, y: np.hstack([x, y]),
    "vstack": lambda x, y: np.vstack((x, y[0])),
    "dstack": lambda x, y: np.dstack([x, y]),
    "column_stack": lambda x, y: np.column_stack((x[:, 0], y)),
    "stack of an array": lambda x, y: np.stack(x),
    "roll of all": lambda x, y: np.roll(x, 5),
    "roll along": lambda x, y: np.roll(x, (1, -2), (0, 1)),
    "triangles": lambda x, y: np.tril(x, 1) + np.triu(y),
    "diff": lambda x, y: np.diff(x) * np.diff(y, axis=1),
    "second diff": lambda x, y: np.diff(x, 2, axis=0),
    "tile": lambda x, y: np.tile(x, (2, 1, 3)),
    "repeat": lambda x, y: [np.repeat(x, 2), np.repeat(x, 3, axis=1)],
    "append": lambda x, y: [np.append(x, y), np.append(x, y, axis=1)],
    "moveaxis": lambda x, y: np.moveaxis(x.reshape(2, 2, 6), 0, 2),
    "splits": lambda x, y: [*np.split(x, 2), *np.hsplit(y, [1, 3]), *np.array_split(x, 3)],
    "flips": lambda x, y: [np.flip(x), np.flipud(x), np.fliplr(y), np.flip(y, 1)],
    "turned by 90 degrees": lambda x, y: [np.rot90(x), np.rot90(x, 2), np.rot90(y, -1)],
    "slices backwards": lambda x, y: [x[::-1], x[2::-2, 1:3], x[:, ::-1] * y, x[1, ::-1] + 1],
    "views of them": lambda x, y: [x[::-1].T, x[::-1][1:3], x[::-1, ::-1][::-1], np.squeeze(x[::-1])],
    "elements of them": lambda x, y: x[::-1][0, 1] + y[::-1].sum(),
    "parts": lambda x, y: [np.real(x + 1j * y) * 2, np.imag(x + 1j * y) + 1],
    "round": lambda x, y: [np.round(x, 2), np.round(x * 100, -1), np.round(y)],
    "no NaNs": lambda x, y: [
        np.nan_to_num(np.where(x > 0.5, np.nan, x)),
        np.nansum(np.where(y > 0.5, np.nan, y), axis=0),
    ],
    "trace": lambda x, y: np.trace(x) * 2,
    "divmod": lambda x, y: divmod(x, y),
    "bodies": lambda x, y: [np.outer(x[0], y[0]), np.isclose(x, y), np.trapezoid(x), np.ptp(x), np.fft.fftshift(x)],
    "more bodies": lambda x, y: [np.polyval(x[0], y), np.angle(x + 1j * y), np.trapezoid(x, axis=0), np.ptp(y, axis=1)],
    "accumulated": lambda x, y: [np.add.accumulate(x), np.cumulative_sum(y, axis=1)],
    "copies": lambda x, y: [np.array(x), np.array(y[::2])],
    "complex tests": lambda x, y: [np.isnan(x + 1j * y), np.isfinite(x + 1j * y), np.logical_not(x * 0j)],
}


@pytest.mark.parametrize("layout", ["rows", "columns", "steps", "reversed", "turned"])
@pytest.mark.parametrize("name", NATIVE)
def test_places(name: str, layout: str) -> None:
    x, y = A.copy(), B.copy()
    if layout == "columns":
        x, y = np.asfortranarray(x), np.asfortranarray(y)
    elif layout == "steps":
        x, y = np.repeat(x, 2, axis=1)[:, ::2], np.repeat(y, 2, axis=0)[::2]
    elif layout == "reversed":
        x, y = x[::-1], y[:, ::-1]
    elif layout == "turned":
        x, y = np.ascontiguousarray(x.T).T, np.ascontiguousarray(y[::-1])[::-1]
    function = NATIVE[name]
    compiled = tatara.compile(function)
    for _ in range(3):
        before = tatara.stats()
        want, got = function(x, y), compiled(x, y)
        same(want, got)
        for w, g in zip(
            want if isinstance(want, list) else [want], got if isinstance(got, list) else [got], strict=True
        ):
            if isinstance(w, np.ndarray):
                assert np.shares_memory(w, x) == np.shares_memory(g, x) and np.shares_memory(w, y) == np.shares_memory(
                    g, y
                )
    after = tatara.stats()
    assert after["breaks"] == before["breaks"]
    if layout == "rows":
        assert after["host_calls"] == before["host_calls"], name


def test_a_view_that_runs_backwards_is_written_through() -> None:
    x = A.copy()
    compiled = tatara.compile(lambda x: (x[::-1], x * 2))
    for _ in range(3):
        back, _ = compiled(x)
        back[0] = 7.0
        assert (x[-1] == 7.0).all() and back.base is x


def test_writes_beside_views_that_run_backwards() -> None:
    def step(x: np.ndarray) -> np.ndarray:
        back = x[::-1]
        x[0] = 5.0
        back[1] += 1.0
        return back * 2

    check(step, A)


def test_sizes_that_values_decide_are_no_part_of_a_graph() -> None:
    compiled = tatara.compile(lambda x, n: np.repeat(x, n))
    for n in (np.array([1, 2, 0, 3]), np.array([1, 1, 1, 1]), np.array([0, 0, 0, 5])):
        same(np.repeat(A[:, 0], n), compiled(A[:, 0], n))
