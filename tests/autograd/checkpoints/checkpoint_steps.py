"""Training steps through checkpoints, compiled and in eager, for the tests of both forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tatara
from counters import counts
from results import same

WIDTH, ROWS = 16, 32


def batch(seed: int) -> Any:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def step(run: Callable[[Any], Any], blocks: Any, seed: int) -> list[Any]:
    """Result, gradients, random state and buffers after a forward and a backward pass."""
    blocks.zero_grad()
    x = batch(seed)
    torch.manual_seed(seed)
    result = run(x)
    result.square().mean().backward()
    state = torch.get_rng_state()
    return [
        result.detach(),
        x.grad,
        state,
        *[p.grad for p in blocks.parameters()],
        *[b.clone() for b in blocks.buffers()],
    ]


def agree(ours: list[Any], theirs: list[Any]) -> None:
    same(ours, theirs, rtol=1e-4, atol=1e-4)


def check_one_graph(program: Callable[[Any, Any], Any], blocks: Any) -> None:
    """Three steps agree with eager's, from one graph."""
    compiled = tatara.compile(lambda x: program(blocks, x))
    with counts() as grown:
        for seed in range(3):
            agree(step(compiled, blocks, seed), step(lambda x: program(blocks, x), blocks, seed))
    assert [grown[k] for k in ("graphs", "breaks", "fallbacks", "recompiles")] == [1, 0, 0, 0]


def saved_bytes(result: Any, leaves: Any) -> int:
    """Memory that the history of a compiled result holds, beside the leaves'."""
    own = {t.untyped_storage().data_ptr() for t in leaves}
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in result.grad_fn.saved_tensors}
    return sum(size for place, size in found.items() if place not in own)
