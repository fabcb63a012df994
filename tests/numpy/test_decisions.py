"""What data decide: NumPy's bools, and sizes. A run looks whether they fall as in the trace, and else nothing of it has happened."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from util import check, same

import numpy as np
import tatara

RNG = np.random.default_rng(5)
M = RNG.standard_normal((6, 5))


def in_turns(function: Callable[..., Any], *sets: tuple[Any, ...], calls: int = 24) -> None:
    """Each call, and what it writes to, against NumPy; the sets in an order that repeats some."""
    compiled = tatara.compile(function)
    order = np.random.default_rng(3).integers(0, len(sets), calls)
    for i in [*range(len(sets)), *order]:
        expected, actual = copy.deepcopy(sets[i]), copy.deepcopy(sets[i])
        same(function(*expected), compiled(*actual))
        same(list(expected), list(actual))


def test_a_branch_that_falls_as_before_is_no_break() -> None:
    check(lambda x: x * 2 if (x > 5).any() else x + 1, M, graphs=1, breaks=0, hosts=0)
    check(lambda x: x * 2 if x.sum() > 1e9 else x + 1, M, graphs=1, breaks=0, hosts=0)
    check(lambda x: np.allclose(x, x + 1), M, breaks=0)
    check(lambda x: np.array_equal(x, x.copy()), M, breaks=0, hosts=0)


def test_one_that_falls_in_turns_is_right_each_time() -> None:
    in_turns(lambda x: x * 2 if (x > 0).all() else x + 1, (M,), (abs(M),))
    in_turns(lambda x: (x > 0).all(), (M,), (abs(M),))
    in_turns(lambda x: [x * 2 if row.sum() > 0 else x + 1 for row in x][-1], (M,), (-M,), (abs(M),))


def test_nothing_is_written_before_it_is_known_how_data_decide() -> None:
    def program(x: Any, y: Any) -> Any:
        both = x + y
        if (both > 0).all():
            y += 1
            x[:] = both
        else:
            y -= 2
        return both.sum()

    small, large = abs(M) + 0.1, np.abs(RNG.standard_normal((700, 500))) + 0.1
    in_turns(program, (small, small), (-small, small * 0.5))
    in_turns(program, (large, large), (-large, large * 0.5))


def test_a_write_before_a_decision_is_no_decision() -> None:
    def program(x: Any) -> Any:
        x *= 2
        return x + 1 if (x > 0).all() else x - 1

    in_turns(program, (M,), (abs(M),))


def test_sizes_that_data_decide() -> None:
    check(lambda x: x[x > 0] * 2, M, graphs=1, breaks=0)
    check(lambda x: np.nonzero(x > 0)[0] + 1, M, graphs=1, breaks=0)
    check(lambda x: np.unique(np.round(x)) * 3, M, graphs=1, breaks=0)
    check(lambda x: np.where(x > 0)[1], M, graphs=1, breaks=0)
    in_turns(lambda x: x[x > 0].mean(), (M,), (M + 0.3,), (M - 0.3,))
    in_turns(lambda x: np.unique(np.round(x)).shape[0] * x, (M,), (M * 3,), (M * 0.01,))


def test_loops_by_data_are_not_unrolled() -> None:
    def newton(x: Any) -> Any:
        y = x.copy()
        while np.abs(y * y - x).max() > 1e-9:
            y = 0.5 * (y + x / y)
        return y

    in_turns(newton, (abs(M) + 1,), (abs(M) * 100 + 1,), (abs(M) * 1e-3 + 1e-4,))


def test_numbers_of_pythons_that_data_decide() -> None:
    check(lambda x, n: x[: int(n[0])] * 2, M, np.array([3]), breaks=0)
    in_turns(lambda x, n: x[: int(n[0])] * 2, (M, np.array([3])), (M, np.array([4])), (M, np.array([0])))


def test_effects_of_python_happen_once() -> None:
    seen: list[str] = []

    def program(x: Any) -> Any:
        seen.append("called")
        return x + 1 if (x > 0).all() else x - 1

    compiled = tatara.compile(program)
    for i in range(12):
        x = abs(M) if i % 3 else M
        same(program(x), compiled(x))
    assert len(seen) == 24


def test_with_fullgraph_a_branch_by_data_is_an_error_at_once() -> None:
    compiled = tatara.compile(lambda x: x + 1 if (x > 0).all() else x - 1, fullgraph=True)
    with pytest.raises(tatara.Unsupported):
        compiled(M)


def test_an_exception_behind_a_decision_is_numpys() -> None:
    def program(x: Any) -> Any:
        if (x > 0).all():
            raise ValueError("all of them")
        return x * 2

    compiled = tatara.compile(program)
    for x in (M, M, abs(M), M, abs(M)):
        if (x > 0).all():
            with pytest.raises(ValueError, match="all of them"):
                compiled(x)
        else:
            same(program(x), compiled(x))
