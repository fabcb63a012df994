"""torch's context managers in C, made anew in each call: what holds one on its stack is compiled once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor

GUARDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "inference mode": torch.inference_mode,
    "inference mode, off": lambda: torch.inference_mode(False),
    "no subclasses": torch._C.DisableTorchFunctionSubclass,
    "one thread": lambda: torch.autograd.set_multithreading_enabled(False),
    "view tracking": lambda: torch.autograd.grad_mode._force_original_view_tracking(True),
}


class Step(nn.Module):
    def __init__(self, guard: Callable[[], AbstractContextManager[Any]], how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.teacher, self.student = nn.Linear(8, 5), nn.Linear(8, 5)
        self.guard, self.how = guard, how

    def aim(self, x: Tensor) -> Tensor:
        if self.how == "held":
            guard = self.guard()
            with guard:
                aim = self.teacher(x) * 2
            x = x + 1
            return aim if guard is not None else x
        if self.how == "on a stack":
            with ExitStack() as stack:
                stack.enter_context(self.guard())
                return self.teacher(x) * 2
        with self.guard():
            aim = self.teacher(x)
            if self.how == "broken inside":
                print(end="")
            return aim * 2

    def forward(self, x: Tensor) -> Tensor:
        aim = self.aim(x * 2)
        return F.kl_div(F.log_softmax(self.student(x), 1), F.softmax(aim.clone(), 1), reduction="batchmean")


@pytest.mark.parametrize("how", ["plain", "broken inside", "held", "on a stack"])
@pytest.mark.parametrize("guard", GUARDS)
def test_compiled_once(guard: str, how: str) -> None:
    eager, model = Step(GUARDS[guard], how), Step(GUARDS[guard], how)
    compiled = tatara.compile(model)

    def step() -> None:
        x = torch.randn(6, 8)
        results = []
        for module, run in ((eager, eager), (model, compiled)):
            module.zero_grad()
            out = run(x)
            out.backward()
            results.append((out, [p.grad for p in module.parameters()]))
        torch.testing.assert_close(results[1], results[0])
        assert not torch.is_inference_mode_enabled()

    for _ in range(3):
        step()
    with counts() as grown:
        for _ in range(4):
            step()
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)


@pytest.mark.parametrize("copied", [True, False])
def test_tensors_of_inference_mode_that_gradients_need(copied: bool) -> None:
    """Eager saves a copy, or refuses the tensor itself; in each call, without another trace."""
    layer = nn.Linear(8, 5)

    def program(x: Tensor, scale: Tensor) -> Tensor:
        return (layer(x).tanh() * (scale.clone() if copied else scale)).sum()

    compiled = tatara.compile(program)
    graphs = []
    for call in range(4):
        x = torch.randn(6, 8)
        with torch.inference_mode(call != 2):
            scale = torch.randn(6, 5)
        outcomes: list[Any] = []
        for run in (program, compiled):
            layer.zero_grad()
            try:
                run(x, scale).backward()
                outcomes.append([p.grad for p in layer.parameters()])
            except RuntimeError as error:
                outcomes.append(str(error))
        if isinstance(outcomes[0], str):
            assert not copied and outcomes[1] == outcomes[0]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0])
        graphs.append(tatara.stats()["graphs"])
    assert not copied or graphs[0] == graphs[-1]
