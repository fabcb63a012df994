"""Loops over elements and slices of arrays, which run as native code: results, arguments, locals and errors are NumPy's."""

from __future__ import annotations

import copy
import gc
import signal
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara
from tatara.report._report import report_of

pytestmark = pytest.mark.filterwarnings("ignore:tatara")

NATIVE = "a loop over arrays, which runs as native code"


def _outcome(f: Callable[..., Any], arguments: list[Any]) -> tuple[Any, list[Any], list[tuple[Any, str]]]:
    """Result or error, arguments afterwards, warnings."""
    given = copy.deepcopy(arguments)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = f(*given)
        except Exception as error:
            result = (type(error), str(error))
    told = [(w.category, str(w.message)) for w in said if "tatara" not in str(w.message)]
    return result, given, told


def _check_equal(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            _check_equal(a, b)
    elif isinstance(expected, (np.ndarray, np.generic, float, complex)):
        a, b = np.asarray(got), np.asarray(expected)
        assert (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        np.testing.assert_allclose(a, b, rtol=1e-4 if b.dtype in (np.float32, np.complex64) else 1e-9, atol=1e-12)
    else:
        assert got == expected


def _check(f: Callable[..., Any], *arguments: Any, loops: int = 1, calls: int = 3) -> None:
    """Equal to plain NumPy in each call, with so many native loops and no other break."""
    compiled = tatara.compile(f)
    before = tatara.stats()
    for _ in range(calls):
        got, expected = _outcome(compiled, list(arguments)), _outcome(f, list(arguments))
        for a, b in zip(got, expected, strict=True):
            _check_equal(a, b)
    now = tatara.stats()
    assert now["native_loops"] - before["native_loops"] == loops
    assert now["native_loop_runs"] - before["native_loop_runs"] == loops * calls
    assert [b.reason for b in report_of(compiled).breaks] == [NATIVE] * loops
    assert not report_of(compiled).recompiles


def _random(*shape: int, dtype: Any = np.float64) -> Any:
    return (np.random.default_rng(7).random(shape) + 0.5).astype(dtype)


def _prefix_products(a: Any, x: Any, b: Any) -> None:
    for i in range(x.shape[0]):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]


def _triangular(a: Any) -> None:
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[:j, j])
            a[i, j] /= a[j, j] + 20.0
        for j in range(i, a.shape[0]):
            a[i, j] -= 0.01 * (a[i, :i] @ a[:i, j])


def _stencil(steps: int, a: Any, b: Any) -> None:
    for _ in range(1, steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


def _overlapping(a: Any) -> None:
    for k in range(20):
        a[1:] = 0.5 * a[:-1] + 0.1 * k
        a[:-1] += a[1:]
        a *= 0.25
        a[:] = a[::-1] + a


def _outer_minimum(path: Any) -> None:
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


def _carried(r: Any) -> tuple[Any, Any, Any, Any]:
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - 0.1 * alpha * alpha
        alpha = -(0.1 * r[k] + 0.01 * np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y, alpha, beta, k


def _product_of_itself(a: Any, x: Any) -> Any:
    for _ in range(17):
        x[:] = a @ x / x.shape[0]
        a[0, :] = 0.1 * (x @ a)
    return x


def _chained(a: Any, b: Any) -> Any:
    for i in range(a.shape[0] - 1):
        b[i + 1 :, i] = b[i, i + 1 :] = a[:, i] @ a[:, i + 1 :]
    return b


def _counted(a: Any) -> Any:
    total = 0
    for i in range(a.shape[0]):
        for j in range(i, 0, -2):
            total += a[i, j] * 2 + abs(-a[j, i]) + max(a[i, i], a[j, j])
        last = i * 3 - 1
    return total, i, j, last


def _mixed(a: Any, scale: Any, offset: float, power: int) -> Any:
    s = np.float32(0)
    for i in range(len(a)):
        s = a[i] * scale + offset / power
        a[i] = np.sqrt(s * s) + i / 4 + power**2
    return s, a


def _temporaries(a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    old = None
    for k in range(a.shape[0]):
        row = a[k]
        old = b.copy()
        scaled = row * 2.0 + old
        b[1:] = scaled[:-1] - old[1:]
        part = scaled[:2]
        row[0] += part[1]
    row[1] = 7.0
    return row, old, scaled, a


def _of_two_dimensions(a: Any, b: Any) -> tuple[Any, Any]:
    for k in range(20):
        mixed = a + b * k
        a[0] = mixed[1]
        column = b[:, 1]
        column += 0.5
    return mixed, column


def _two_names(a: Any) -> tuple[Any, bool]:
    for k in range(20):
        row = a[k % 3]
        same = row
        same += 1.0
    return a, same is row


def _floyd(path: Any) -> None:
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


def _whole_numbers(a: Any, b: Any, half: float) -> Any:
    for i in range(1, a.shape[0]):
        a[i] = max(a[i], a[i - 1])
        a[i] += 3
        b[i] = a[i] / 2 + half * a[i - 1]
        a[:i] = a[:i] - a[i] * 2
        b[:i] += a[:i]
    return a, b


def _small(a: Any) -> None:
    for i in range(1, a.shape[0]):
        a[i] = a[i] + a[i - 1]


def _pressure(steps: int, p: Any, dx: float, b: Any) -> Any:
    pn = np.empty_like(p)
    for _ in range(steps):
        pn = p.copy()
        p[1:-1, 1:-1] = ((pn[1:-1, 2:] + pn[1:-1, 0:-2]) * dx**2 + b[1:-1, 1:-1]) / (2 * (dx**2 + 1))
        p[:, -1] = p[:, -2]
        p[-1, :] = 0
    return p[1, 1] * 0.5


def _smallest(x: Any, y: float) -> Any:
    x = x * y
    total = 0.0
    for i in range(3):
        total += x + i
    return total


def _calls(p: Any, b: Any, dx: float) -> tuple[Any, Any]:
    u = np.zeros_like(p)
    last = 0.0
    for _ in range(20):
        un = u.copy()
        last = _pressure(3, p, dx, b)
        u[1:-1, 1:-1] = un[1:-1, 1:-1] * dx + p[1:-1, 2:] - p[1:-1, 0:-2]
        u[0, :] = _smallest(last, dx)
    return u, last


def _branches(a: Any, limit: float) -> tuple[Any, Any, Any]:
    count = 0.0
    low = limit
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if i + 1 < a.shape[0] and j - 1 >= 0:
                a[i, j] += a[i + 1, j - 1]
            if i == j:
                continue
            if a[i, j] > limit:
                a[i, j] = a[i, j] - limit
                count += 1.0
            elif a[i, j] < low:
                low = a[i, j]
            else:
                a[i, j] *= 0.5
            if not j >= i:
                a[i, :j] += 0.25
        if i % 3 != 1:
            a[i, 0] -= 1.0
    return a, count, low


def _nested_continue(a: Any) -> Any:
    for i in range(a.shape[0]):
        if a[i] > 1.0:
            if a[i] > 1.25:
                continue
            a[i] = 0.5
        a[i] += 10.0
    return a


def _broken_off(a: Any) -> Any:
    for i in range(a.shape[0]):
        for j in range(i):
            if a[j] > 1.2:
                break
            a[j] += 0.1
        a[i] += j if i else 0
    return a


def _sparse(starts: Any, columns: Any, values: Any, x: Any) -> Any:
    y = np.empty(starts.size - 1, values.dtype)
    for i in range(y.size):
        cols = columns[starts[i] : starts[i + 1]]
        vals = values[starts[i] : starts[i + 1]]
        y[i] = vals @ x[cols] + x[columns[i]]
    return y


def _sparse_matrix(dtype: Any) -> list[Any]:
    random = np.random.default_rng(3)
    starts = np.sort(random.integers(0, 90, 31))
    starts[0], starts[-1] = 0, 90
    return [starts.astype(dtype), random.integers(0, 30, 90).astype(dtype), random.random(90), random.random(30)]


def _complex(g: Any, d: Any, r: Any, chosen: Any) -> Any:
    for k in range(g.shape[0]):
        for e in range(g.shape[0]):
            for a in range(chosen.shape[0]):
                if e - k >= 0:
                    left = g[e - k, chosen[a]] @ d[a]
                    right = -d[a] * r[k] * g[k, 0, 0, 0] + 2
                    g[e, a] += left @ right / 10.0
    return g


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "prefix products": (_prefix_products, [_random(40, 40), np.zeros(40), _random(40)]),
    "triangular loops": (_triangular, [_random(18, 18)]),
    "transposed": (_triangular, [_random(18, 18).T]),
    "float32": (_triangular, [_random(18, 18, dtype=np.float32)]),
    "strided": (_stencil, [20, _random(24, 26)[::2, ::2], _random(12, 13)]),
    "reversed": (_stencil, [20, _random(12, 13)[::-1, ::-1], _random(12, 13)]),
    "stencil": (_stencil, [20, _random(12, 13), _random(12, 13)]),
    "overlapping slices": (_overlapping, [_random(50)]),
    "outer": (_outer_minimum, [_random(21, 21)]),
    "carried numbers": (_carried, [_random(40)]),
    "products with themselves": (_product_of_itself, [_random(9, 9), _random(9)]),
    "one value stored twice": (_chained, [_random(20, 19), np.zeros((19, 19))]),
    "an int that becomes a float": (_counted, [_random(17, 17)]),
    "numbers of several types": (_mixed, [_random(30, dtype=np.float32), np.float32(1.5), 2.5, 3]),
    "arrays that locals are given": (_temporaries, [_random(17, 6), _random(6)]),
    "of two dimensions": (_of_two_dimensions, [_random(4, 5), _random(4, 5)]),
    "ints": (_floyd, [np.arange(400, dtype=np.int32).reshape(20, 20) % 37]),
    "ints of 64 bits": (_floyd, [np.arange(400).reshape(20, 20) % 37]),
    "ints and floats": (_whole_numbers, [np.arange(20, dtype=np.int32) % 7, _random(20), 0.5]),
    "functions that are called": (_calls, [_random(7, 8), _random(7, 8), 0.3]),
    "branches": (_branches, [_random(20, 20), 1.1]),
    "indices by arrays": (_sparse, _sparse_matrix(np.int64)),
    "indices by arrays without signs": (_sparse, _sparse_matrix(np.uint32)),
    "complex numbers": (
        _complex,
        [
            _random(5, 3, 2, 2) * (0.1 + 0.2j),
            _random(3, 2, 2) * (1 - 2j),
            _random(5),
            np.array([0, 2, 1], dtype=np.int32),
        ],
    ),
    "numbers of float64": (_mixed, [_random(30), np.float64(1.5), 2.5, 3]),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_loop_over_arrays_is_native_code_with_the_same_results(name: str) -> None:
    f, arguments = CASES[name]
    _check(f, *arguments)


def test_loops_one_behind_the_other_are_native_each() -> None:
    def f(a: Any, x: Any) -> Any:
        y = np.zeros_like(x)
        for i in range(a.shape[0]):
            y[i] = x[i] - 0.01 * (a[i, :i] @ y[:i])
        y *= 2.0
        for i in range(a.shape[0] - 1, -1, -1):
            x[i] = (y[i] - 0.01 * (a[i, i + 1 :] @ x[i + 1 :])) / a[i, i]
        return x, y, i

    _check(f, _random(30, 30), _random(30), loops=2)


@pytest.mark.parametrize("f", [_nested_continue, _broken_off])
def test_branches_of_another_form_have_the_same_results(f: Callable[..., Any]) -> None:
    compiled = tatara.compile(f)
    for _ in range(3):
        for got, expected in zip(_outcome(compiled, [_random(30)]), _outcome(f, [_random(30)]), strict=True):
            _check_equal(got, expected)


@pytest.mark.parametrize("bad", [-1, -30, 30, 10**6])
def test_an_index_that_an_array_has_may_be_negative_or_outside(bad: int) -> None:
    starts, columns, values, x = _sparse_matrix(np.int64)
    columns[50] = bad
    compiled = tatara.compile(_sparse)
    for _ in range(3):
        arguments = [starts, columns, values, x]
        for got, expected in zip(_outcome(compiled, arguments), _outcome(_sparse, arguments), strict=True):
            _check_equal(got, expected)


def test_a_function_that_is_called_may_change() -> None:
    space: dict[str, Any] = {}
    exec("def g(x): return x * 2.0\ndef f(a):\n    for i in range(20):\n        a[i] = g(a[i])\n    return a\n", space)
    compiled = tatara.compile(space["f"])
    first = space["g"]

    def check() -> None:
        for got, expected in zip(_outcome(compiled, [_random(20)]), _outcome(space["f"], [_random(20)]), strict=True):
            _check_equal(got, expected)

    check()
    first.__code__ = (lambda x: x * 3.0).__code__
    check()
    space["g"] = lambda x: x + 1.0
    check()


def test_what_native_loops_know_is_freed_with_the_function() -> None:
    space: dict[str, Any] = {"np": np}
    exec("def g(x): return x * 2.0\ndef f(a):\n    for i in range(20):\n        a[i] = g(np.sqrt(a[i]))\n", space)
    space["compiled"] = tatara.compile(space["f"])
    before = tatara.stats()["native_loop_runs"]
    space["compiled"](_random(20))
    assert tatara.stats()["native_loop_runs"] == before + 1
    alive = weakref.ref(space["g"])
    del space
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("f", [_two_names, _small, _floyd, _counted, _whole_numbers, _of_two_dimensions])
@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int32, np.int64, np.float32, np.float64, np.complex64, np.complex128]
)
def test_whatever_the_type_is_the_results_are_numpys(f: Callable[..., Any], dtype: Any) -> None:
    a, b = (np.arange(36).reshape(6, 6) % 11).astype(dtype), np.asfortranarray(_random(6, 6))
    arguments = {
        _two_names: [a],
        _small: [np.arange(60).astype(dtype)],
        _whole_numbers: [a[:, 0], b[0], 0.5],
        _floyd: [a],
        _counted: [np.repeat(np.repeat(a, 4, 0), 4, 1)],
    }
    compiled = tatara.compile(f)
    for _ in range(3):
        given = arguments.get(f, [a, b])
        for got, expected in zip(_outcome(compiled, given), _outcome(f, given), strict=True):
            _check_equal(got, expected)


@pytest.mark.parametrize("place", [-1, 0, 7, 40])
def test_an_index_outside_raises_where_the_program_comes_to_it(place: int) -> None:
    def f(a: Any, n: int) -> Any:
        for i in range(20):
            a[i] = 2.0 * a[i]
            a[0] += a[i + n - 19]
        return a

    compiled = tatara.compile(f)
    for _ in range(3):
        arguments = [_random(30), 19 + place]
        for a, b in zip(_outcome(compiled, arguments), _outcome(f, arguments), strict=True):
            _check_equal(a, b)


@pytest.mark.parametrize("divisor", [0.0, np.float64(0.0), 0])
def test_divisions_by_zero_warn_or_raise_as_in_numpy(divisor: Any) -> None:
    def f(a: Any, d: Any, one: float) -> Any:
        for i in range(20):
            a[i] = a[i] + 1.0
            if_zero = one / d
            a[i] *= if_zero
        return a

    def g(a: Any, d: Any, one: float) -> Any:
        for i in range(20):
            a[i:] = a[i:] / (d * a[i:])
        return a

    for function in (f, g):
        compiled = tatara.compile(function)
        for _ in range(3):
            arguments = [_random(30), divisor, 1.0]
            for a, b in zip(_outcome(compiled, arguments), _outcome(function, arguments), strict=True):
                _check_equal(a, b)


def test_a_loop_without_turns_assigns_nothing() -> None:
    def f(a: Any, n: int) -> Any:
        last = None
        for i in range(20):
            for j in range(n):
                a[i] += j
                last = 1.5
        return last, i

    compiled = tatara.compile(f)
    for n in (0, 3, 0, 2, 5, 6, 7):
        for a, b in zip(_outcome(compiled, [_random(30), n]), _outcome(f, [_random(30), n]), strict=True):
            _check_equal(a, b)


def test_a_local_without_value_raises() -> None:
    def f(a: Any, n: int) -> Any:
        for i in range(20):
            for j in range(n):
                value = a[j] * 2.0
            a[i] = value
        return a

    compiled = tatara.compile(f)
    for n in (0, 3, 0):
        for a, b in zip(_outcome(compiled, [_random(30), n]), _outcome(f, [_random(30), n]), strict=True):
            _check_equal(a, b)


def test_arrays_that_share_memory_are_left_to_numpy() -> None:
    def f(a: Any, b: Any) -> None:
        for i in range(1, 20):
            a[i] = b[i - 1] + a[i]
            b[:i] += 0.5 * a[1 : i + 1]

    compiled = tatara.compile(f)
    for shift in (0, 1, 5, 40):
        ours, theirs = _random(80), _random(80)
        compiled(ours[:30], ours[shift : shift + 30])
        f(theirs[:30], theirs[shift : shift + 30])
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_other_sizes_types_and_values_are_seen() -> None:
    compiled = tatara.compile(_prefix_products)
    for n, dtype in ((20, float), (31, float), (20, float), (20, np.float32), (20, np.int64), (25, float), (0, float)):
        a, b = (10 * _random(n, n)).astype(dtype), (10 * _random(n)).astype(dtype)
        arguments = [a, np.zeros(n, dtype), b]
        for got, expected in zip(_outcome(compiled, arguments), _outcome(_prefix_products, arguments), strict=True):
            _check_equal(got, expected)


def test_a_function_that_was_replaced_is_called() -> None:
    functions = {"root": np.sqrt}
    space: dict[str, Any] = {"root": np.sqrt}
    exec("def f(a):\n    for i in range(20):\n        a[i] = root(a[i])\n    return a\n", space)
    compiled = tatara.compile(space["f"])
    for function in (functions["root"], np.exp, lambda v: v + 1, np.sqrt):
        space["root"] = function
        got, expected = _outcome(compiled, [_random(20)]), _outcome(space["f"], [_random(20)])
        for a, b in zip(got, expected, strict=True):
            _check_equal(a, b)


def test_a_range_far_away_is_the_interpreters() -> None:
    def f(a: Any, step: int) -> Any:
        for i in range(0, 20 * step, step):
            a[i // step] += 1.0
        return a, i

    compiled = tatara.compile(f)
    for step in (2**62, 2**61, 2**50, 3, 2**62):
        for got, expected in zip(
            _outcome(compiled, [_random(30), step]), _outcome(f, [_random(30), step]), strict=True
        ):
            _check_equal(got, expected)


def test_arrays_that_may_not_be_written_raise() -> None:
    def f(a: Any) -> None:
        for i in range(20):
            a[i] = 1.0

    frozen = _random(20)
    frozen.flags.writeable = False
    compiled = tatara.compile(f)
    for _ in range(3):
        with pytest.raises(ValueError, match="read-only"):
            compiled(frozen)


def test_a_loop_whose_iterator_is_held_is_the_interpreters() -> None:
    def f(a: Any) -> Any:
        it = iter(range(20))
        for i in it:
            a[i] = 2.0 * a[i]
            if i > 5:
                break
        return a, list(it)

    compiled = tatara.compile(f)
    for _ in range(3):
        for a, b in zip(_outcome(compiled, [_random(30)]), _outcome(f, [_random(30)]), strict=True):
            _check_equal(a, b)


def test_with_fullgraph_a_loop_breaks_no_graph() -> None:
    compiled = tatara.compile(_outer_free, fullgraph=True)
    a = _random(20)
    np.testing.assert_allclose(compiled(a.copy()), _outer_free(a.copy()))


def _outer_free(a: Any) -> Any:
    for i in range(20):
        a = a * 0.5 + a[i]
    return a


class _Stop(Exception):
    pass


def test_a_signal_ends_a_long_loop_between_two_turns() -> None:
    def f(a: Any) -> None:
        for i in range(2**29):
            a[0] += 1.0
            a[1:] = a[0] + i

    def stop(*_: object) -> None:
        raise _Stop

    compiled = tatara.compile(f)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(2):
            a = np.zeros(5)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(_Stop):
                compiled(a)
            assert a[0] > 1000
            assert (a[1:] == a[0] + a[0] - 1).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
