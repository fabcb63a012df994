"""Conditions that fall otherwise behind writes to tensors of any size: the call is taken back, and runs as eager does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tatara

SIZES = [64, 700]  # 16 KB and 1.9 MB a matrix: less and more than what each call may keep


def _steps(size: int, make: Callable[..., torch.optim.Optimizer], compiled: bool) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 1))
    optimizer = make(model.parameters(), lr=1e-3)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tatara.compile(step) if compiled else step
    torch.manual_seed(1)
    seen = [run(torch.randn(4, size)) for _ in range(11)]
    return [*seen, *(p.detach() for p in model.parameters()), *(state["step"] for state in optimizer.state.values())]


@pytest.mark.parametrize("size", SIZES)
def test_an_optimizer_that_rectifies_after_some_steps(size: int, fresh: None) -> None:
    expected, got = _steps(size, torch.optim.RAdam, False), _steps(size, torch.optim.RAdam, True)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_a_counter_that_ends_a_phase(size: int, fresh: None) -> None:
    def f(state: Tensor, count: Tensor, x: Tensor) -> Tensor:
        state.mul_(0.9).add_(x)
        count += 1
        if count > 5:
            state.neg_()
        return state.sum() + count

    compiled = tatara.compile(f)
    ours, theirs = torch.zeros(size, size), torch.zeros(size, size)
    a, b = torch.zeros(()), torch.zeros(())
    torch.manual_seed(0)
    for _ in range(9):
        x = torch.randn(size, size)
        torch.testing.assert_close(compiled(ours, a, x), f(theirs, b, x))
        torch.testing.assert_close(ours, theirs)
        assert a == b and ours._version == theirs._version
