"""On a GPU: whole steps of training whose optimizers count on the CPU are one graph each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graph_counts import counted
from torch import Tensor, nn

import tatara

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "amsgrad": lambda params, **options: torch.optim.Adam(params, amsgrad=True, **options),
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
}


def _steps(
    name: str, foreach: bool | None, compiled: bool, steps: int = 14
) -> tuple[list[Any], Callable[[Tensor], Any]]:
    torch.manual_seed(0)
    model = nn.Sequential(*[each for _ in range(3) for each in (nn.Linear(32, 32), nn.Tanh())]).cuda()
    optimizer = OPTIMIZERS[name](model.parameters(), lr=1e-3, foreach=foreach)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tatara.compile(step) if compiled else step
    seen: list[Any] = []
    for i in range(steps):
        torch.manual_seed(i)
        seen.append(run(torch.randn(16, 32, device="cuda")))
    seen += [p.detach() for p in model.parameters()]
    for state in optimizer.state.values():
        seen += [state[key] for key in sorted(state) if isinstance(state[key], Tensor)]
        seen += [state["step"].item(), state["step"]._version, str(state["step"].device)]
    return seen, run


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_whole_steps(name: str, foreach: bool | None) -> None:
    (expected, _), (got, run) = _steps(name, foreach, False), _steps(name, foreach, True)
    assert len(expected) == len(got)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, rtol=2e-4, atol=2e-5) if isinstance(a, Tensor) else None
        assert isinstance(a, Tensor) or a == b
    with counted(launched=3):  # one CUDA graph a step
        for _ in range(3):
            run(torch.randn(16, 32, device="cuda"))


def test_a_counter_on_the_cpu() -> None:
    def f(x: Tensor, counter: Tensor) -> Tensor:
        counter += 1
        y = x * counter
        if counter > 6:
            y = y - 1
        return y.relu() + counter

    compiled = tatara.compile(f)
    x = torch.randn(64, device="cuda")
    a, b = torch.zeros(()), torch.zeros(())
    for _ in range(12):
        torch.testing.assert_close(compiled(x, a), f(x, b))
        assert a == b and a._version == b._version
