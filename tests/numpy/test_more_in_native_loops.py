"""Native loops: ranges whose step is a variable, max and min of several numbers, rows that are unpacked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def sieve(n, first):
    prime = np.ones(n, dtype=bool)
    i = first
    while i * i < n:
        if prime[i]:
            for j in range(i * i, n, i):
                prime[j] = False
        i += 1
    return prime


def distance(x, y):
    d = np.full((len(x) + 1, len(y) + 1), np.inf)
    d[0, 0] = 0
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            d[i, j] = abs(x[i - 1] - y[j - 1]) + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d


def largest_of_four(a, out):
    for i in range(len(a) - 3):
        out[i] = max(a[i], a[i + 1], a[i + 2], a[i + 3])


def groups(edges, parent):
    left = len(parent)
    for u, v in edges:
        while parent[u] != u:
            u = parent[u]
        while parent[v] != v:
            v = parent[v]
        if u != v:
            parent[u] = v
            left -= 1
    return left


def rows_of_rows(m, out):
    for i in range(len(out)):
        a, b, c = m[i] * 2.0
        out[i] = a + b * c


def _outcome(f: Callable[..., Any], given: list[Any]) -> tuple[Any, list[Any]]:
    mine = copy.deepcopy(given)
    try:
        return f(*mine), mine
    except Exception as error:
        return (type(error), str(error)), mine


def _same(got: Any, wanted: Any) -> None:
    assert type(got) is type(wanted)
    if isinstance(wanted, (tuple, list)):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            _same(one, other)
    elif isinstance(wanted, np.ndarray):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    else:
        assert got == wanted


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).random(shape)


def _cases() -> list[Any]:
    odd = _numbers(9)
    odd[[2, 5]] = np.nan
    edges = np.random.default_rng(3).integers(0, 40, (60, 2))
    return [
        (sieve, [200, 2], True),
        (sieve, [200, 0], False),  # a step of zero is an error, and the interpreter's own
        (distance, [_numbers(12), _numbers(9)], True),
        (largest_of_four, [_numbers(30), np.zeros(30)], True),
        (largest_of_four, [odd, np.zeros(9)], False),  # a comparison with NaN raises a flag
        (groups, [edges, np.arange(40)], True),
        (groups, [edges[:, [1, 0]], np.arange(20)], False),  # an index outside
        (rows_of_rows, [_numbers(40, 3), np.zeros(40)], True),
        (rows_of_rows, [_numbers(40, 4), np.zeros(40)], False),  # too many values to unpack
    ]


@pytest.mark.parametrize(("program", "given", "native"), _cases())
def test_what_the_plain_loop_does(program: Callable[..., Any], given: list[Any], native: bool) -> None:
    compiled = tatara.compile(program)
    before = tatara.stats()["native_loop_runs"]
    for _ in range(3):
        _same(_outcome(compiled, given), _outcome(program, given))
    assert (tatara.stats()["native_loop_runs"] - before >= 3) == native
