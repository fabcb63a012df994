"""On a GPU: sizes, numbers and conditions that data decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from data_programs import OTHERS, WHOLE, check_program

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", WHOLE + OTHERS)
def test_as_eager(program: Callable[..., Any], dynamic: bool, needs: bool) -> None:
    check_program(program, dynamic, needs, "cuda")
