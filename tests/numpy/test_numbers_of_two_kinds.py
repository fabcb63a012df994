"""Native loops: numbers that are Python's or NumPy's, as the run decides; their types are those of the plain program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from util import check_native

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def largest_change(u, most):
    err, turns = np.inf, 0
    while err > 1e-3 and turns < most:
        err = 0.0
        for i in range(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                old = u[i, j]
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
                err = max(err, abs(u[i, j] - old))
        turns += 1
    return err, turns


def scores(a, b):
    h = np.zeros((len(a) + 1, len(b) + 1), int)
    best = 0
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            s = h[i - 1, j - 1] + (3 if a[i - 1] == b[j - 1] else -3)
            h[i, j] = max(0, s, h[i - 1, j] - 2, h[i, j - 1] - 2)
            if h[i, j] > best:
                best = h[i, j]
    return h, best


def roots(parent):
    found = np.empty_like(parent)
    x = -1
    for i in range(len(parent)):
        x = i * 2 // 2
        while parent[x] != x:
            x = parent[x]
        found[i] = x
    return found, x


def clamped(x):
    low, high, last = 0, 1.0, 0
    for i in range(len(x)):
        low = min(low, x[i])
        high = max(high, x[i])
        last = max(0, x[i])
    return low, high, last


def running(x):
    total, kept = 0.0, 0
    out = np.zeros(len(x))
    for i in range(len(x)):
        total = max(0.0, total + x[i])
        kept = max(kept, 3) if x[i] > 0 else kept
        out[i] = total * 2 + kept
    return out, total, kept


def carried_on(x):
    a = b = 0
    for i in range(len(x)):
        a = max(0.0, x[i])
        b = a * 2.0 + 1
    return a, b


def ints_go_on(x, start):
    m = start
    for i in range(len(x)):
        m = max(m, x[i])
        k = m + 1
        x[i] = m % 7
    return m, k


def times_ints(x):
    m = k = 0
    for i in range(len(x)):
        m = max(0, x[i])
        k = m * 3
    return m, k


def smallest_of_many(x, y):
    best = np.inf
    step = 1.0
    for i in range(len(x)):
        step = min(4, max(0.1, x[i]))
        best = min(best, step, y[i])
    return best, step


def halves(x):
    q = 0
    for i in range(len(x)):
        q = max(0, x[i]) / 4 + min(1, x[i]) // 3
    return q


def named(value: Any) -> Any:
    return [named(each) for each in value] if isinstance(value, (tuple, list)) else (type(value).__name__, repr(value))


def same_named(mine: Any, theirs: Any) -> None:
    assert named(mine) == named(theirs)


RNG = np.random.default_rng(0)
INTS = RNG.integers(-9, 9, 40)
FLOATS = RNG.normal(size=40)
PROGRAMS: list[tuple[Callable[..., Any], list[Any]]] = [
    (largest_change, [RNG.random((12, 9)), 5]),
    (scores, [RNG.integers(0, 4, 30), RNG.integers(0, 4, 20)]),
    (roots, [np.maximum(np.arange(40) - RNG.integers(0, 5, 40), 0)]),
    (roots, [np.arange(9)]),
    (clamped, [FLOATS]),
    (clamped, [np.abs(FLOATS)]),
    (clamped, [-np.abs(FLOATS)]),
    (running, [FLOATS]),
    (running, [-np.abs(FLOATS)]),
    (carried_on, [FLOATS]),
    (carried_on, [np.abs(FLOATS)]),
    (carried_on, [-np.abs(FLOATS)]),
    (ints_go_on, [INTS, 2]),
    (ints_go_on, [INTS, 200]),
    (ints_go_on, [INTS, np.int64(3)]),
    (times_ints, [INTS]),
    (times_ints, [np.array([5, -1, 3, 2] * 5)]),
    (times_ints, [FLOATS]),
    (times_ints, [-np.abs(FLOATS)]),
    (smallest_of_many, [FLOATS, FLOATS[::-1]]),
    (smallest_of_many, [FLOATS + 9, FLOATS + 9]),
    (halves, [INTS]),
]


@pytest.mark.parametrize(
    ("program", "arguments"), PROGRAMS, ids=[f"{p.__name__}-{n}" for n, (p, _) in enumerate(PROGRAMS)]
)
def test_as_in_numpy(program: Callable[..., Any], arguments: list[Any]) -> None:
    check_native(program, arguments, same_named)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32"])
def test_other_types_are_numpys(dtype: str) -> None:
    """What is one of two types, neither of which holds the other, is left to NumPy."""
    x = RNG.integers(0, 100, 20).astype(dtype)
    compiled = tatara.compile(times_ints)
    for _ in range(3):
        assert named(compiled(x.copy())) == named(times_ints(x.copy()))
