"""NumPy's floating-point warnings, and what np.errstate makes of them, in every call: kernels raise none of their own."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from util import defined

import numpy as np
import tatara

UNARY = (
    "negative absolute sign rint floor trunc sqrt square reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos "
    "arctan sinh cosh tanh arcsinh arccosh arctanh isnan isfinite deg2rad conjugate cbrt"
).split()
BINARY = (
    "add subtract multiply divide floor_divide remainder fmod power maximum fmin arctan2 hypot copysign nextafter logaddexp "
    "logaddexp2 float_power less equal"
).split()
DTYPES = ["float16", "float32", "float64", "complex128", "int64", "int8"]


def said(function: Callable[..., Any], *args: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            result = function(*args)
        except FloatingPointError as error:
            result = f"FloatingPointError: {error}"
    return result, [f"{each.category.__name__}: {each.message}" for each in heard]


def alike(want: Any, got: Any) -> None:
    assert type(want) is type(got)
    if isinstance(want, tuple | list):
        assert len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            alike(w, g)
    elif isinstance(want, str):
        assert want == got
    else:
        tolerance = {"e": 1e-2, "f": 2e-5, "F": 2e-5}.get(want.dtype.char, 1e-10)
        np.testing.assert_allclose(got, want, rtol=tolerance)
        assert want.dtype == got.dtype


def check(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    """The same results, warnings and errors in each of these calls, and the same arguments afterwards."""
    compiled = tatara.compile(function)
    for i, args in enumerate(calls):
        twin = tuple(each.copy() if isinstance(each, np.ndarray) else each for each in args)
        want, told = said(function, *twin)
        got, heard = said(compiled, *args)
        assert told == heard, f"in call {i}"
        alike(want, got)
        alike([each for each in twin if isinstance(each, np.ndarray)], [a for a in args if isinstance(a, np.ndarray)])


def edge(dtype: str, *values: float) -> np.ndarray:
    """19 elements, the last of which are `values`."""
    base = np.full(19, 0.5 if np.dtype(dtype).kind in "fc" else 2)
    x = base.astype(dtype)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, value in enumerate(values):
            x[-1 - i] = value
    return x


def edges(dtype: str) -> list[np.ndarray]:
    if np.dtype(dtype).kind == "i":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return [edge(dtype), edge(dtype, 0), edge(dtype, -1), edge(dtype, high), edge(dtype, low), edge(dtype)]
    high = float(np.finfo(dtype).max)
    plain = [edge(dtype)]
    return [*plain, *(edge(dtype, v) for v in (0, -0.0, 2, -2, high, -high, np.inf, -np.inf, np.nan)), *plain]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    function = getattr(np, name)
    if not defined(function, edge(dtype)):
        pytest.skip("NumPy has it not")
    check(lambda x: function(x), [(x,) for x in edges(dtype)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    function = getattr(np, name)
    if not defined(function, edge(dtype), edge(dtype)):
        pytest.skip("NumPy has it not")
    some = edges(dtype)
    check(lambda x, y: function(x, y), [(x, y) for x in some for y in some if defined(function, x, y)])


PROGRAMS: dict[str, Callable[..., Any]] = {
    "chain": lambda x, y: (x * y + y) * x - y,
    "quotient is bounded": lambda x, y: np.tanh(1 / (x - y)),
    "infinite in the middle": lambda x, y: 1 / np.exp(x * y),
    "compared": lambda x, y: np.sqrt(x) < y * y,
    "selected": lambda x, y: np.where(x > 0, np.log(x), y),
    "a part of it": lambda x, y: (x * y)[:5],
    "turned and summed": lambda x, y: (x / y).reshape(1, -1).T.sum(axis=0),
    "a sum": lambda x, y: (x * y).sum() + 1,
    "a mean and a spread": lambda x, y: (x - x.mean()) / x.std() + y,
    "running": lambda x, y: np.cumsum(x) - np.cumprod(y),
    "cast": lambda x, y: (x * y).astype(np.int32) + 1,
    "narrower": lambda x, y: x.astype(np.float32) * 2 + y.astype(np.float16),
    "results of both kinds": lambda x, y: [x + y, np.log(x), np.maximum(x * y, 0)],
    "to the power": lambda x, y: x**2 + y**-1.5,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    some = edges("float64")
    check(PROGRAMS[name], [(x, y) for x in some[:5] for y in some])


def in_place(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x *= y
    x[1:] /= y[:-1]
    return x + 1


def test_in_place() -> None:
    some = edges("float64")
    check(in_place, [(x.copy(), y.copy()) for x in some[:5] for y in some])


def test_stored_as_integers() -> None:
    def store(x: np.ndarray, into: np.ndarray) -> np.ndarray:
        into[:] = x * 2
        return into + 1

    check(store, [(x, np.zeros(19, np.int64)) for x in edges("float64")])


@pytest.mark.parametrize("large", [200_000, 1_000_003])
def test_large_arrays(large: int) -> None:
    def step(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += y
        return np.log(x)

    bad = np.full(large, 1.0)
    bad[-3] = -1.0
    check(step, [(np.ones(large), y) for y in (np.ones(large), bad, np.ones(large))])


def test_each_turn_warns() -> None:
    def loop(x: np.ndarray) -> list[np.ndarray]:
        return [np.log(x - i) for i in range(4)]

    check(loop, [(np.arange(1.0, 8.0),) for _ in range(4)])


@pytest.mark.parametrize("name", ["divide", "over", "invalid", "under"])
@pytest.mark.parametrize("mode", ["ignore", "warn", "raise", "call", "print"])
def test_errstate_around(name: str, mode: str) -> None:
    def function(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(x * y) - x / y + np.log(x)

    calls: list[Any] = []
    some = edges("float64")
    before = np.seterrcall(lambda *args: calls.append(args))
    try:
        with np.errstate(**{name: mode}), contextlib.redirect_stdout(io.StringIO()):
            check(function, [(x, y) for x in some[:5] for y in some])
    finally:
        np.seterrcall(before)
    assert len(calls) % 2 == 0 and calls[0::2] == calls[1::2] or mode == "call"


@pytest.mark.parametrize("mode", ["ignore", "warn", "raise"])
def test_errstate_inside(mode: str) -> None:
    def function(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = x / y
        with np.errstate(over=mode):
            return np.where(np.isfinite(ratio), ratio, 0) * np.exp(y) + 1

    some = edges("float64")
    check(function, [(x, y) for x in some for y in some])


def hosts(function: Callable[..., Any], *args: Any) -> int:
    before = tatara.stats()["host_calls"]
    function(*args)
    return tatara.stats()["host_calls"] - before


def test_what_came_in_is_no_fault() -> None:
    compiled = tatara.compile(lambda x, y: (x - x.mean()) * y + np.exp(y))
    x, y = edge("float64", np.nan), edge("float64", np.inf)
    for _ in range(3):
        compiled(x, y)
    assert hosts(compiled, x, y) == 0


def test_ignored_faults_cost_nothing() -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        compiled = tatara.compile(lambda x, y: x / y + np.log(y))
        x, y = edge("float64"), edge("float64", 0)
        for _ in range(3):
            compiled(x, y)
        assert hosts(compiled, x, y) == 0


def test_faults_that_go_on_are_numpys() -> None:
    compiled = tatara.compile(lambda x: np.log(x) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            compiled(edge("float64", 0))
        assert hosts(compiled, edge("float64", 0)) == 2
        for _ in range(80):
            compiled(edge("float64"))
        assert hosts(compiled, edge("float64")) == 0
