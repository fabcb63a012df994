"""A whole step becomes a graph once, however many passes of gradients are traced: each asks how its gradients lie in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Loss = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def square(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(x).square().mean()
    return loss


def with_constants(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return square(model, x) * torch.tensor([0.5, 2.0]).sum()


def with_writes(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = model(x).clone()
    y[0] = 0
    return y.square().mean()


def three_passes(model: nn.Module, optimizer: torch.optim.Optimizer, xs: list[torch.Tensor], loss_of: Loss) -> Any:
    losses = []
    for x in xs:
        loss = loss_of(model, x)
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return losses


def counted(step: Callable[..., Any], *args: Any) -> dict[str, int]:
    with counts() as grown:
        step(*args)
    return {name: grown[name] for name in ("graphs", "breaks", "calls_recorded", "calls_converted")}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("loss_of", [square, with_constants, with_writes])
def test_three_passes_convert_each_call_once(loss_of: Loss, momentum: float) -> None:
    ours = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    theirs = copy.deepcopy(ours)
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=momentum) for m in (ours, theirs))
    xs = [torch.randn(2, 4) for _ in range(3)]
    compiled = tatara.compile(three_passes)
    for number in range(4):
        found = counted(compiled, ours, mine, xs, loss_of)
        three_passes(theirs, other, xs, loss_of)
        assert found["calls_converted"] == found["calls_recorded"]
        assert found["breaks"] == 0
        assert found["calls_recorded"] > 0 if number == 0 else number == 1 or found["calls_recorded"] == 0, found
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        same(p, q)


def test_what_is_learned_of_sizes_begins_the_graph_anew() -> None:
    """A size that turns out to be one number after the pass is that number in the whole graph."""

    def step(x: torch.Tensor) -> torch.Tensor:
        (first,) = torch.autograd.grad((x * 2).sin().sum(), x)
        return first + 1 if x.shape[0] == 5 else first - 1

    compiled = tatara.compile(step, dynamic=True)
    for rows in (4, 5):
        x = torch.randn(rows, 2, requires_grad=True)
        found = counted(compiled, x)
        same(compiled(x), step(x))
        assert found["calls_converted"] > found["calls_recorded"] > 0, found
    graphs = [graph.text for graph in tatara.explain(compiled)(x).graphs]
    assert any("graph(%0: f32[5, s1" in text for text in graphs), graphs
