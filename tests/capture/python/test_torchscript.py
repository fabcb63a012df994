"""Functions of torch.jit.script are traced through; those of torch.jit.trace keep what they recorded."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def _scaled(x: torch.Tensor, count: int, factor: float = 2.0) -> torch.Tensor:
        return torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * count) * x * factor

    @torch.jit.script
    def _expanded(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return x.expand([like.size(0), x.size(-2), x.size(-1)])

    _traced = torch.jit.trace(lambda x: x * 2 if x.sum() > 0 else x * 3, (torch.ones(2, 2),), check_trace=False)


def _calls(x: torch.Tensor) -> torch.Tensor:
    return _scaled(x.sin(), 3) + _scaled(x, count=2, factor=0.5) + _expanded(x, x.new_ones(2, 1, 1))


@pytest.mark.filterwarnings("ignore")
def test_scripted_functions_are_part_of_the_graph() -> None:
    compiled = tatara.compile(_calls, fullgraph=True)
    with counts() as grown:
        for size in (3, 3, 4, 5, 5):
            gradients: list[Any] = []
            x = torch.randn(size, 4, requires_grad=True)
            for f in (compiled, _calls):
                x.grad = None
                result = f(x)
                result.sum().backward()
                gradients.append((result, x.grad))
            for got, expected in zip(*gradients, strict=True):
                torch.testing.assert_close(got, expected)
    assert grown["graphs"] == 2


@pytest.mark.filterwarnings("ignore")
def test_traced_functions_keep_their_path() -> None:
    compiled = tatara.compile(lambda x: _traced(x.abs() * -1) + 1)
    x = torch.randn(2, 2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x.abs() * -2 + 1)
