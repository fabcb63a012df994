"""Arrays that a turn of a native loop replaces and a later one reads, and what else such loops say."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from util import same

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def _data() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return rng.random((6, 5)), rng.random((6, 5)), rng.random((5, 5)) / 5, np.zeros(30)


def _replaced(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        x = x + 0.1 * (y - x)
        out[t] = x.sum()
    return x


def _by_neighbours(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        x = 0.5 * (x[::-1] + y) - 0.25 * x
        out[t] = x[1, 2]
    return x, y


def _two(x: Any, y: Any, m: Any, out: Any) -> Any:
    for _ in range(30):
        a = y - x
        x = x + 0.1 * a
        y = y - 0.1 * x @ m
    return x, y


def _under_a_condition(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        if t > 3:
            x = x * 0.9 + y
        if x[0, 0] > 5:
            x = x - 1
            continue
        out[t] = x.max()
    return x


def _left_early(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        x = x + y
        if x[0, 0] > 3:
            break
        out[t] = x[2, 2]
    return x, t


def _products(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        m = m @ m.T + 0.1 * np.diff(np.hstack([m, m[:, :1]]), axis=1)
        out[t] = m[0, 1]
    return m


def _inner(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(20):
        for _ in range(t % 3):
            x = x * 0.5 + y[0, 0]
        out[t] = x[0, 0]
    return x


def _tuple_of_arrays(x: Any, y: Any, m: Any, out: Any) -> None:
    for t in range(30):
        for field in (x, y):
            field[0, :] = field[-2, :]
            field[1:, 1:] += 0.1 * field[:-1, :-1]
            if field[1, 1] > 2:
                continue
            out[t] = field[2, 3]


def _transposed(x: Any, y: Any, m: Any, out: Any) -> None:
    for t in range(30):
        m[:] = (
            0.1 * (m.T - m) ** 2
            + np.concatenate((m[:2], m[2:])) * 0.1
            + np.diff(y[:, 0])[:, None] * (np.abs(m) + 1.5) ** -1.5
        )
        out[t] = m[1, 2]


NATIVE = [
    _replaced,
    _by_neighbours,
    _two,
    _under_a_condition,
    _left_early,
    _products,
    _inner,
    _tuple_of_arrays,
    _transposed,
]


# What is no native loop, for each such array has a second name or is written to.


def _written(x: Any, y: Any, m: Any, out: Any) -> Any:
    for _ in range(30):
        x[0, 0] += 1
        x = x + y
    return x


def _written_by_another_name(x: Any, y: Any, m: Any, out: Any) -> Any:
    other = x
    for t in range(30):
        out[t] = x[0, 0]
        other[0, 0] += 1
        x = x + y
    return x


def _kept(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        old = x
        x = x + y
        out[t] = (x - old).sum()
    return x, old


def _swapped(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        x, y = y, x * 0.5
        out[t] = x[0, 0]
    return x, y


def _both(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(30):
        x, y = x + 1, x + y
        out[t] = y[0, 0]
    return x, y


def _of_itself(x: Any, y: Any, m: Any, out: Any) -> Any:
    for t in range(3):
        for row in x:
            x = x + row
            out[t] = x[0, 0]
    return x


def _other_type(x: Any, y: Any, m: Any, out: Any) -> Any:
    n = np.arange(5)
    for t in range(30):
        out[t] = n[2]
        n = n * 0.5
    return n


def _other_layout(x: Any, y: Any, m: Any, out: Any) -> Any:
    x = np.asfortranarray(x)
    for t in range(30):
        x = x * 0.5 + 1
        out[t] = x[0, 0]
    return x


def _part_of_it(x: Any, y: Any, m: Any, out: Any) -> Any:
    row = x[0]
    for t in range(30):
        out[t] = row[1]
        x = x + 1
        row = x[t % 5]
    return x, row


OTHERS = [
    _written,
    _written_by_another_name,
    _kept,
    _swapped,
    _both,
    _of_itself,
    _other_type,
    _other_layout,
    _part_of_it,
]


def _compare(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    tatara.reset()
    compiled = tatara.compile(function)
    for _ in range(2):
        theirs, ours = copy.deepcopy(arguments), copy.deepcopy(arguments)
        same(function(*theirs), compiled(*ours))
        same(theirs, ours)


@pytest.mark.parametrize("function", NATIVE, ids=lambda f: f.__name__)
def test_loops_that_replace_arrays_are_native(function: Callable[..., Any]) -> None:
    _compare(function, _data())
    stats = tatara.stats()
    assert stats["native_loops"] >= 1
    assert stats["native_loops_taken_back"] == 0
    assert stats["native_loop_runs"] >= 2


@pytest.mark.parametrize("function", OTHERS, ids=lambda f: f.__name__)
def test_arrays_with_two_names_are_right(function: Callable[..., Any]) -> None:
    _compare(function, _data())


def test_other_sizes() -> None:
    tatara.reset()
    compiled = tatara.compile(_replaced)
    for n in (4, 7, 9, 4):
        x, y = np.random.default_rng(n).random((2, n, 3))
        out, ours = np.zeros(30), np.zeros(30)
        same(_replaced(x, y, None, out), compiled(x, y, None, ours))
        same(out, ours)


def test_argument_is_not_changed() -> None:
    x, y, m, out = _data()
    kept = x.copy()
    tatara.compile(_replaced)(x, y, m, out)
    np.testing.assert_array_equal(x, kept)


def test_no_turn_leaves_the_object() -> None:
    def f(x: Any, n: Any) -> Any:
        for _ in range(n):
            x = x + 1
        return x

    compiled = tatara.compile(f)
    x = np.ones(4)
    compiled(x, 30)
    assert compiled(x, 0) is x


def _logarithms(x: Any, out: Any) -> None:
    for i in range(20):
        out[i] = np.log(x[i])


def _powers(x: Any, out: Any) -> None:
    for i in range(20):
        out[i] = x[i] ** -1.5


def _sines(x: Any, out: Any) -> None:
    for i in range(20):
        out[i] = np.sin(x[i])


def _single_logarithms(x: Any, out: Any) -> None:
    for i in range(20):
        out[i, 0] = np.log(x[i, 1])


@pytest.mark.parametrize("function", [_logarithms, _powers, _sines, _single_logarithms], ids=lambda f: f.__name__)
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, -np.inf, np.nan, 1e-320, 3.0])
def test_functions_warn_as_numpy(function: Callable[..., Any], value: float) -> None:
    x = np.ones((20, 3))
    x[7] = value

    def run(f: Callable[..., Any]) -> tuple[list[str], Any]:
        out = np.zeros((20, 3))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            f(x, out)
        return [str(w.message) for w in seen if "tatara" not in str(w.message)], out

    compiled = tatara.compile(function)
    compiled(np.ones((20, 3)), np.zeros((20, 3)))
    expected, actual = run(function), run(compiled)
    assert actual[0] == expected[0]
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-12)


def test_a_loop_that_is_too_long_is_seen_early() -> None:
    def f(x: Any) -> Any:
        for _ in range(2_000):
            x = np.sort(x[::-1]) * 0.5
        return x

    before = tatara.stats()["calls_recorded"]
    np.testing.assert_array_equal(tatara.compile(f)(np.arange(4.0)), f(np.arange(4.0)))
    assert tatara.stats()["calls_recorded"] - before < 50


@pytest.mark.parametrize("n", [9, 16])
def test_idle_lanes_are_no_faults(n: int) -> None:
    def quotients(a: Any, b: Any, out: Any) -> None:
        for i in range(30):
            out[i] = np.sqrt(a[i] / b[i] - 1.0) + b[i] ** -1.5

    tatara.reset()
    a, b = np.random.default_rng(n).random((2, 40, n)) + 1
    a += 2
    ours, theirs = np.zeros((2, 30, n))
    tatara.compile(quotients)(a, b, ours)
    quotients(a, b, theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert tatara.stats()["native_loop_runs"] == 1
    assert tatara.stats()["native_loops_taken_back"] == 0
