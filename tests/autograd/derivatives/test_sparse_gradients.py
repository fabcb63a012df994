"""Operators asked for sparse gradients give them: these run in eager, whatever else the graph holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

ROWS = torch.tensor([[0, 3], [3, 7], [1, 1]])
X = torch.linspace(-1, 1, 12).view(3, 4)
Loss = Callable[[torch.Tensor], torch.Tensor]

PROGRAMS: dict[str, Loss] = {
    "embedding": lambda w: F.embedding(ROWS, w, sparse=True).pow(2).sum(),
    "embedding_bag sum": lambda w: F.embedding_bag(ROWS, w, sparse=True, mode="sum").pow(2).sum(),
    "embedding_bag mean": lambda w: (F.embedding_bag(ROWS, w, sparse=True) * X).sum(),
    "gather": lambda w: w.gather(0, ROWS, sparse_grad=True).pow(2).sum(),
    "two": lambda w: (
        F.embedding(ROWS, w, sparse=True).sum(1) * F.embedding_bag(ROWS, w, sparse=True, mode="sum")
    ).sum(),
    "beside a dense one": lambda w: F.embedding_bag(ROWS, w, sparse=True, mode="sum").pow(2).sum() + w.sin().sum(),
    "after others": lambda w: F.embedding(ROWS, w * 2, sparse=True).pow(2).sum(),
}


def _seen(gradient: torch.Tensor | None) -> Any:
    assert gradient is not None
    return gradient.layout, gradient.to_dense()


def outside(loss: Loss, w: torch.Tensor) -> list[Any]:
    value = loss(w)
    value.backward()
    return [value.detach(), _seen(w.grad), _seen(torch.autograd.grad(loss(w), w)[0])]


def inside(loss: Loss, w: torch.Tensor) -> list[Any]:
    return [loss(w).detach(), _seen(w.grad)]


@pytest.mark.parametrize("whole", [False, True], ids=["loss", "step"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, whole: bool) -> None:
    loss = PROGRAMS[name]

    def step(w: torch.Tensor) -> torch.Tensor:
        value = loss(w)
        value.backward()
        return value

    program, run = (step, inside) if whole else (loss, outside)
    compiled = tatara.compile(program)
    for _ in range(3):
        w = torch.randn(8, 4)
        same(run(compiled, w.clone().requires_grad_()), run(program, w.clone().requires_grad_()))


def test_optimizer_for_sparse_gradients() -> None:
    def trained(compile: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(0)
        bag, head = torch.nn.EmbeddingBag(8, 4, sparse=True), torch.nn.Linear(4, 2)
        optimizers = [torch.optim.SparseAdam(bag.parameters()), torch.optim.AdamW(head.parameters())]
        forward = compile(lambda rows: head(bag(rows)).pow(2).sum())
        losses = []
        for _ in range(4):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = forward(ROWS)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.detach())
        return [losses, bag.weight.detach(), head.weight.detach()]

    same(trained(tatara.compile), trained(lambda f: f))
    assert tatara.stats()["breaks"] == 0
