"""Masks of attention that leave everything in, as libraries write them while they are traced."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as attention

import tatara

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 16, 8


def places(more: int = 0) -> Tensor:
    return (torch.arange(LENGTH) + more)[None, None, :, None]


MASKS: dict[str, Callable[[], Tensor]] = {
    "all": lambda: (places() >= 0).expand(BATCH, 1, LENGTH, LENGTH),
    "all of both": lambda: ((places() >= 0) & (places(3) > 2)).expand(-1, -1, -1, LENGTH),
    "not the first": lambda: (places() >= 1).expand(BATCH, 1, LENGTH, LENGTH) | torch.eye(LENGTH, dtype=torch.bool),
    "not the first of both": lambda: (
        ((places() >= 0) & (places() > -1)).expand(-1, -1, -1, LENGTH) & (torch.arange(LENGTH) >= 1)
    ),
    "none but ones": lambda: torch.ones(LENGTH, LENGTH, dtype=torch.bool),
    "backwards": lambda: (torch.arange(LENGTH - 1, -1, -1)[None, None, :, None] >= 0).expand(-1, -1, -1, LENGTH),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("training", [False, True])
def test_values_and_gradients_are_eagers(mask: str, training: bool) -> None:
    torch.manual_seed(5)
    made = [torch.randn(BATCH, HEADS, LENGTH, WIDTH, requires_grad=training) for _ in range(3)]

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, attn_mask=MASKS[mask]())

    results = []
    for function in (f, tatara.compile(f)):
        out = function(*made)
        results.append([out])
        if training:
            results[-1] += torch.autograd.grad(out.square().sum(), made)
    for eager, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager)
        assert ours.stride() == eager.stride()
