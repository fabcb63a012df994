"""Numbers and tensors of other dtypes beside half types: eager converts most of them to the half type first, which rounds."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

HALF = [torch.float16, torch.bfloat16]
NUMBER = 1.3001  # of neither type
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": lambda x, y: y - x,
    "mul": torch.mul,
    "rmul": lambda x, y: torch.mul(y, x) if isinstance(y, torch.Tensor) else y * x,
    "div": torch.div,
    "rounded div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lerp": lambda x, y: torch.lerp(x, x * 2, y),
}
OF_TENSORS: dict[str, Callable[[Any, Any], Any]] = {
    "maximum": torch.maximum,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.3),
}


def _values(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.cat([torch.rand(60) * 3, torch.tensor([NUMBER, 2.0, 0.0])]).to(dtype)


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", OPERATORS)
def test_numbers(name: str, dtype: torch.dtype) -> None:
    x = _values(dtype)
    function = OPERATORS[name]
    compiled = tatara.compile(lambda x, y: function(x, y))
    for number in (NUMBER, NUMBER, 0.7003, NUMBER, 2.0):
        same(compiled(x, number), function(x, number), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("other", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", OPERATORS | OF_TENSORS)
def test_tensors_without_dimensions(name: str, dtype: torch.dtype, other: torch.dtype) -> None:
    if other == torch.int64 and name in ("fmod", "remainder", "rounded div", "lerp"):
        return
    x, y = _values(dtype), torch.tensor(257 if other == torch.int64 else NUMBER, dtype=other)
    function = (OPERATORS | OF_TENSORS)[name]
    compiled = tatara.compile(lambda x, y: function(x, y))
    for _ in range(3):
        same(compiled(x, y), function(x, y), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", ["add", "sub", "rsub", "mul", "div", "eq", "lt", "maximum"])
def test_integers(name: str, dtype: torch.dtype) -> None:
    """Integers beyond the half type's are rounded, or infinite, before anything is computed."""
    x, y = torch.ones(6, dtype=dtype), torch.tensor([257, 1027, 2049, 4099, 65537, 3])
    function = (OPERATORS | OF_TENSORS)[name]
    compiled = tatara.compile(lambda x, y: function(x, y))
    for _ in range(3):
        same(compiled(x, y), function(x, y), rtol=0, atol=0, equal_nan=True)
        same(compiled(x, y[:1]), function(x, y[:1]), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALF)
def test_the_next_number_of_a_half_type(dtype: torch.dtype) -> None:
    x, y = _values(dtype), _values(dtype).flip(0)
    compiled = tatara.compile(lambda x, y: torch.nextafter(x, y) * 1)
    for _ in range(3):
        same(compiled(x, y), torch.nextafter(x, y) * 1, rtol=0, atol=0, equal_nan=True)
