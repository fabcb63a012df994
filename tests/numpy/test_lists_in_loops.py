"""Native loops: lists of the frame that numbers and tuples are appended to; complex numbers made of real ones."""

from __future__ import annotations

import math

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def runs(x):
    values, counts = [], []
    before, count = x[0], 1
    for v in x[1:]:
        if v == before:
            count += 1
        else:
            values.append(before)
            counts.append(count)
            before, count = v, 1
    values.append(before)
    counts.append(count)
    return values, counts


def kinds(x, k):
    found = [None]
    for i in range(len(x)):
        found.append(i)
        found.append(x[i])
        found.append(float(x[i]))
        found.append(k[i])
        found.append(x[i] > 0.5)
        found.append(i > 3)
        found.append((i, x[i], k[i]))
    return found


def of_two_kinds(x):
    sums, total, best, ints = [], 0.0, 0, []
    for i in range(len(x)):
        if i > 5:
            total = total + x[i]
        best = max(best, x[i])
        sums.append(total)
    return sums, best, ints


def inner_loops(x, most):
    path, ends, i = [], [], 0
    while i < len(x):
        j = i
        while j < len(x) - 1 and x[j + 1] > x[j]:
            j += 1
            path.append((i, j))
        ends.append(j)
        if len(x) - j < most:
            break
        i = j + 1
    return path, ends


def one_list_of_two_names(x):
    a = []
    b = a
    for i in range(len(x)):
        a.append(x[i])
        if x[i] > 0.3:
            b.append(i)
    return a, b is a


def older_list(x, into):
    for v in x:
        into.append(v * 2)
    return into


def complex_numbers(n, c, most):
    out = np.zeros((n, n), int)
    for i in range(n):
        for j in range(n):
            z, k = complex(-1.5 + 3 * j / n, -1.5 + 3 * i / n) + complex(i) * 0, 0
            while abs(z) <= 2 and k < most:
                z = z * z + c
                k += 1
            out[i, j] = k
    return out, z


def draw(n, seed):
    return np.random.default_rng(seed).random(n)


CASES = {
    "runs": (runs, lambda n, s: [np.random.default_rng(s).integers(0, 3, n)], 1),
    "kinds": (kinds, lambda n, s: [draw(n, s), np.random.default_rng(s).integers(0, 9, n).astype(np.int16)], 1),
    "of two kinds": (of_two_kinds, lambda n, s: [draw(n, s)], 1),
    "inner loops": (inner_loops, lambda n, s: [draw(n, s), 3], 1),
    "one list of two names": (one_list_of_two_names, lambda n, s: [draw(n, s)], 1),
    "an older list": (older_list, lambda n, s: [draw(n, s), [1, "a"]], 1),
    "complex numbers": (complex_numbers, lambda n, s: [n % 20, complex(-0.7, 0.27 + 0.01 * s), 30], 1),
}


def same(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    else:
        assert a == b


@pytest.mark.parametrize("name", CASES)
def test_lists_are_those_of_the_plain_program(name):
    function, make, native = CASES[name]
    compiled = tatara.compile(function)
    before = tatara.stats()
    for n, seed in ((50, 0), (50, 1), (50, 2), (70, 3), (31, 4)):
        given, plain = make(n, seed), make(n, seed)
        same(compiled(*given), function(*plain))
        same(given, plain)
    after = tatara.stats()
    assert after["native_loop_runs"] - before["native_loop_runs"] >= 3 * native
    assert after["native_loops_taken_back"] == before["native_loops_taken_back"]


def test_a_loop_that_is_taken_back_has_appended_nothing():
    def f(x, d):
        found = []
        for i in range(len(x)):
            found.append(x[i])
            x[i] = x[i] / d[i]
        return found

    compiled = tatara.compile(f)
    for zero in (False, False, True, False):
        d = np.ones(40)
        if zero:
            d[30] = 0
        with np.errstate(divide="ignore", invalid="ignore"):
            same(compiled(draw(40, 1), d.copy()), f(draw(40, 1), d.copy()))


def test_more_than_the_log_holds_is_the_interpreters():
    def f(x, n):
        found = []
        for i in range(n):
            for k in range(n):
                found.append(x[i] + k)
        return len(found), found[-1]

    compiled = tatara.compile(f)
    x = draw(600, 0)
    before = tatara.stats()["native_loops_taken_back"]
    for n in (40, 40, 600):
        assert compiled(x, n) == f(x, n)
    assert tatara.stats()["native_loops_taken_back"] == before + 1


def test_lists_that_the_loop_reads_are_the_interpreters():
    def f(x):
        found = [0.0]
        for i in range(len(x)):
            found.append(found[-1] + x[i])
        return found

    compiled = tatara.compile(f)
    before = tatara.stats()["native_loop_runs"]
    for seed in range(3):
        same(compiled(draw(40, seed)), f(draw(40, seed)))
    assert tatara.stats()["native_loop_runs"] == before


def test_an_array_of_a_long_list_of_scalars_breaks_the_graph():
    def f(values):
        return np.array(values) * 2 + 1

    compiled = tatara.compile(f)
    for n in (100, 101, 102, 103):
        assert np.array_equal(compiled(list(draw(n, n))), f(list(draw(n, n))))
    report = tatara.explain(f)(list(draw(100, 0)))
    assert [each.reason for each in report.breaks] == ["a list of many NumPy scalars (array)"]
    assert tatara.explain(f)(list(draw(10, 0))).breaks == []


def vectors(x, w):
    sizes = np.empty(len(x))
    signed = np.empty(len(x))
    for i in range(len(x)):
        sizes[i] = np.linalg.norm(x[i])
        w -= np.outer(x[i], x[i]) * 0.01
        signed[i] = np.copysign(sizes[i], x[i, 0]) + math.copysign(2.0, -x[i, 1])
        x[i] = x[i] / np.linalg.norm(x[i] + 1)
    return sizes, signed


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_norms_outer_products_and_signs_are_native(dtype):
    compiled = tatara.compile(vectors)
    before = tatara.stats()["native_loop_runs"]
    for seed in range(4):
        random = np.random.default_rng(seed)
        x, w = random.normal(size=(40, 6)).astype(dtype), random.normal(size=(6, 6)).astype(dtype)
        x[3, 0], x[4, 1] = -0.0, 0.0
        plain = [x.copy(), w.copy()]
        wide = 1e-12 if dtype is np.float64 else 1e-4
        got, expected = [*compiled(x, w), x, w], [*vectors(*plain), *plain]
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=wide, atol=wide)
    assert tatara.stats()["native_loop_runs"] - before >= 3
