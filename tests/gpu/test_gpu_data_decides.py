"""On a GPU: sizes, numbers and conditions that data decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from data_programs import OTHERS, WHOLE, compare, operands, outcome, split

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", WHOLE + OTHERS)
def test_as_eager(program: Callable[..., Any], dynamic: bool, needs: bool) -> None:
    compiled = tatara.compile(program, dynamic=True) if dynamic else tatara.compile(program)
    with counts() as grown:
        for call in range(11):
            x, w = operands(call, dynamic and program is not split, "cuda")
            expected, actual = outcome(program, x, w, needs, call), outcome(compiled, x, w, needs, call)
            compare(actual, expected)
    assert grown["fallbacks"] == 0
    if program in WHOLE:
        assert (grown["graphs"], grown["breaks"]) == (1, 0)
