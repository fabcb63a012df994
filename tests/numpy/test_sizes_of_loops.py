"""Loops over arrays of several sizes: the second program of a loop serves all further ones."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from loop_page import PAGE, arguments
from util import close

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def stencil(a: Any, b: Any, steps: int) -> None:
    for _ in range(steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:])


def elements(a: Any, b: Any, steps: int) -> None:
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = a[i, j] - a[i - 1, j + 1] + a[i + 1, j - 1]


def triangular(a: Any, b: Any, steps: int) -> None:
    for i in range(1, a.shape[0]):
        a[i, i:] -= a[i, :i] @ a[:i, i:] * 1e-3
        for j in range(i):
            b[i, j] += a[i, :j] @ b[i, :j] * 1e-3


def temporaries(a: Any, b: Any, steps: int) -> None:
    for i in range(1, a.shape[0]):
        a[i] = a[i - 1] + np.exp(-a[i]) @ b[i] * b[i]
        a[i, 1:] = a[i, :-1] * 0.5


def own_arrays(a: Any, b: Any, steps: int) -> Any:
    row = a[0]
    for i in range(a.shape[0]):
        row = a[i] * 2 + b[i]
        last = b[:, i % 3]
    return row, last, row.base is None


def over_an_array(a: Any, b: Any, steps: int) -> float:
    total = 0.0
    for row in a:
        total += row[0] * row[-1]
    return total


def leaves_early(a: Any, b: Any, steps: int) -> Any:
    for i in range(a.shape[0]):
        b[i] = a[i] * 2
        if a[i, 1] > 1.4:
            break
    return i, b


def ints_of_the_frame(a: Any, b: Any, steps: int) -> Any:
    n, m = a.shape
    flat = a.ravel()
    for i in range(n):
        for j in range(m):
            b[i, j] = flat[i * m + j] * (n - i) / m
    return flat


def index_out_of_range(a: Any, b: Any, steps: int) -> Any:
    for i in range(a.shape[0]):
        a[i] = b[i + steps // 10]
    return a


def gathered(a: Any, b: Any, steps: int) -> Any:
    places = np.arange(a.shape[0])[::-1].copy()
    for i in range(a.shape[0]):
        b[i] = a[places[i]]
    return b


SERVED = [stencil, elements, triangular, over_an_array, leaves_early, ints_of_the_frame, gathered, temporaries]
SHAPES = [(20, 30), (25, 40), (31, 33), (64, 17), (18, 90), (20, 30), (25, 40)]


def _check(program: Callable[..., Any], compiled: Callable[..., Any], given: list[Any]) -> None:
    outcomes = []
    for f in (compiled, program):
        mine = copy.deepcopy(given)
        try:
            outcomes.append((f(*mine), mine))
        except Exception as error:
            outcomes.append(((type(error), str(error)), mine))
    close(*outcomes, rtol=1e-10)


@pytest.mark.parametrize("program", [*SERVED, own_arrays, index_out_of_range], ids=lambda f: f.__name__)
def test_a_loop_over_arrays_of_several_sizes_does_what_the_plain_one_does(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    before = tatara.stats()["native_loops"]
    rng = np.random.default_rng(3)
    for rows, other in SHAPES:
        columns = rows if program is triangular else other
        given = [rng.random((rows, columns)) + 0.5, rng.random((rows, columns)), rows]
        _check(program, compiled, given)
    if program in SERVED:
        assert tatara.stats()["native_loops"] - before == 2


@pytest.mark.parametrize("other", ["small", "transposed", "sliced", "another kind", "one array"])
def test_what_a_program_for_all_sizes_does_not_fit_is_right(other: str) -> None:
    compiled = tatara.compile(stencil)
    rng = np.random.default_rng(3)
    for n in (20, 31, 40):
        _check(stencil, compiled, [rng.random((n, n)), rng.random((n, n)), n])
    a, b = rng.random((50, 50)), rng.random((50, 50))
    if other == "small":
        a, b = a[:2, :1].copy(), b[:2, :1].copy()
    elif other == "transposed":
        a, b = a[:, :30].T, b[:30].T.copy().T
    elif other == "sliced":
        a, b = a[::2, 1:26], b[:25, ::-2]
    elif other == "another kind":
        a, b = a.astype(np.float32), b.astype(np.float32)
    else:
        b = a
    for _ in range(2):
        mine, theirs = (a.copy(order="K"), b.copy(order="K")), (a.copy(order="K"), b.copy(order="K"))
        if other in ("transposed", "sliced"):
            mine, theirs = [(x, y) for x, y in [(copy.copy(a), copy.copy(b))] * 2]
        if other == "one array":
            mine, theirs = (mine[0], mine[0]), (theirs[0], theirs[0])
        compiled(*mine, 25)
        stencil(*theirs, 25)
        for x, y in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4 if x.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("program", PAGE, ids=lambda f: f.__name__)
def test_loops_of_the_page_do_so_for_several_sizes(program: Callable[..., Any]) -> None:
    names = tuple(inspect.signature(program).parameters)
    compiled = tatara.compile(program)
    for n in (24, 30, 41, 24, 57):
        _check(program, compiled, arguments(names, n))
