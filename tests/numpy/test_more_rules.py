"""Rules of calls that several operators make: integers, complex numbers, masks, products, diagonals, lists; constants."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from util import check, same

import numpy as np
import tatara

RNG = np.random.default_rng(8)
M = np.round(RNG.standard_normal((5, 4)) * 4)
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"]


def exactly(function: Callable[..., Any], *args: Any) -> None:
    """Values bit for bit, types and warnings, in four calls."""
    compiled = tatara.compile(function)
    for _ in range(4):
        said: list[list[str]] = []
        results = []
        for each in (function, compiled):
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                results.append(each(*args))
            said.append([str(warning.message) for warning in heard])
        want, got = (r if isinstance(r, tuple) else (r,) for r in results)
        for w, g in zip(want, got, strict=True):
            assert w.dtype == g.dtype and w.shape == g.shape
            assert np.array_equal(w, g, equal_nan=w.dtype.kind in "fc")
            if w.dtype.kind == "f":
                assert np.array_equal(np.signbit(w), np.signbit(g))
        assert said[0] == said[1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    info = np.iinfo(dtype)
    a = RNG.integers(info.min, info.max, 200, dtype=dtype, endpoint=True)
    b = RNG.integers(max(info.min, -5), 6, 200).astype(dtype)
    a[:3], a[3:5] = info.min, info.max
    b[0] = -1 if info.min < 0 else 1
    nonzero = np.where(b == 0, 1, b).astype(dtype)
    for function in (np.floor_divide, np.remainder, np.fmod, np.divmod):
        exactly(function, a, b)
        exactly(function, a, nonzero)
        exactly(function, a[5:], nonzero[5:])
    shifts = RNG.integers(0 if info.min == 0 else -3, 70, 200).astype(dtype)
    exactly(np.left_shift, a, shifts)
    exactly(np.right_shift, a, shifts)
    if info.bits >= 32:
        exactly(np.power, b, RNG.integers(0, 70, 200).astype(dtype))
        exactly(np.reciprocal, nonzero)
    with np.errstate(all="ignore"):
        exactly(np.floor_divide, a, b)
        exactly(np.remainder, a, b)


def test_negative_powers_of_integers_are_an_error() -> None:
    compiled = tatara.compile(lambda a, b: a**b)
    same(np.array([1, 8]), compiled(np.array([1, 2]), np.array([2, 3])))
    same(np.array([1, 8]), compiled(np.array([1, 2]), np.array([2, 3])))
    with pytest.raises(ValueError, match="negative integer powers"):
        compiled(np.array([1, 2]), np.array([2, -3]))


def test_integers_are_divided_in_a_kernel() -> None:
    a, b = RNG.integers(1, 9, 20), RNG.integers(1, 9, 20)
    check(lambda a, b: (a // b + a % b) ** 2, a, b, hosts=0, kernels=1)


@pytest.mark.parametrize(
    "name", ["less", "less_equal", "greater", "greater_equal", "maximum", "minimum", "fmax", "fmin"]
)
def test_complex_numbers_in_order(name: str) -> None:
    function = getattr(np, name)
    c = np.round(RNG.standard_normal(60)) + 1j * np.round(RNG.standard_normal(60))
    other = c[::-1].copy()
    exactly(function, c, other)
    check(function, c, other, hosts=0)
    c[0], c[1], other[2] = complex(np.nan, 1), complex(1, np.nan), complex(2, np.nan)
    exactly(function, c, other)


def test_parts_of_numbers() -> None:
    x = RNG.standard_normal(100) * 10.0 ** RNG.integers(-300, 300, 100)
    x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, -8.0]
    exactly(np.modf, x)
    check(np.rint, (RNG.standard_normal(9) + 1j * RNG.standard_normal(9)) * 3, hosts=0)
    check(lambda c: np.var(c) + np.std(c, axis=0).sum(), M + 1j * M.round(), hosts=0)


PRODUCTS: list[Callable[..., Any]] = [
    lambda x: np.dot(x, x.T),
    lambda x: x @ x.T,
    lambda x: x @ x[0],
    lambda x: x[:, 0] @ x,
    lambda x: np.dot(x[0], x[1]),
    lambda x: np.inner(x, x),
    lambda x: np.vdot(x, x),
    lambda x: np.matmul(x.reshape(5, 2, 2), x.reshape(5, 2, 2)),
    lambda x: np.vecdot(x, x + 1),
    lambda x: np.einsum("ij,kj->ki", x, x),
    lambda x: np.einsum("j,k", x[0], x[1]),
    lambda x: np.einsum("ij->j", x),
    lambda x: np.einsum("ij,ij", x, x),
    lambda x: np.tensordot(x, x, axes=([0, 1], [0, 1])),
    lambda x: np.linalg.multi_dot([x, x.T, x]),
]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "complex128", "bool"])
@pytest.mark.parametrize("function", PRODUCTS)
def test_small_products_are_kernels(function: Callable[..., Any], dtype: str) -> None:
    check(function, M.astype(dtype), hosts=None if dtype == "bool" else 0)


def test_large_products_are_numpys() -> None:
    x = RNG.standard_normal((20, 20))
    check(lambda x: x @ x, x, hosts=1)


def test_faults_of_products_are_told() -> None:
    x = np.array([[1e308, 1e308], [1.0, 2.0]])
    exactly(lambda x: np.dot(x, x) * 2, x)
    exactly(lambda x: x @ x, np.array([[np.inf, 1.0], [0.0, 1.0]]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.diag(x),
        lambda x: np.diag(x, 1),
        lambda x: np.diag(x[0], -2),
        lambda x: np.diag(x[0], 1),
        lambda x: np.diagflat(x, 1),
        lambda x: np.diagonal(x),
        lambda x: np.trace(x, 1),
        lambda x: np.array([x, x * 2]),
        lambda x: np.array([x[0, 0], 1.5, x[1, 1]]),
        lambda x: np.array([[x[0, 0], 2], [3, x[1, 1]]]),
        lambda x: np.array(x, ndmin=4),
        lambda x: np.asarray([x[0], x[1]]),
        lambda x: np.imag(x),
        lambda x: np.broadcast_to(x, (3, 5, 4)),
        lambda x: np.broadcast_to(x[:, :1], (5, 4)) + x,
        lambda x: np.broadcast_to(2.5, (5, 4)) + x,
        lambda x: np.count_nonzero(x, axis=1),
        lambda x: np.count_nonzero(x),
        lambda x: np.tri(4, 3, 1) + 1,
        lambda x: np.eye(5, 4, -1) * x,
        lambda x: np.identity(4) + x[:4],
        lambda x: x.ravel(order="K") + 1,
    ],
)
def test_places(function: Callable[..., Any]) -> None:
    check(function, M, hosts=0)


def test_masks() -> None:
    def program(x: Any) -> Any:
        made = x.copy()
        np.copyto(made, 0, where=x > 1)
        np.copyto(made, x * 2, where=(x < 0))
        np.putmask(made, x == 0, 7)
        return made

    check(program, M, hosts=0)


def test_statistics_by_numpys_own_code() -> None:
    for function in (np.nansum, np.nanmean, np.nanvar, np.nanmax, np.average, np.cov, np.gradient, np.linalg.norm):
        check(function, M)
    x = M.copy()
    x[1, 1] = np.nan
    for function in (np.nansum, np.nanmean, np.nanvar, np.nanstd, np.nanmin):
        check(function, x, breaks=None)


def test_extremes_without_nans() -> None:
    x = M.copy()
    x[1, 1] = x[2] = np.nan
    for function in (np.fmax.reduce, np.fmin.reduce):
        check(lambda x, function=function: function(x, axis=1), x, hosts=0)
        check(lambda x, function=function: function(x), x.astype("float32"), hosts=0)
        check(lambda x, function=function: function(x, axis=1), M.astype("int64"), hosts=0)


def test_views_that_run_backwards_among_writes() -> None:
    def program(x: Any) -> Any:
        turned = x[::-1]
        made = np.empty(x.shape)
        made[:] = turned * 2
        made[0] = 1
        return made, turned

    def over(x: Any) -> Any:
        made = x * 2
        turned = made[::-1]
        made[0] = 7
        turned[1] = 9
        return made, turned.copy(), turned

    check(program, M)
    check(over, M)
    check(lambda x: over(x[::-1]), M)


def test_calls_of_constants_are_made_once() -> None:
    check(lambda x: np.blackman(12) * 2, M, hosts=0)
    check(lambda x: np.sort(np.arange(7.0)) + x[0, 0], M, hosts=0)
    compiled = tatara.compile(lambda n: np.linspace(0.0, 1.0, n))
    compiled(5)
    compiled(5)[:] = 3  # a copy in each call
    same(np.linspace(0.0, 1.0, 5), compiled(5))


def test_constants_that_warn_do_so_in_each_call() -> None:
    exactly(lambda x: np.sort(np.log(np.arange(3.0))) + x.sum(), M)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8", "bool"])
def test_short_rows_are_sorted_in_a_kernel(dtype: str) -> None:
    x = (M + 0.5 if dtype.startswith("f") else M).astype(dtype)
    for axis in (-1, 0, None):
        check(lambda x, axis=axis: np.sort(x[:4, ::-1], axis=axis), x, hosts=0 if axis is not None else None)
    if dtype != "bool":
        check(lambda x: np.median(x, axis=1), x, hosts=0)
        check(lambda x: np.median(x[:, :3], axis=1), x, hosts=0)
        check(lambda x: np.median(x[0]), x, hosts=0)

    def inside(x: Any) -> Any:
        made = x[0].copy()
        made.sort()
        return made

    check(inside, x, hosts=0)


def test_nans_and_zeros_among_sorted_numbers() -> None:
    x = M + 0.5
    x[0, 1] = x[1, 2] = np.nan
    check(lambda x: np.sort(x), x)
    check(lambda x: np.median(x, axis=1), x)
    exactly(lambda x: np.sort(x), np.array([0.0, -0.0, 1.0, -0.0, 0.0]))
    check(lambda x: np.sort(x, axis=0), RNG.standard_normal((40, 3)), hosts=0)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "complex128"])
def test_short_convolutions(dtype: str) -> None:
    x, taps = M.reshape(-1).astype(dtype), M[0].astype(dtype)
    if dtype == "complex128":
        x, taps = x * (1 - 2j), taps + 1j * M[1]
    for mode in ("full", "same", "valid"):
        check(lambda a, v, mode=mode: np.convolve(a, v, mode), x, taps, hosts=0)
        check(lambda a, v, mode=mode: np.convolve(v, a, mode), x, taps[:3], hosts=0)
        check(lambda a, v, mode=mode: np.correlate(a, v, mode), x, taps, hosts=0 if mode != "same" else 1)
    check(lambda a, v: np.convolve(a, v), x, taps[:1], hosts=0)


def test_choices_and_parts() -> None:
    check(lambda x: np.select([x > 1, x > -1], [x * 2, 5], default=7), M, hosts=0)
    check(lambda x: np.unstack(x, axis=1), M, hosts=0)
    check(lambda x: np.ediff1d(x), M, hosts=0)
    check(lambda x: np.fill_diagonal(x, 3), M, hosts=0)
    check(lambda x: np.tril(x[0]), M, hosts=0)
    check(lambda x: np.take(x, 1, axis=1), M, hosts=0)
    check(lambda x: np.atleast_2d(x[0], x), M, hosts=0)
    check(lambda x: np.searchsorted(np.array([-2.0, 0.0, 1.5]), x), M, hosts=0)
    check(lambda x: np.searchsorted(np.array([-2.0, 0.0, 1.5]), x, side="right"), M, hosts=0)
    nans = M.copy()
    nans[0, 0] = np.nan
    check(lambda x: np.searchsorted(np.array([-2.0, 0.0, 1.5]), x), nans)
    check(lambda x: np.searchsorted(np.array([-2.0, 0.0, np.nan]), x), nans)


def test_where_and_out() -> None:
    def program(x: Any) -> Any:
        made = x * 2
        np.add(x, 1, out=made, where=x > 0)
        np.divide(x, 2, out=made, where=x < -3, casting="unsafe")
        return made

    check(program, M, hosts=0)


def test_logarithms_of_complex_numbers() -> None:
    x = RNG.standard_normal(30) + 1j * RNG.standard_normal(30)
    for function in (np.log2, np.log10, np.log1p, np.exp2, np.reciprocal):
        check(function, x, hosts=0)


def test_a_body_that_breaks_the_graph_is_a_call() -> None:
    check(lambda x: np.insert(x, 1, 0.5) * 2, M, breaks=0, graphs=1)
    check(lambda x: np.linalg.pinv(x) + 1, M, breaks=0, graphs=1)
    check(lambda x: np.pad(x, 1) * 2, M, breaks=0, graphs=1)
