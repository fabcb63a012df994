"""Functions with a cache (functools.lru_cache): what they write, they write once; what they made stays theirs."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import numpy as np
import tatara

counted = 0


def _append(state: Any) -> None:
    state.items.append(1)


def _attribute(state: Any) -> None:
    state.count += 1


def _item(state: Any) -> None:
    state.table["a"] = state.table.get("a", 0) + 1


def _default_item(state: Any) -> None:
    state.defaults[len(state.defaults)].append(1)


def _global(state: Any) -> None:
    global counted
    counted += 1


def _cell(state: Any) -> None:
    state.bump()


def _in_place(state: Any) -> None:
    state.items += [2]


WRITES = [_append, _attribute, _item, _default_item, _global, _cell, _in_place]


def _state() -> Any:
    total = 0

    def bump() -> None:
        nonlocal total
        total += 1

    state = SimpleNamespace(items=[], count=0, table={}, defaults=collections.defaultdict(list), bump=bump)
    state.total = lambda: total
    return state


def _program(write: Callable[[Any], None]) -> tuple[Any, Callable[[Any, int], Any]]:
    state = _state()

    @functools.lru_cache
    def cached(n: int) -> int:
        write(state)
        return n + 1

    return state, lambda x, n: x * cached(n)


@pytest.mark.parametrize("write", WRITES)
def test_a_miss_writes_once(write: Callable[[Any], None]) -> None:
    global counted
    seen = []
    for compiled in (False, True):
        counted = 0
        state, program = _program(write)
        run = tatara.compile(program) if compiled else program
        x = np.arange(3.0)
        rows = []
        for n in (2, 2, 2, 3, 3, 2):
            y = run(x, n)
            rows.append((y.tolist(), list(state.items), state.count, dict(state.table), dict(state.defaults)))
            rows.append((counted, state.total()))
        seen.append(rows)
    assert seen[0] == seen[1]


def test_what_a_miss_made_stays_the_same_object() -> None:
    @functools.lru_cache
    def table(n: int) -> Any:
        return np.arange(float(n)) * 2

    def program(x: Any) -> Any:
        return x + table(3), table(3)

    run = tatara.compile(program)
    x = np.arange(3.0)
    results = [run(x) for _ in range(3)]
    assert all(made is table(3) for _, made in results)
    table(3)[0] = 7.0
    np.testing.assert_array_equal(run(x)[0], program(x)[0])
