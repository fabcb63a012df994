"""Torch modules that the program makes anew in each call: guarded by structure, so that their code is compiled once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
teacher = nn.Linear(3, 3)


def halve(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return out / 2


class Focal(nn.Module):
    def __init__(self, gamma: float = 2.0, mode: str = "mean") -> None:
        super().__init__()
        self.gamma, self.mode = gamma, mode

    def forward(self, x: Tensor) -> Tensor:
        loss = (x.sigmoid() - 0.5).abs() * self.gamma
        return loss.mean(1, keepdim=True) + x if self.mode == "mean" else loss * x


class Counting(Focal):
    """Writes to itself, numbers and tensors."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        self.last = x.detach() * self.calls
        return super().forward(x) + self.calls


class Distilled(nn.Module):
    """Holds a module that stays, hidden in a list or not."""

    def __init__(self, hidden: bool) -> None:
        super().__init__()
        self.teacher = [teacher] if hidden else teacher
        self.student = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        model = self.teacher[0] if isinstance(self.teacher, list) else self.teacher
        return self.student(x) - model(x).detach()


def hooked() -> nn.Module:
    module = nn.Linear(3, 3)
    module.register_forward_hook(halve)
    return module


MODULES: dict[str, Callable[[int], nn.Module]] = {
    "a loss": lambda call: nn.SmoothL1Loss(reduction="none"),
    "attributes": lambda call: Focal(),
    "a number that varies": lambda call: Focal(1.5 + call),
    "written": lambda call: Counting(),
    "parameters": lambda call: nn.Linear(3, 3),
    "buffers": lambda call: nn.BatchNorm1d(3),
    "modules": lambda call: nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 3))),
    "one that stays": lambda call: Distilled(False),
    "one that stays, hidden": lambda call: Distilled(True),
}

LOSSES = nn.modules.loss._Loss


def result(module: nn.Module, x: Tensor) -> Tensor:
    return module(x, torch.zeros_like(x)) if isinstance(module, LOSSES) else module(x)


class Owner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return result(self.inner, x) * 2


def given_inner(owner: Owner, compiled: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    """A call that puts its module into the owner before."""

    def call(module: nn.Module, x: Tensor) -> Tensor:
        owner.inner = module
        return compiled(x)

    return call


def in_a_place(C: Any) -> Callable[[nn.Module, Tensor], Tensor]:
    owner = Owner()
    return given_inner(owner, C(owner))


def behind_a_break(C: Any) -> Callable[[nn.Module, Tensor], Tensor]:
    owner = Owner()

    def step(x: Tensor) -> Tensor:
        module = owner.inner
        x = x * 2
        print(end="")
        return result(module, x) + 1

    return given_inner(owner, C(step))


def in_a_callee(C: Any) -> Callable[[nn.Module, Tensor], Tensor]:
    """The function itself ends in eager; what it calls has entries of its own."""

    def inner(module: nn.Module, x: Tensor) -> Tensor:
        return result(module, x) + 1

    class Ends:
        def __del__(self) -> None:
            pass

    def step(module: nn.Module, x: Tensor) -> Tensor:
        ends = Ends()
        return inner(module, x) if ends else x

    return C(step)


PLACES: dict[str, Callable[[Any], Callable[[nn.Module, Tensor], Tensor]]] = {
    "an argument": lambda C: C(lambda module, x: result(module, x).exp()),
    "an item": lambda C: (lambda f: lambda module, x: f([0, {"k": module}], x))(
        C(lambda items, x: result(items[1]["k"], x).exp())
    ),
    "an attribute": lambda C: (lambda f: lambda module, x: f(SimpleNamespace(m=module), x))(
        C(lambda box, x: result(box.m, x).exp())
    ),
    "a place": in_a_place,
    "a local": behind_a_break,
    "a callee's argument": in_a_callee,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", MODULES)
def test_compiled_once(kind: str, place: str) -> None:
    eager, compiled = PLACES[place](lambda f: f), PLACES[place](tatara.compile)

    def step(call: int) -> None:
        outcomes = []
        for run in (eager, compiled):
            torch.manual_seed(call)
            module, x = MODULES[kind](call), torch.randn(4, 3, requires_grad=True)
            out = run(module, x)
            out.square().sum().backward()
            grads = {name: p.grad for name, p in module.named_parameters() if p is not teacher.weight}
            outcomes.append(
                (out, x.grad, module.state_dict(), grads, vars(module).get("calls"), vars(module).get("last"))
            )
            teacher.zero_grad()
        for expected, found in zip(*outcomes, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

    for call in range(5):
        step(call)
    with counts() as grown:
        for call in range(5, 12):
            step(call)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"], grown["fallbacks"]) == (0, 0, 0, 0)


def test_a_module_made_in_the_call_itself() -> None:
    def step(x: Tensor, gamma: float) -> Tensor:
        module = Focal(gamma, "mean" if gamma < 5 else "sum")
        print(end="")
        y = module(x)
        print(end="")
        return y + module(y) * module.gamma

    compiled, x = tatara.compile(step), torch.randn(4, 3)
    for call in range(12):
        if call == 6:
            before = tatara.stats()["graphs"]
        gamma = (2.0, 3.0, 7.0, 8.0)[call % 4]
        torch.testing.assert_close(compiled(x, gamma), step(x, gamma))
    assert tatara.stats()["graphs"] == before


def test_what_differs_is_seen() -> None:
    def step(module: nn.Module, x: Tensor) -> Tensor:
        return module(x) * 3

    compiled, x = tatara.compile(step), torch.randn(4, 3)
    frozen = nn.Linear(3, 3)
    frozen.requires_grad_(False)
    half = nn.Linear(3, 3)
    half.forward = lambda x: F.linear(x, half.weight)  # type: ignore[method-assign]
    for make in (lambda: nn.Linear(3, 3), hooked, lambda: frozen, lambda: half, lambda: nn.Linear(3, 3, bias=False)):
        for _ in range(4):
            module = make()
            expected, found = step(module, x), compiled(module, x)
            torch.testing.assert_close(found, expected)
            assert found.requires_grad == expected.requires_grad
    evaluated = [nn.Dropout(), nn.Dropout().eval()]
    for call in range(8):
        module = nn.Dropout().train(evaluated[call % 2].training)
        torch.manual_seed(call)
        expected = step(module, x)
        torch.manual_seed(call)
        torch.testing.assert_close(compiled(module, x), expected)


def test_modules_that_stay_keep_entries_of_their_own() -> None:
    """Up to a number of them; beyond it they go by structure, too."""
    compiled, x = tatara.compile(lambda module, x: module(x) + 1), torch.randn(4, 3)
    layers = [nn.Linear(3, 3) for _ in range(40)]
    with counts() as grown:
        for _ in range(2):
            for layer in layers:
                torch.testing.assert_close(compiled(layer, x), layer(x) + 1)
    assert grown["graphs"] == 17 and grown["fallbacks"] == 0
