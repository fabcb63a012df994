"""Comparison of compiled NumPy functions with eager ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import tatara


def same(expected: Any, actual: Any, exact: bool = False) -> None:
    """Asserts equal type, dtype, shape, strides, flags and values."""
    assert type(actual) is type(expected), (type(actual), type(expected))
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected)
        for e, a in zip(expected, actual, strict=True):
            same(e, a, exact)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key, value in expected.items():
            same(value, actual[key], exact)
    elif isinstance(expected, np.ndarray | np.generic):
        assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
        assert actual.shape == expected.shape
        if isinstance(expected, np.ndarray):
            assert actual.strides == expected.strides, (actual.strides, expected.strides)
            assert actual.flags.writeable == expected.flags.writeable
            assert actual.flags.owndata == expected.flags.owndata
        if exact or expected.dtype.kind in "biu?":
            np.testing.assert_array_equal(actual, expected)
        else:
            tolerance = {"e": 2e-3, "f": 3e-6, "F": 3e-6}.get(expected.dtype.char, 1e-12)
            np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    elif isinstance(expected, float | complex):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    else:
        assert actual == expected


def check(
    function: Callable[..., Any],
    *args: Any,
    calls: int = 3,
    graphs: int | None = None,
    breaks: int | None = 0,
    kernels: int | None = None,
    hosts: int | None = None,
    exact: bool = False,
) -> Any:
    """Calls the compiled function several times with fresh copies of the arguments; compares results and mutations.

    `kernels` and `hosts` count the launches and NumPy calls of one later run.
    """
    tatara.reset()
    compiled = tatara.compile(function)
    for i in range(calls):
        expected_args = copy.deepcopy(args)
        actual_args = copy.deepcopy(args)
        with np.errstate(all="ignore"):
            expected = function(*expected_args)
            before = tatara.stats()
            actual = compiled(*actual_args)
        after = tatara.stats()
        same(expected, actual, exact)
        same(list(expected_args), list(actual_args), exact)
        if i > 0:
            if kernels is not None:
                assert after["kernels_launched"] - before["kernels_launched"] == kernels, report(compiled)
            if hosts is not None:
                assert after["host_calls"] - before["host_calls"] == hosts, report(compiled)
    stats = tatara.stats()
    if graphs is not None:
        assert stats["graphs"] == graphs, report(compiled)
    if breaks is not None:
        assert stats["breaks"] == breaks, report(compiled)
    return compiled


def report(compiled: Any) -> str:
    """What was captured, for messages of failing tests."""
    data = compiled._report()
    lines = [str(data["breaks"])]
    for entry in data["entries"]:
        lines.append(
            entry["graph"]
            + entry["fallback"]
            + str([s for s in entry.get("details", {}).get("steps", []) if s["kind"] == "host"])
        )
    return "\n".join(lines)


def close(got: Any, expected: Any, rtol: float, atol: float = 0.0) -> None:
    """Asserts equal type, dtype, shape and strides, and values that differ by at most `rtol` of themselves, or `atol`."""
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        got, expected = list(got.values()), list(expected.values())
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            close(one, other, rtol, atol)
    elif isinstance(expected, (np.ndarray, np.generic, float)):
        a, b = np.asarray(got), np.asarray(expected)
        assert (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    else:
        assert got == expected


def defined(function: Callable[..., Any], *args: Any) -> bool:
    """Whether NumPy has the function for these arguments."""
    try:
        with np.errstate(all="ignore"):
            function(*args)
    except (TypeError, ValueError):
        return False
    return True


def check_native(program: Callable[..., Any], arguments: list[Any], alike: Callable[[Any, Any], None]) -> None:
    """Three calls on copies of the arguments, native loops among them; `alike(ours, NumPy's)` asserts of results and arguments."""
    compiled = tatara.compile(program)
    before = tatara.stats()["native_loop_runs"]
    for _ in range(3):
        mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
        alike(compiled(*mine), program(*theirs))
        for ours, others in zip(mine, theirs, strict=True):
            alike(ours, others)
    assert tatara.stats()["native_loop_runs"] > before
