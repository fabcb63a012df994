"""Whole steps that write to parts of parameters where gradients are switched off, and steps over complex parameters, beside
eager: losses, parameters, gradients, the optimizer's state; one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

Step = Callable[[nn.Module, torch.optim.Optimizer, torch.Tensor], torch.Tensor]


def plain(m: Any, o: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    o.zero_grad()
    loss = m(x).pow(2).sum()
    loss.backward()
    o.step()
    return loss


def row_after(m: Any, o: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    loss = plain(m, o, x)
    with torch.no_grad():
        m[0].weight[0].zero_()
    return loss


def clamped_before(m: Any, o: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m[0].weight.view(-1).clamp_(-0.1, 0.1)
    return plain(m, o, x)


def between_the_passes(m: Any, o: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    o.zero_grad()
    loss = m(x).pow(2).sum()
    with torch.no_grad():
        m[2].bias[:1].add_(1)
    loss.backward()
    o.step()
    return loss


def by_hand(m: Any, o: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    o.zero_grad()
    loss = m(x).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        for p in m.parameters():
            p.grad.view(-1).mul_(0.5)
            p.view(-1).sub_(p.grad.view(-1), alpha=0.1)
    return loss


def several_parts(m: Any, o: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    loss = plain(m, o, x)
    with torch.no_grad():
        w = m[0].weight
        w.div_(w.norm(dim=1, keepdim=True))
        w[:, :2].clamp_(min=0)
        w.diagonal().fill_(0.5)
    return loss


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5, dtype=torch.complex64)
        self.scale = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.inner(torch.complex(x, -x)).tanh() * self.scale).abs()


def model(kind: str) -> nn.Module:
    return Complex() if kind == "complex" else nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def trained(step: Step, kind: str, optimizer: str, compiled: bool) -> list[torch.Tensor]:
    torch.manual_seed(1)
    m = model(kind)
    o = OPTIMIZERS[optimizer](m.parameters())
    run = (tatara.compile if compiled else lambda f: f)(lambda x: step(m, o, x))
    found = [run(torch.randn(3, 4)).detach() for _ in range(4)]
    for p in m.parameters():
        found += [p.detach(), p.grad, *(v for v in o.state.get(p, {}).values() if isinstance(v, torch.Tensor))]
    return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (row_after, ""),
        (clamped_before, ""),
        (between_the_passes, ""),
        (by_hand, ""),
        (several_parts, ""),
        (plain, "complex"),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_one_graph(step: Step, kind: str, optimizer: str) -> None:
    expected = trained(step, kind, optimizer, compiled=False)
    found = trained(step, kind, optimizer, compiled=True)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)
    stats = tatara.stats()
    assert (stats["breaks"], stats["fallbacks"], stats["graphs"]) == (
        0,
        0,
        2 if step is not by_hand else stats["graphs"],
    )
