"""Native loops that are left: by break, return and errors, by signals, with iterators that others hold."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


class TooLong(Exception):
    """What the alarm raises."""


def _after(seconds: float, f: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """The locals of `f` when an alarm stopped it."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(TooLong) as told:
            f(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return next(
        entry.frame.f_locals
        for entry in reversed(told.traceback)
        if entry.frame.code.name in ("endless", "endless_within")
    )


def endless(a: Any) -> None:
    turns = total = 0
    while True:
        turns += 1
        total += 2
        a[0] = turns
        turns = turns % 1000000


def endless_within(a: Any) -> None:
    for i in range(20):
        turns = 0
        while True:
            turns += 1
            if turns < 0:
                break
        a[i] = turns


def test_a_signal_ends_a_loop_without_end_between_two_turns() -> None:
    a = np.zeros(3)
    compiled = tatara.compile(endless)
    seen = _after(0.4, compiled, a)
    assert seen["total"] > 1000
    assert seen["turns"] == seen["total"] // 2 % 1000000
    assert a[0] in (seen["total"] // 2 % 1000000, 1000000)


def test_a_signal_ends_a_loop_without_end_in_another_one() -> None:
    seen = _after(1.0, tatara.compile(endless_within), np.zeros(20))
    assert seen["i"] == 0


def _same(f: Callable[..., Any], make: Callable[[], list[Any]], runs: int) -> None:
    compiled = tatara.compile(f)
    before = tatara.stats()["native_loop_runs"]
    for _ in range(3):
        outcomes = []
        for g in (compiled, f):
            given = make()
            try:
                result: Any = g(*given)
            except Exception as error:
                result = (type(error), str(error))
            outcomes.append((repr(result), [repr(each) for each in given if not hasattr(each, "__next__")]))
        assert outcomes[0] == outcomes[1]
    assert tatara.stats()["native_loop_runs"] - before == runs


def test_a_break_leaves_the_iterator_where_it_is() -> None:
    def f(a: Any) -> Any:
        it = iter(a)
        for v in it:
            if v > 10:
                break
        return v, next(it)

    _same(f, lambda: [np.arange(40.0)], 0)


def test_items_of_one_iterator_by_twos_are_no_native_loop() -> None:
    def f(a: Any) -> float:
        it = iter(a)
        s = 0.0
        for x, y in zip(it, it):
            s += x * y
        return s

    _same(f, lambda: [np.arange(40.0)], 0)


def test_an_error_of_the_program_has_the_locals_of_its_turn() -> None:
    def f(m: Any) -> None:
        for i in range(m.shape[0]):
            count = 0
            for j in range(m.shape[1]):
                if m[i, j] == 777.0:
                    raise KeyError(i, j, count)
                count += i
                m[i, j] = -1.0

    _same(f, lambda: [np.arange(1600.0).reshape(40, 40)], 3)


def test_a_name_that_is_not_there_is_an_error_in_each_call() -> None:
    def f(n: int) -> int:
        total = 0
        for i in range(n):
            total += i * nowhere  # type: ignore[name-defined] # noqa: F821
        return total

    _same(f, lambda: [40], 0)


def test_a_local_that_no_turn_has_assigned_is_an_error() -> None:
    def f(a: Any, limit: float) -> Any:
        for i in range(len(a)):
            if a[i] > limit:
                found = i
            if i == 30:
                a[0] = found
        return found

    _same(f, lambda: [np.arange(40.0), 20.0], 3)
    _same(f, lambda: [np.arange(40.0), 35.0], 0)


def test_the_else_of_a_loop_runs_without_a_break() -> None:
    def f(a: Any, limit: float) -> Any:
        for i, v in enumerate(a):
            if v > limit:
                break
        else:
            return "none", i
        return i, v

    _same(f, lambda: [np.arange(40.0), 20.0], 3)
    _same(f, lambda: [np.arange(40.0), 99.0], 3)


def test_ints_beyond_64_bits_go_back_to_python() -> None:
    def f(n: int, start: int) -> tuple[int, int]:
        p, q = start, 1
        for i in range(n):
            p, q = q, p + q
            if q < 0:
                q = -i
        return p, q

    _same(f, lambda: [60, 0], 3)
    _same(f, lambda: [120, 0], 0)
    _same(f, lambda: [40, 10**30], 0)
