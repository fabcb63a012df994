"""Native loops: places of extremes, tuples that locals are given, functions of NumPy and of Python's math."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from util import check_native

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")
RNG = np.random.default_rng(0)


def best_pair(h):
    best, where = -np.inf, (0, 0)
    for i in range(h.shape[0]):
        for j in range(h.shape[1]):
            if h[i, j] > best:
                best = h[i, j]
                where = (i, j)
    return best, where


def never_assigned(h):
    where = "nowhere"
    for i in range(len(h)):
        if h[i, 0] > 1e9:
            where = (i, h[i, 0])
    return where


def pair_of_kinds(h):
    where = None
    for i in range(len(h)):
        where = (max(0, h[i, 0]), h[i, 1], i, 0.5, i > 3)
    return where


def viterbi(a, b, seen):
    t, n = len(seen), len(a)
    v, back = np.full((t, n), -np.inf), np.zeros((t, n), int)
    v[0] = b[:, seen[0]]
    for k in range(1, t):
        s = v[k - 1][:, None] + a
        back[k] = s.argmax(0)
        v[k] = s.max(0) + b[:, seen[k]]
    path = np.zeros(t, int)
    path[-1] = np.argmax(v[-1])
    for k in range(t - 2, -1, -1):
        path[k] = back[k + 1, path[k + 1]]
    return path, v


def pivots(a):
    out = np.zeros(len(a) - 1, dtype=np.int64)
    rows = np.zeros(len(a))
    for k in range(len(a) - 1):
        p = k + np.argmax(np.abs(a[k:, k]))
        out[k] = p + a[k].argmin()
        rows += np.argmin(a, axis=1) + a.argmax(axis=-1)
        m = np.argmax(a, axis=0, keepdims=True)
        rows += m[0]
    return out, rows, p


def swapped(a, perm):
    v = np.eye(len(a))
    for k in range(len(a) - 1):
        p = k + np.argmax(np.abs(a[k:, k]))
        if p != k:
            a[[k, p]] = a[[p, k]]
            perm[[k, p]] = perm[[p, k]]
            v[[k, p], : k + 1] = v[[p, k], : k + 1]
        v[[p, k, p], 1:] += k
        a[[-1, 0]] *= 1.01
        a[[0, 1, 2]] = a[3]
        a[[0, 0], :2] = a[4:6, 3:5]
        perm[[0, 3]] = k
    return a, perm, v


def functions(x):
    out = np.zeros((15, len(x)))
    for i in range(3):
        y = x * (i + 1) / 3
        out[0] += np.sign(y)
        out[1] += np.rint(y * 5) + np.round(y * 7) + np.trunc(y * 3)
        out[2] += np.tan(y) + np.arcsin(y) + np.arccos(y)
        out[3] += np.arctan(y) + np.arctan2(y, x)
        out[4] += np.sinh(y) + np.cosh(y)
        out[5] += np.exp2(y) + np.expm1(y)
        out[6] += np.log2(y + 2) + np.log10(y + 2) + np.log1p(y)
        out[7] += np.hypot(y, x) + np.square(y)
        for j in range(len(x)):
            out[8, j] += np.sign(x[j]) + np.rint(x[j] * 4)
            out[9, j] += math.sqrt(abs(x[j])) + math.exp(x[j]) + math.log(2 + x[j])
            out[10, j] += math.sin(x[j]) + math.cos(i) + math.tan(x[j])
            out[11, j] += math.atan2(x[j], 2) + math.hypot(x[j], 1.0) + math.pow(abs(x[j]), 1.5)
            z = math.fabs(x[j]) * 2
            out[12, j] += z
    return out, z


def roots_of(x):
    total = 0.0
    for i in range(len(x)):
        total += math.sqrt(x[i])
    return total


def named(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [named(each) for each in value]
    return type(value).__name__, getattr(value, "dtype", None), np.shape(value)


def close(mine: Any, theirs: Any) -> None:
    assert named(mine) == named(theirs)
    for a, b in zip(mine, theirs, strict=True) if isinstance(mine, tuple) else [(mine, theirs)]:
        if isinstance(a, (tuple, str)):
            assert a == b
        else:
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


H = RNG.normal(size=(40, 9))
WITH_NANS = np.where(RNG.random((12, 12)) < 0.2, np.nan, RNG.normal(size=(12, 12)))
PROGRAMS: list[tuple[Callable[..., Any], list[Any]]] = [
    (best_pair, [H]),
    (best_pair, [RNG.integers(0, 9, (9, 12))]),
    (never_assigned, [H]),
    (pair_of_kinds, [H]),
    (pair_of_kinds, [-np.abs(H)]),
    (viterbi, [RNG.normal(size=(4, 4)), RNG.normal(size=(4, 3)), RNG.integers(0, 3, 30)]),
    (viterbi, [np.ones((4, 4)), np.ones((4, 3)), RNG.integers(0, 3, 30)]),
    (pivots, [RNG.normal(size=(20, 20))]),
    (pivots, [RNG.integers(-3, 3, (20, 20))]),
    (swapped, [RNG.normal(size=(24, 24)), np.arange(24)]),
    (swapped, [np.asfortranarray(RNG.normal(size=(26, 26))), np.arange(26)]),
    (functions, [RNG.random(20) * 1.6 - 0.8]),
    (roots_of, [RNG.random(20)]),
]


@pytest.mark.parametrize(
    ("program", "arguments"), PROGRAMS, ids=[f"{p.__name__}-{n}" for n, (p, _) in enumerate(PROGRAMS)]
)
def test_as_in_numpy(program: Callable[..., Any], arguments: list[Any]) -> None:
    check_native(program, arguments, close)


def test_the_first_nan_is_the_place() -> None:
    compiled = tatara.compile(pivots)
    for _ in range(3):
        with np.errstate(invalid="ignore"):
            close(compiled(WITH_NANS.copy()), pivots(WITH_NANS.copy()))


@pytest.mark.parametrize("bad", [-1.0, -np.inf])
def test_errors_are_pythons(bad: float) -> None:
    compiled = tatara.compile(roots_of)
    x = RNG.random(20)
    for _ in range(3):
        assert compiled(x) == pytest.approx(roots_of(x), rel=1e-14)
    x[7] = bad
    for _ in range(3):
        with pytest.raises(ValueError, match=r"math domain error|expected a nonnegative input"):
            compiled(x)
