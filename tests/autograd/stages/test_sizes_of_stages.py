"""Gradients of graphs in several stages, with sizes that vary: each stage decides by sizes that another may not know."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the ecosystem's name

import tatara

Later = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

LATER: dict[str, Later] = {
    "softmax of a product": lambda h, y: (y @ y.mT).softmax(-1) * h.sum(),
    "broadcast": lambda h, y: (y[:, :1] * y[:1] * h.sum()).sum(0),
    "cat": lambda h, y: torch.cat([y, y * h.sum()], 0).view(2, -1),
    "max_pool": lambda h, y: F.max_pool1d((y * h.sum())[None], 2),
    "adaptive_avg_pool": lambda h, y: F.adaptive_avg_pool1d((y * h.sum())[None], 3),
    "interpolate": lambda h, y: F.interpolate((y * h.sum())[None, None], scale_factor=2, mode="bilinear"),
    "chunk": lambda h, y: (y * h.sum()).chunk(3)[0],
    "unfold": lambda h, y: (y * h.sum()).unfold(0, 3, 2).sum(),
    "tril": lambda h, y: ((y @ y.mT) * h.sum()).tril().roll(2, 0),
    "cumsum": lambda h, y: (y * h.sum()).cumsum(0).flip(0),
    "layer_norm": lambda h, y: F.layer_norm(y, (y.shape[-1],)) * h.sum(),
    "repeat": lambda h, y: (y * h.sum()).repeat(2, 1).reshape(y.shape[0], 2, -1),
    "pad": lambda h, y: F.pad((y * h.sum()), (1, 2))[:, 1:-1],
    "einsum": lambda h, y: torch.einsum("ij,kj->ik", y, y * h.sum()),
    "attention": lambda h, y: F.scaled_dot_product_attention(y[None, None] * h.sum(), y[None, None], y[None, None]),
}


@pytest.mark.parametrize("name", LATER)
def test_a_later_stage_decides_by_sizes(name: str) -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, beside = x.sin(), x.cos()
        return first, beside, LATER[name](first, y)

    compiled = tatara.compile(both, dynamic=True)
    before = tatara.stats()["fallbacks"]
    for sizes in ((4, 6), (5, 9), (8, 3), (12, 12), (4, 6)):
        x, y = torch.randn(3, 7, requires_grad=True), torch.randn(*sizes, requires_grad=True)
        for pick in (lambda r: r[2].sum(), lambda r: r[2].sum() + r[1].sum()):
            expected = torch.autograd.grad(pick(both(x, y)), (x, y))
            actual = torch.autograd.grad(pick(compiled(x, y)), (x, y))
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert tatara.stats()["fallbacks"] == before
