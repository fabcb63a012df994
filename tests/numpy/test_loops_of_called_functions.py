"""Loops in functions that a compiled one calls: they run as native code with the caller's arrays."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from util import close

import numpy as np
import tatara
from tatara.report._report import report_of

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def _window(x: Any, w: Any) -> Any:
    n = x.shape[0] - w.shape[0] + 1
    out = np.empty((n, x.shape[1]), dtype=x.dtype)
    for i in range(n):
        out[i] = np.sum(x[i : i + w.shape[0]] * w[:, np.newaxis], axis=0)
    return out


def _peaks(x: Any) -> Any:
    out = np.empty((x.shape[0] // 2, x.shape[1]), dtype=x.dtype)
    for i in range(x.shape[0] // 2):
        out[i] = np.max(x[2 * i : 2 * i + 2], axis=0)
    return out


def once(a: Any, w: Any) -> Any:
    return _window(a * 2, w) + 1


def several_sizes(a: Any, w: Any) -> Any:
    b = np.maximum(_window(a, w), 0.7)
    c = _peaks(_window(b - b.mean(), w))
    return _window(c, w) * 3, b


def _inner(x: Any, w: Any) -> Any:
    return _window(x + 1, w) * 2


def nested(a: Any, w: Any) -> Any:
    return _inner(a, w) + _inner(a - 1, w)


def _sweep(x: Any) -> None:
    x[0] = 7
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + x[i]
    x[-1] = 9


def writes_before_the_loop(a: Any, w: Any) -> Any:
    a[1] += 2
    _sweep(a)
    b = a * 2
    _sweep(b)
    return a + b, w


def _scan(x: Any, start: float) -> tuple[Any, float, int]:
    total, last = start, 0
    for i in range(x.shape[0]):
        total += x[i, 0]
        if total > 20:
            last = i
            break
    return x[: last + 1], total, last


def results_of_several_kinds(a: Any, w: Any) -> Any:
    part, total, last = _scan(a, 0.5)
    return part * 2, total, last, part.base is a


def _fails(x: Any, w: Any) -> Any:
    for i in range(x.shape[0]):
        x[i + 1] = x[i] * w[0]
    return x


def index_out_of_range(a: Any, w: Any) -> Any:
    return _fails(a * 1, w) + _fails(a, w)


def error_that_is_handled(a: Any, w: Any) -> Any:
    try:
        _fails(a, w)
    except IndexError as error:
        return a * 2, str(error)
    return a


def _divides(x: Any, w: Any) -> Any:
    for i in range(x.shape[0]):
        x[i] = x[i] / (w[0] - w[0])
    return x


def warning(a: Any, w: Any) -> Any:
    return _divides(a, w) + 1


def recursion(a: Any, w: Any) -> Any:
    def descend(x: Any, depth: int) -> Any:
        for i in range(1, x.shape[0]):
            x[i] += x[i - 1] * 0.25
        return x if depth == 0 else descend(x + depth, depth - 1)

    return descend(a * 1, 3)


def in_a_loop_with_a_dict(a: Any, w: Any) -> Any:
    found = {}
    for n in range(20):
        found[n] = _window(a, w * n)[0, 0]
    return found


def through_sorted(a: Any, w: Any) -> Any:
    def weight(n: int) -> Any:
        total = 0.0
        for i in range(a.shape[0]):
            total += a[i, n] * (n % 3)
        return total

    return sorted(range(a.shape[1]), key=weight)


class _Filter:
    def __init__(self, w: Any) -> None:
        self.w = w

    def apply(self, x: Any, *, scale: float = 2.0) -> Any:
        y = x * scale
        w = self.w
        for i in range(x.shape[0] - 1):
            y[i + 1] += y[i] * w[0]
        return y


def method(a: Any, w: Any) -> Any:
    return _Filter(w).apply(a, scale=0.5) + 1


PROGRAMS = [
    once,
    several_sizes,
    nested,
    writes_before_the_loop,
    results_of_several_kinds,
    index_out_of_range,
    error_that_is_handled,
    warning,
    recursion,
    in_a_loop_with_a_dict,
    through_sorted,
    method,
]
# Runs in each call; the others stop at an error, or at what NumPy says.
RUNS = {
    "once": 1,
    "several_sizes": 4,
    "nested": 2,
    "writes_before_the_loop": 2,
    "results_of_several_kinds": 1,
    "recursion": 4,
    "in_a_loop_with_a_dict": 20,
    "method": 1,
}


def _outcome(f: Callable[..., Any]) -> tuple[Any, list[Any], list[str]]:
    rng = np.random.default_rng(5)
    given = [rng.random((60, 9)) + 0.5, rng.random(3)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = f(*given)
        except Exception as error:
            result = (type(error), str(error))
    return result, given, [str(w.message) for w in said if "tatara" not in str(w.message)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_loop_of_a_called_function_does_what_the_plain_one_does(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    for _ in range(4):
        before = tatara.stats()["native_loop_runs"]
        for got, expected in zip(_outcome(compiled), _outcome(program), strict=True):
            # Numbers near 1 less their mean, which is summed in an order that the vectors of the processor decide.
            close(got, expected, rtol=1e-12, atol=1e-14)
        if program.__name__ in RUNS:
            assert tatara.stats()["native_loop_runs"] - before == RUNS[program.__name__]


def test_graphs_go_on_behind_the_call() -> None:
    compiled = tatara.compile(once)
    for _ in range(3):
        _outcome(compiled)
    before = tatara.stats()
    _outcome(compiled)
    now = tatara.stats()
    # Before the call, in the function before its loop and behind it, and behind the call.
    assert now["guard_hits"] - before["guard_hits"] == 4
    assert now["breaks"] == before["breaks"]


def test_the_arrays_of_a_program_with_a_called_loop_are_its_own() -> None:
    compiled = tatara.compile(once)
    rng = np.random.default_rng(5)
    a, w = rng.random((60, 9)), rng.random(3)
    kept = copy.deepcopy((a, w))
    first, second = compiled(a, w), compiled(a, w)
    assert not np.shares_memory(first, second)
    first[:] = 0
    close(second, once(a, w), rtol=1e-12)
    close((a, w), kept, rtol=1e-12)


def test_the_loop_of_a_function_is_read_once_for_all_its_callers() -> None:
    def caller(a: Any, w: Any) -> Any:
        return _window(a, w) + _window(a * 2, w) + _window(a * 3, w)

    compiled = tatara.compile(caller)
    before = tatara.stats()["native_loops"]
    for _ in range(3):
        _outcome(compiled)
    assert tatara.stats()["native_loops"] - before == 1


def test_with_one_graph_a_loop_of_a_called_function_is_unrolled() -> None:
    compiled = tatara.compile(once, fullgraph=True)
    before = tatara.stats()["native_loop_runs"]
    close(_outcome(compiled), _outcome(once), rtol=1e-12)
    assert tatara.stats()["native_loop_runs"] == before


def test_no_graph_begins_behind_a_call_whose_loops_are_the_interpreters() -> None:
    def read_by_nobody(x: Any) -> list[str]:
        return [str(v) for v in x.tolist()] + [str(row[0]) for row in x]

    def caller(a: Any, w: Any) -> Any:
        found = {}
        for n in range(30):
            found[n] = (len(read_by_nobody(a)), float((a * n).sum()))
        return found

    compiled = tatara.compile(caller)
    for _ in range(3):
        close(_outcome(compiled), _outcome(caller), rtol=1e-12)
    assert len(report_of(compiled).graphs) <= 2
