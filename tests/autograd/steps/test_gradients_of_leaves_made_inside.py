"""`.grad` of leaves that a graph makes lies as the leaf does, whatever the pass gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

MADE: dict[str, Callable[[Any], Any]] = {
    "a copy": lambda x: x.clone().requires_grad_(),
    "detached": lambda x: x.detach().requires_grad_(),
    "ones": lambda x: torch.ones(3, 2, 4, requires_grad=True),
    "transposed": lambda x: (x * 2).transpose(0, 2).contiguous().transpose(0, 2).requires_grad_(),
    "one element": lambda x: (x * 2)[:, :1].clone().requires_grad_(),
    "strided": lambda x: (x * 2)[:, :, ::2].requires_grad_(),
}
LOSSES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x.sin().sum(),
    "transposed": lambda x: (x.transpose(0, 1) * torch.arange(float(x.shape[2]))).sin().sum(),
    "reversed": lambda x: (x.permute(2, 1, 0).contiguous() * 2).sin().sum(),
    "product": lambda x: (x.transpose(0, 1) @ torch.ones(x.shape[2], 4)).sin().sum(),
    "expanded": lambda x: x.sum(),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("loss", LOSSES)
def test_strides(made: str, loss: str) -> None:
    def step(x: Any) -> Any:
        leaf = MADE[made](x)
        LOSSES[loss](leaf).backward()
        return leaf.grad

    compiled = tatara.compile(step)
    for _ in range(4):
        x = torch.linspace(-1, 1, 24).reshape(3, 2, 4)
        same(compiled(x), step(x))
