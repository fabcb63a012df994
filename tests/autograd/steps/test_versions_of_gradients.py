"""Versions of `.grad`: programs that save gradients for later see whether they were written to, as in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize(("clip", "to_none"), [(False, False), (False, True), (True, False)])
def test_after_each_step(clip: bool, to_none: bool) -> None:
    def steps(compile: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = layer(x).pow(2).mean()
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            optimizer.step()
            return loss

        run = compile(step)
        found: list[Any] = []
        for call in range(6):
            loss = run(torch.ones(2, 4))
            found.append(
                (loss.detach(), [(p.grad.detach().clone(), p.grad._version, p._version) for p in layer.parameters()])
            )
            if call % 3 == 2:
                optimizer.zero_grad(set_to_none=to_none)
        return found

    same(steps(tatara.compile), steps(lambda function: function), rtol=1e-4, atol=1e-6)


def test_modules_copied_inside() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(10)))

    def program(x: torch.Tensor) -> torch.Tensor:
        fast = copy.deepcopy(model)
        return fast(x).tanh()

    compiled = tatara.compile(program)
    for _ in range(4):  # a warning about recompile_limit would be an error
        x = torch.randn(2, 4)
        same(compiled(x), program(x), rtol=1e-4, atol=1e-6)
    assert tatara.stats()["graphs"] <= 2
