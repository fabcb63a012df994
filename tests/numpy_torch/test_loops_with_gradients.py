"""The page of loops as functions of tensors: gradients by finite differences, or the line that has none."""

from __future__ import annotations

import importlib.util
import inspect
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import numpy as np
import tatara

_SPEC = importlib.util.spec_from_file_location(
    "loop_page", pathlib.Path(__file__).parent.parent / "numpy" / "loop_page.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
loop_page = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(loop_page)

SIZE = 12
# Branches on elements, steps of zip and enumerate, and what reads a value: one pass cannot tell what other values do.
REASONS = (
    r"value of a NumPy bool|(zip|enumerate) over an array|call of (float|max) with arrays|getitem raised an exception"
)
LEAST = 33  # programs with gradients


def _numbers(result: Any, arguments: list[Any]) -> list[Any]:
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return [x for x in [*results, *arguments] if isinstance(x, (np.ndarray, np.floating, float, torch.Tensor))]


def _goal_of_arrays(program: Callable[..., Any], given: list[Any]) -> float:
    mine = [x.copy() if isinstance(x, np.ndarray) else x for x in given]
    found = [np.asarray(x) for x in _numbers(program(*mine), mine)]
    return float(sum(np.sin(x.real.astype(np.float64)).sum() for x in found if x.dtype.kind in "fc"))


def _gradients(program: Callable[..., Any], given: list[Any]) -> list[torch.Tensor | None]:
    leaves = [torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x for x in given]
    wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.dtype == torch.float64]
    for leaf in wanted:
        leaf.requires_grad_()
    mine = [x.clone() if isinstance(x, torch.Tensor) else x for x in leaves]
    found = _numbers(tatara.wrap_numpy(program)(*mine), mine)
    goal = sum(
        torch.sin(x.real.double()).sum()
        for x in found
        if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())
    )
    if not isinstance(goal, torch.Tensor) or not goal.requires_grad:
        return [None] * len(wanted)
    return list(torch.autograd.grad(goal, wanted, allow_unused=True))


def _outcome(program: Callable[..., Any]) -> str:
    """Right, the reason why there is none, or the program's own error."""
    given = loop_page.arguments(tuple(inspect.signature(program).parameters), SIZE)
    try:
        gradients = _gradients(program, given)
    except tatara.Unsupported as error:
        assert re.search(REASONS, str(error)), error
        assert f"in {program.__name__}" in str(error)
        return "a reason"
    except ZeroDivisionError:
        assert program.__name__ == "division_by_zero"
        return "an error"
    places = [n for n, x in enumerate(given) if isinstance(x, np.ndarray) and x.dtype == np.float64]
    for place, gradient in zip(places, gradients, strict=True):
        way = np.random.default_rng(0).standard_normal(given[place].shape)
        sides = []
        for step in (1e-6, -1e-6):
            moved = [x + step * way if n == place else x for n, x in enumerate(given)]
            sides.append(_goal_of_arrays(program, moved))
        expected = (sides[0] - sides[1]) / 2e-6
        found = 0.0 if gradient is None else float((gradient.numpy() * way).sum())
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    return "right"


@pytest.mark.parametrize("program", loop_page.PAGE, ids=lambda f: f.__name__)
def test_a_loop_of_the_page_has_its_gradient_or_a_reason(program: Callable[..., Any]) -> None:
    _outcome(program)


def test_most_loops_without_branches_on_elements_have_gradients() -> None:
    assert [_outcome(program) for program in loop_page.PAGE].count("right") >= LEAST


def test_an_argument_that_is_written_keeps_what_gradients_read() -> None:
    def program(a: Any, b: Any) -> None:
        for i in range(1, a.shape[0]):
            a[i] *= b * a[i - 1]

    a, b = torch.rand(6, 4, dtype=torch.float64), torch.rand(4, dtype=torch.float64, requires_grad=True)
    mine, theirs = a.clone(), list(a.clone().unbind())
    for i in range(1, 6):
        theirs[i] = theirs[i] * (b * theirs[i - 1])
    tatara.wrap_numpy(program)(mine, b)
    torch.testing.assert_close(mine, torch.stack(theirs))
    (got,) = torch.autograd.grad(mine.sum(), b)
    (expected,) = torch.autograd.grad(torch.stack(theirs).sum(), b)
    torch.testing.assert_close(got, expected)
