"""Writes to parameters beside gradients in functions whose results have no history: one graph, and eager's results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
Update = Callable[[torch.nn.Module, torch.nn.Module], None]


def by_copies(mean: torch.nn.Module, model: torch.nn.Module) -> None:
    with torch.no_grad():
        state = model.state_dict()
        for name, value in mean.state_dict().items():
            value.copy_(value * 0.9 + state[name] * 0.1)


def by_products(mean: torch.nn.Module, model: torch.nn.Module) -> None:
    with torch.no_grad():
        for p, q in zip(mean.parameters(), model.parameters(), strict=True):
            p.mul_(0.9).add_(q, alpha=0.1)


def by_views(mean: torch.nn.Module, model: torch.nn.Module) -> None:
    with torch.no_grad():
        for p, q in zip(mean.parameters(), model.parameters(), strict=True):
            p.view(-1).lerp_(q.reshape(-1), 0.1)


def by_detached(mean: torch.nn.Module, model: torch.nn.Module) -> None:
    """With gradients on: state_dict() gives tensors without a history."""
    state = model.state_dict()
    for name, value in mean.state_dict().items():
        value.mul_(0.9).add_(state[name], alpha=0.1)


def models() -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    return copy.deepcopy(model), model


def run(update: Update, compiled: bool) -> list[Any]:
    mean, model = models()

    def program(x: Tensor) -> Tensor:
        update(mean, model)
        return x + 1

    call = tatara.compile(program) if compiled else program
    shown = []
    for n in range(5):
        result = call(torch.full((3,), float(n)))
        state = [(p.detach().clone(), p.requires_grad, p.is_leaf, p._version) for p in mean.parameters()]
        shown.append([result, state])
    return shown


@pytest.mark.parametrize("update", [by_copies, by_products, by_views, by_detached])
def test_means_of_weights(update: Update) -> None:
    with counts() as grown:
        found = run(update, True)
    same(found, run(update, False))
    assert grown["graphs"] == 1
    assert grown["breaks"] == 0
    assert grown["host_calls"] == 0
    assert grown["kernels_launched"] > 0


def test_a_result_with_a_history_keeps_it() -> None:
    """What is read with gradients on behind such a write."""
    found = []
    for compile_it in (False, True):
        mean, model = models()

        def program(x: Tensor, mean: Any = mean, model: Any = model) -> Tensor:
            by_copies(mean, model)
            with torch.no_grad():
                flat = model[0].weight.view(-1)
            return mean(x).sum() + flat.sum()

        call = tatara.compile(program) if compile_it else program
        shown = []
        for _ in range(4):
            mean.zero_grad()
            result = call(torch.ones(2, 4))
            result.backward()
            shown.append([result.detach(), [p.grad.clone() for p in mean.parameters()]])
        found.append(shown)
    same(found[1], found[0])
