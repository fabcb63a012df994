"""A page of loops: each does what the plain program does, and it is told which ones run as native code."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from loop_page import PAGE, arguments

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")

# Loops that the interpreter runs, and why.
NOT_NATIVE = {
    "list_of_numbers": "lists",
}
# Loops whose native code is taken back, so that the interpreter says what is wrong or has larger ints.
TAKEN_BACK = {"factorial_beyond_64_bits", "index_out_of_range", "division_by_zero"}


def _outcome(f: Callable[..., Any], given: list[Any]) -> tuple[Any, list[Any]]:
    mine = copy.deepcopy(given)
    try:
        return f(*mine), mine
    except Exception as error:
        return (type(error), str(error)), mine


def _check_same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            _check_same(one, other)
    elif isinstance(expected, (np.ndarray, np.generic, float, complex)):
        np.testing.assert_allclose(got, expected, rtol=1e-5 if getattr(expected, "itemsize", 8) == 4 else 1e-12)
    else:
        assert got == expected


@pytest.mark.parametrize("program", PAGE, ids=lambda f: f.__name__)
def test_a_loop_of_the_page_does_what_the_plain_one_does(program: Callable[..., Any]) -> None:
    given = arguments(tuple(inspect.signature(program).parameters))
    compiled = tatara.compile(program)
    before = tatara.stats()
    for _ in range(2):
        _check_same(_outcome(compiled, given), _outcome(program, given))
    now = tatara.stats()
    made, runs, back = (
        now[key] - before[key] for key in ("native_loops", "native_loop_runs", "native_loops_taken_back")
    )
    if program.__name__ in NOT_NATIVE:
        assert (made, runs) == (0, 0)
    elif program.__name__ in TAKEN_BACK:
        assert (made, runs, back) == (1, 0, 2)
    else:
        assert made >= 1
        assert runs == 2 * made
        assert back == 0


def test_the_page_has_sixty_loops() -> None:
    assert len(PAGE) == 60
