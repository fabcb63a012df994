"""Calls that NumPy's own inner loops compute within the plan, each with other elements in each call."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from numpy._core._multiarray_umath import _array_converter
from util import same

import numpy as np
import tatara
from tatara._numpy_stand_ins import ArrayConverter, Broadcast, monotonicity

POLY = np.polynomial.polynomial


def elements(seed: int, shape: tuple[int, ...], dtype: str, layout: str) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.1, 0.9, shape)
    made = (x + 1j * rng.uniform(0.1, 0.9, shape)) if dtype.startswith("complex") else x
    if dtype.startswith("int"):
        made = rng.integers(1, 5, shape)
    made = made.astype(dtype)
    if layout == "columns":
        return np.asfortranarray(made)
    return made[::-1] if layout == "reversed" else made


def attempt(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any, list[str]]:
    """(result, error, warnings)"""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result, error = function(*args), None
        except Exception as raised:
            result, error = None, (type(raised), str(raised))
    return result, error, sorted({str(each.message) for each in said})


def in_calls(
    function: Callable[..., Any], make: Callable[[int], tuple[Any, ...]], hosts: int | None = 0, calls: int = 5
) -> Any:
    """Compiled as plain in each call; two have the elements of the first one. `hosts`: NumPy's calls in the second."""
    tatara.reset()
    compiled = tatara.compile(function)
    for i in range(calls):
        args, twin = make(max(i - 1, 0)), make(max(i - 1, 0))
        want, error, said = attempt(function, args)
        before = tatara.stats()["host_calls"]
        got, own, heard = attempt(compiled, twin)
        assert own == error
        same(want, got)
        same(list(args), list(twin))
        assert said == heard
        if i == 1 and hosts is not None:
            assert tatara.stats()["host_calls"] - before == hosts
            assert tatara.stats()["breaks"] == 0
    return compiled


MATRICES: dict[str, Callable[..., Any]] = {
    "inv": lambda a: np.linalg.inv(a),
    "solve": lambda a: np.linalg.solve(a, a[0]),
    "det": lambda a: np.linalg.det(a),
    "slogdet": lambda a: np.linalg.slogdet(a),
    "svd": lambda a: np.linalg.svd(a),
    "svdvals": lambda a: np.linalg.svdvals(a),
    "eigh": lambda a: np.linalg.eigh(a),
    "eigvalsh": lambda a: np.linalg.eigvalsh(a),
    "qr": lambda a: np.linalg.qr(a),
    "qr_complete": lambda a: np.linalg.qr(a[:, :2], mode="complete"),
    "qr_raw": lambda a: np.linalg.qr(a, mode="raw"),
    "cholesky": lambda a: np.linalg.cholesky(a @ a.conj().T + np.eye(4)),
    "pinv": lambda a: np.linalg.pinv(a),
    "lstsq": lambda a: np.linalg.lstsq(a, a[0])[0],
    "matrix_rank": lambda a: np.linalg.matrix_rank(a),
    "fft": lambda a: np.fft.fft(a),
    "fft_axis": lambda a: np.fft.fft(a, n=6, axis=0, norm="ortho"),
    "ifft2": lambda a: np.fft.ifft2(a),
    "irfft": lambda a: np.fft.irfft(a),
    "hfft": lambda a: np.fft.hfft(a),
}
ROWS: dict[str, Callable[..., Any]] = {
    "sort": lambda a: np.sort(a, axis=0),
    "sort_flat": lambda a: np.sort(a, axis=None, kind="stable"),
    "argsort": lambda a: np.argsort(a),
    "argsort_stable": lambda a: np.argsort(a, axis=0, kind="stable"),
    "lexsort": lambda a: np.lexsort((a[0], a[1])),
    "median": lambda a: np.median(a, axis=0) if a.dtype.kind != "c" else a,
    "argmax": lambda a: np.argmax(a, axis=1),
    "argmin": lambda a: np.argmin(a),
    "max": lambda a: np.max(a, axis=0),
    "min": lambda a: np.min(a, keepdims=True),
    "mask": lambda a: a[a > 0.5],
    "mask_rows": lambda a: a[a[:, 0] > 0.5],
    "nonzero": lambda a: np.nonzero(a > 0.5),
    "where": lambda a: np.where(a > 0.5),
    "argwhere": lambda a: np.argwhere(a > 0.5),
    "flatnonzero": lambda a: np.flatnonzero(a > 0.5),
    "compress": lambda a: np.compress(a[0] > 0.5, a, axis=1),
    "extract": lambda a: np.extract(a > 0.5, a),
    "unique": lambda a: np.unique(a),
    "unique_inverse": lambda a: np.unique(a, return_inverse=True, return_counts=True),
    "union1d": lambda a: np.union1d(a[0], a[1]),
    "setdiff1d": lambda a: np.setdiff1d(a, a[1]),
    "isin": lambda a: np.isin(a, a[1]),
    "select": lambda a: np.select([a > 0.5, a > 0.2], [a, 2], default=7),
    "choose": lambda a: np.choose((a > 0.5).astype(int), [a, a + 1]),
    "meshgrid": lambda a: np.meshgrid(a[0], a[1]),
    "insert": lambda a: np.insert(a, 1, 0, axis=0),
    "trim_zeros": lambda a: np.trim_zeros(np.round(a[0])),
    "linspace": lambda a: np.linspace(a[0], a[1], 5),
    "diagonal": lambda a: np.trace(a),
    "rounded": lambda a: np.round(a),
    "list": lambda a: np.cumulative_sum([a[0], a[1]], axis=1),
}


@pytest.mark.parametrize("layout", ["rows", "columns", "reversed"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int64"])
@pytest.mark.parametrize("name", sorted(MATRICES))
def test_matrices(name: str, dtype: str, layout: str) -> None:
    if name == "eigh" and dtype == "complex128":
        pytest.skip("vectors of a matrix that is not Hermitian")
    in_calls(MATRICES[name], lambda seed: (elements(seed, (4, 4), dtype, layout),), hosts=None)


@pytest.mark.parametrize("layout", ["rows", "columns", "reversed"])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "int64"])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows(name: str, dtype: str, layout: str) -> None:
    in_calls(ROWS[name], lambda seed: (elements(seed, (6, 6), dtype, layout),), hosts=None)


@pytest.mark.parametrize("name", ["inv", "svd", "qr", "eigh", "lstsq", "fft", "pinv", "slogdet"])
def test_libraries_without_calls(name: str) -> None:
    in_calls(MATRICES[name], lambda seed: (elements(seed, (4, 4), "float64", "rows"),), hosts=0)


@pytest.mark.parametrize(
    "name", ["sort", "argsort", "mask", "nonzero", "unique", "compress", "isin", "select", "linspace"]
)
def test_rows_without_calls(name: str) -> None:
    in_calls(ROWS[name], lambda seed: (elements(seed, (6, 6), "float64", "rows"),), hosts=0)


def test_many_equal_elements() -> None:
    """The order of equal ones is NumPy's."""
    for count in (5, 17, 200, 3000):
        for kind in ("quicksort", "stable"):
            in_calls(
                lambda x, kind=kind: (np.argsort(x, kind=kind), np.sort(x, kind=kind)),
                lambda seed, count=count: (np.random.default_rng(seed).integers(0, 9, count).astype(float),),
            )


def test_errors_of_libraries() -> None:
    singular = np.zeros((3, 3))
    in_calls(lambda a: np.linalg.inv(a), lambda seed: (np.eye(3) if seed < 2 else singular,))
    in_calls(lambda a: np.linalg.cholesky(a), lambda seed: (np.eye(3) if seed < 2 else -np.eye(3),))
    in_calls(lambda a: np.linalg.inv(a) is None, lambda seed: (np.eye(3) if seed < 2 else singular,), hosts=None)
    in_calls(
        lambda a: np.linalg.eigvals(a), lambda seed: (np.eye(3) if seed < 2 else np.full((3, 3), np.nan),), hosts=None
    )

    def unread(a: Any) -> Any:
        np.linalg.inv(a)
        return a + 1

    in_calls(unread, lambda seed: (np.eye(3) if seed < 2 else singular,), hosts=None)


def test_faults_of_loops() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return (np.array([0.5, 0.25]) if seed < 2 else np.array([np.inf, -1.0]),)

    for function in (np.spacing, np.cbrt, lambda x: np.frexp(x), lambda x: np.ldexp(x, 2000)):
        in_calls(function, make, hosts=None)
    in_calls(lambda x: np.arcsin(x + 0j), make, hosts=None)
    in_calls(lambda x: (x + 1j) ** 2.5, make, hosts=None)
    with np.errstate(all="raise"):
        in_calls(lambda x: np.ldexp(x, 2000), make, hosts=None)


def test_sizes_that_nobody_reads() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return (np.random.default_rng(seed).integers(-5, 5, 20),)

    in_calls(lambda x: len(x[x > 0]), make, hosts=None)
    in_calls(lambda x: np.unique(x).shape[0] * x, make, hosts=None)
    in_calls(lambda x: np.zeros(abs(x[:2])), make, hosts=None)
    in_calls(lambda x: np.bincount(abs(x)), make, hosts=None)
    in_calls(lambda x: np.bincount(abs(x), minlength=9), make, hosts=None)


def test_writes_by_masks_and_places() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        return rng.standard_normal(12), rng.permutation(12), rng.standard_normal(12)

    def places(x: Any, i: Any, v: Any) -> Any:
        x[i] = v
        return x * 2

    def masked(x: Any, i: Any, v: Any) -> Any:
        x[x > 0] = v[x > 0]
        np.place(v, v > 0, [1.0, 2.0])
        np.putmask(v, v < 0, i)
        np.put(x, 3, 5)

    in_calls(places, make)
    in_calls(lambda x, i, v: places(x, i % 3, v), make)
    in_calls(masked, make, hosts=None)
    in_calls(lambda x, i, v: places(x, i + 1, v), make, hosts=None)

    def unread(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        y[i] = v
        return x + 1

    in_calls(lambda x, i, v: unread(x, i + (x[0] > 0), v), make, hosts=None)


def test_writes_to_arrays_that_run_backwards() -> None:
    def program(x: Any, y: Any) -> Any:
        np.add(x, 1, out=y)
        y *= 2
        y[1:3] += x[1:3]
        return y.sum()

    def make(seed: int) -> tuple[Any, ...]:
        return tuple(elements(seed + k, (4, 4), "float64", "reversed") for k in range(2))

    in_calls(lambda x, y: np.add(x, 1, out=y) * 2, make)
    in_calls(program, make, hosts=None)

    def shared(base: Any) -> Any:
        return program(base[0], base[1][::-1])

    in_calls(shared, lambda seed: (elements(seed, (2, 5, 4), "float64", "rows"),), hosts=None)
    x = np.arange(8.0)
    compiled = tatara.compile(lambda x: np.multiply(x, 2, out=x))
    for _ in range(3):
        view = x[::-1]
        assert compiled(view) is view
    np.testing.assert_array_equal(x, np.arange(8.0) * 8)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_histograms(dtype: str) -> None:
    def make(seed: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        return ((rng.standard_normal(500) * 30).astype(dtype),)

    for bins in (1, 7, 10):
        in_calls(lambda x, bins=bins: np.histogram(x, bins), make)
        in_calls(lambda x, bins=bins: np.histogram_bin_edges(x, bins), make)
    in_calls(lambda x: np.histogram(x), lambda seed: (np.full(4, seed, dtype),))
    if dtype == "float64":
        in_calls(lambda x: np.histogram(x), lambda seed: (np.array([1.0, np.nan if seed > 1 else 2.0]),), hosts=None)
        in_calls(lambda x: np.histogram(x), lambda seed: (np.array([1.0, 1.0 + 2.0**-52 * seed]),), hosts=None)


def test_scalars_in_tuples() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return (np.random.default_rng(seed).random(3),)

    for function in (lambda x: np.frexp(x[0]), lambda x: divmod(x[0], x[1]), np.unstack, lambda x: [np.modf(x[1])]):
        in_calls(function, make, hosts=None)


def test_objects_of_which_numpy_makes_arrays() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return tuple(np.random.default_rng(seed).random((2, 4)))

    in_calls(lambda a, b: np.polymul(a, b), make, hosts=None)
    in_calls(lambda a, b: np.convolve(np.poly1d(a), b), make, hosts=None)


def test_searches_out_of_order() -> None:
    in_calls(
        lambda a, v: np.searchsorted(a, v), lambda seed: tuple(np.random.default_rng(seed).random((2, 9))), hosts=None
    )


def test_parts_and_diagonals() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return tuple(np.random.default_rng(seed).random((2, 5, 5)))

    for places in ([2, -1], [3, 1], [0, 9], [-9, 2]):
        in_calls(lambda x, y, places=places: np.split(x, places), make)
    in_calls(lambda x, y: np.fill_diagonal(x, y), make)
    in_calls(lambda x, y: np.fill_diagonal(x, y[0]), make)
    in_calls(lambda x, y: ([x] != 0, [x, y] == 3, np.kron(x, y)), make)


def test_polynomials() -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return tuple(np.random.default_rng(seed).random((2, 9)))

    in_calls(lambda x, y: POLY.polyfit(x, y, 2), make, hosts=None)
    in_calls(lambda x, y: np.roots(x[:4]), make, hosts=None)
    in_calls(lambda x, y: POLY.polyroots(x[:3]), make, hosts=None)
    in_calls(lambda x, y: np.i0(x), make, hosts=None)


def test_stand_ins_are_what_they_stand_in_for() -> None:
    items: list[Any] = [
        np.arange(3),
        np.float32(2),
        1,
        2.5,
        1j,
        True,
        [1, 2],
        np.array(3),
        np.ones((2, 2), "f"),
        np.int8(1),
    ]

    def alike(x: Any, y: Any) -> bool:
        return type(x) is type(y) and np.array_equal(x, y) and getattr(x, "dtype", 0) == getattr(y, "dtype", 0)

    for count in (1, 2):
        for given in itertools.product(items, repeat=count):
            theirs, ours = _array_converter(*given), ArrayConverter(*given)
            assert theirs.scalar_input == ours.scalar_input and len(theirs) == len(ours)
            for inexact in (False, True):
                assert theirs.result_type(ensure_inexact=inexact) == ours.result_type(ensure_inexact=inexact)
            for mode in ("convert", "preserve", "convert_if_no_array"):
                pairs = zip(theirs.as_arrays(pyscalars=mode), ours.as_arrays(pyscalars=mode), strict=True)
                assert all(alike(x, y) for x, y in pairs)
            assert all(alike(theirs[i], ours[i]) for i in range(count))
            for made in (np.array(2.0), np.arange(3), np.float64(1)):
                assert all(
                    alike(theirs.wrap(made, to_scalar=t), ours.wrap(made, to_scalar=t)) for t in (None, True, False)
                )
    for shapes in (((3,), (2, 1)), ((4, 1), ()), ((0, 3), (1, 3))):
        theirs = np.broadcast(*[np.ones(s) for s in shapes])
        ours_ = Broadcast(*[np.ones(s) for s in shapes])
        assert (theirs.shape, theirs.ndim, theirs.size) == (ours_.shape, ours_.ndim, ours_.size)
    for bins in ([1.0, 2.0], [2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 1.0], [1.0], [3.0, 3.0, 1.0]):
        assert np._core.multiarray._monotonicity(np.array(bins)) == monotonicity(np.array(bins))


@pytest.mark.parametrize("dtype", ["float64", "uint8", "bool", "complex128"])
def test_empty_arrays(dtype: str) -> None:
    def make(seed: int) -> tuple[Any, ...]:
        return (np.zeros((0, 4), dtype), np.zeros((2, 0), dtype))

    in_calls(lambda x, y: (np.sort(x), np.argsort(x, axis=0), np.lexsort(y), np.unique(x)), make, hosts=None)
    in_calls(lambda x, y: (np.nonzero(x), x[x > 0], np.argwhere(y), np.compress([], y, axis=1)), make, hosts=None)
    in_calls(lambda x, y: (np.fft.ifft2(x, (2, -1)), np.linalg.det(np.zeros((0, 3, 3)))), make, hosts=None)
    in_calls(lambda x, y: (np.cbrt(x.real), np.meshgrid(x, y)), make, hosts=None)
