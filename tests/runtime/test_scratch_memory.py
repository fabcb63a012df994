"""What a process keeps of scratch memory between runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

SIZE = 1536  # a product is 9.4 MB
BYTES = SIZE * SIZE * 4


def chain(products: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Needs two products at a time."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(products):
            y = (y @ x).relu()
        return y.sum()

    return function


def test_runs_that_follow_each_other_share_it() -> None:
    x = torch.randn(SIZE, SIZE) / SIZE**0.5
    before = tatara.stats()["scratch_bytes"]
    for products in (3, 4, 5):
        compiled = tatara.compile(chain(products))
        for _ in range(2):
            torch.testing.assert_close(compiled(x), chain(products)(x), rtol=1e-3, atol=1e-2)
    held = tatara.stats()["scratch_bytes"] - before
    assert BYTES <= held <= 3 * BYTES  # of one of them, not of all


def test_a_backward_pass_gives_it_back() -> None:
    compiled = tatara.compile(chain(4))
    grads = []
    for run in (chain(4), compiled, compiled, compiled):
        x = (torch.linspace(-1, 1, SIZE * SIZE).view(SIZE, SIZE) / SIZE).requires_grad_()
        loss = run(x)
        loss.backward()
        assert x.grad is not None
        grads.append(x.grad)
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0], rtol=1e-3, atol=1e-4)
    assert tatara.stats()["scratch_bytes"] < BYTES
