"""Views and copies of tensors without elements are compiled, with their gradients, tangents and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Function = Callable[[torch.Tensor], torch.Tensor]

SHAPES = [(0, 4, 2, 6), (1, 4, 0, 6), (1, 4, 2, 0), (2, 0, 4, 2), (0, 0, 2, 2), (2, 4, 0, 0)]

FUNCTIONS: dict[str, Function] = {
    "shuffle by hand": lambda x: (
        x.sin().reshape(x.shape[0], 2, 2, *x.shape[2:]).permute(0, 3, 1, 4, 2).reshape(5, 0) + 1
    ),
    "reshape": lambda x: x.exp().reshape(x.shape[0], x.shape[1] * x.shape[2], x.shape[3]) + 1,
    "reshape after permute": lambda x: (
        x.permute(3, 1, 0, 2).reshape(x.shape[3] * x.shape[1], x.shape[0], x.shape[2]).exp()
    ),
    "other sizes": lambda x: x.exp().reshape(5, 0, 3) * 2,
    "flatten": lambda x: x.cos().flatten() * 2,
    "unflatten": lambda x: x.cos().unflatten(1, (x.shape[1], 1)).mT.contiguous() * 2,
    "tile": lambda x: x.cos().tile(2, 1, 3, 1),
    "repeat": lambda x: x.cos().repeat(3, 1, 2, 1, 2),
    "sum of a reshape": lambda x: x.exp().reshape(-1 if x.shape[0] else 1, 7, 0).sum(1) + 1,
    "cat": lambda x: torch.cat([x.flatten(), x.flatten() * 2]) + 1,
}


def gradient(function: Function) -> Callable[[torch.Tensor], Any]:
    def run(x: torch.Tensor) -> Any:
        return torch.autograd.grad(function(x).sum(), x)[0]

    return run


MODES: dict[str, Callable[[Function], Callable[[torch.Tensor], Any]]] = {
    "run": lambda function: function,
    "gradient": gradient,
    "jvp": lambda function: lambda x: torch.func.jvp(function, (x,), (torch.ones_like(x),)),
    "vmap": lambda function: lambda x: torch.func.vmap(function)(torch.stack([x, x + 1])),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_compiled(name: str, mode: str) -> None:
    function = MODES[mode](FUNCTIONS[name])
    tried = 0
    for shape in SHAPES:
        x = torch.randn(shape).requires_grad_(mode == "gradient")
        try:
            expected = function(x)
        except RuntimeError:
            continue  # the sizes do not fit
        tried += 1
        tatara.reset()
        compiled = tatara.compile(function)
        with counts() as grown:
            for _ in range(2):
                same(compiled(x), expected)
        assert (shape, grown["breaks"], grown["fallbacks"]) == (shape, 0, 0)
    assert tried >= 2
