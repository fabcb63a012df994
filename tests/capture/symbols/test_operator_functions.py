"""Functions of the module `operator`, and of other C code, on a tensor and a number that varies."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

NAMES = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "eq", "ne", "gt", "ge"]
VALUES = (0.3, 0.5, 1.7, 0.3, 2.9)


@pytest.mark.smoke
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("number", [float, int])
@pytest.mark.parametrize("name", NAMES)
def test_operator_functions(name: str, number: type, turned: bool) -> None:
    function = getattr(operator, name)

    def program(x: torch.Tensor, c: float) -> Any:
        return function(c, x) if turned else function(x, c)

    compiled = tatara.compile(program)
    x = torch.rand(4) + 0.5
    with counts() as grown:
        for value in VALUES:
            c = number(value * (10 if number is int else 1))
            same(compiled(x, c), program(x, c))
    assert grown["recompiles"] < 2
    assert grown["fallbacks"] == 0


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv"])
def test_operators_in_place(name: str) -> None:
    function = getattr(operator, name)

    def program(x: torch.Tensor, c: float) -> Any:
        return function(x, c) is x

    compiled = tatara.compile(program)
    for value in VALUES:
        x, y = torch.ones(4), torch.ones(4)
        assert compiled(x, value) == program(y, value)
        same(x, y)


FORMS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "sum": lambda x, c: sum([x, c, x]),
    "sum from a number": lambda x, c: sum([x, x], c),
    "reduce": lambda x, c: functools.reduce(operator.mul, [x, c, x]),
    "map": lambda x, c: list(map(operator.lt, [x, x * 2], [c, c])),
    "partial": lambda x, c: functools.partial(operator.sub, x)(c),
    "max": lambda x, c: max(x.sum(), c, key=float),
    "in a list": lambda x, c: (x[0] != c).sum() + len([c, x]),
}


@pytest.mark.parametrize("name", FORMS)
def test_from_other_code_in_c(name: str) -> None:
    compiled = tatara.compile(FORMS[name])
    x = torch.rand(4) + 0.5
    for value in VALUES:
        same(compiled(x, value), FORMS[name](x, value))
