"""Strides of dimensions of one element: eager's rules differ from operator to operator, and a program sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor

INPUTS = {
    "turned": torch.rand(1, 3, 1).transpose(0, 1),
    "part of turned": torch.rand(2, 3, 4).transpose(1, 2)[1:],
    "column of a row": torch.rand(1, 4).t(),
    "one column": torch.rand(3, 4)[:, :1],
    "one row": torch.rand(3, 4)[1:2],
    "one channel of channels last": torch.rand(2, 3, 1, 4).permute(0, 3, 1, 2)[:, :1],
    "channels last with one channel": torch.rand(2, 1, 3, 3).to(memory_format=torch.channels_last),
    "channels last with one pixel": torch.rand(2, 3, 1, 1).to(memory_format=torch.channels_last),
    "one of repeated columns": torch.rand(5, 1).expand(5, 3)[:, :1],
    "one element": torch.rand(1, 1),
}

UNARY = (
    "neg abs exp log sqrt rsqrt sin tanh sigmoid relu floor round sign square reciprocal erf isnan isinf logical_not deg2rad "
    "nan_to_num clone contiguous t_same softmax cumsum flip fliplr rot90 sum mean amax sort tril triu"
).split()
NUMBERS: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + 1,
    "rsub": lambda x: 1 - x,
    "mul": lambda x: x * 2.0,
    "pow": lambda x: x**2,
    "rpow": lambda x: 2**x,
    "float_power": lambda x: torch.float_power(x, 2),
    "clamp": lambda x: x.clamp(0.1, 0.9),
    "clamp by one": lambda x: x.clamp(max=0.5),
    "clamp_min": lambda x: torch.clamp_min(x, 0.5),
    "clamp by tensors": lambda x: x.clamp(x * 0.5, x),
    "where": lambda x: torch.where(x > 0.5, x, 0.0),
    "isin": lambda x: torch.isin(x, 0.5),
    "lerp": lambda x: x.lerp(x, 0.5),
    "maximum": lambda x: x.maximum(x * 2),
    "fmod": lambda x: x.fmod(0.3),
    "view": lambda x: x.view(x.shape),
    "reshape": lambda x: x.reshape(x.shape),
    "reshape_as": lambda x: x.reshape_as(x.clone()),
    "reversed": lambda x: x.reshape(x.shape[::-1]),
    "to": lambda x: x.to(torch.float64),
    "zeros_like": torch.zeros_like,
    "full_like": lambda x: torch.full_like(x, 2),
    "stack": lambda x: torch.stack([x, x]),
    "cat": lambda x: torch.cat([x, x]),
    **{
        name: getattr(F, name)
        for name in ("relu6", "hardtanh", "hardswish", "leaky_relu", "gelu", "silu", "softplus", "elu")
    },
}


def unary(name: str) -> Callable[[Tensor], Any]:
    dims = {"softmax": (0,), "cumsum": (0,), "flip": (0,), "sum": (0,), "mean": (0,), "amax": (0,), "sort": (0,)}
    if name == "t_same":
        return lambda x: x.transpose(0, 0)
    return lambda x: getattr(x, name)(*dims.get(name, ()))


@pytest.mark.parametrize("name", [*UNARY, *NUMBERS])
def test_strides_are_those_of_eager(name: str) -> None:
    function = NUMBERS[name] if name in NUMBERS else unary(name)
    for place, x in INPUTS.items():
        try:
            expected = function(x)
        except RuntimeError:
            continue
        compiled = tatara.compile(lambda x: function(x))
        for _ in range(2):  # the first call runs in eager
            ours, theirs = compiled(x), expected
            if isinstance(theirs, tuple):
                ours, theirs = ours[0], theirs[0]
            assert ours.stride() == theirs.stride(), place
            torch.testing.assert_close(ours, theirs)
