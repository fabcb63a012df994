"""Parameters, and modules with their initial values, made inside of compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 6, bias=False))
        self.scale = nn.Parameter(torch.full((6,), 0.5))
        self.register_buffer("shift", torch.arange(6.0))
        self.shared = self.body[0].weight

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * self.scale + self.shift + self.shared.sum(0)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: nn.Linear(6, 3),
    "LayerNorm": lambda: nn.LayerNorm(6),
    "BatchNorm1d": lambda: nn.BatchNorm1d(6),
    "Bilinear": lambda: nn.Sequential(nn.Linear(6, 4), nn.PReLU(), nn.Linear(4, 2)),
    "GRUCell": lambda: nn.GRUCell(6, 3),
    "Net": Net,
    "frozen": lambda: nn.Linear(6, 3).requires_grad_(False),
}


def state(value: Any) -> Any:
    """What there is to see of a tensor, or of what holds some."""
    if isinstance(value, Tensor):
        return (type(value), value.requires_grad, value.is_leaf, value.grad_fn is None, value.stride())
    if isinstance(value, nn.Module):
        return [(name, state(p)) for name, p in value.state_dict(keep_vars=True).items()]
    return [state(each) for each in value]


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, nn.Module):
        return list(value.state_dict(keep_vars=True).values())
    return [t for each in value for t in tensors(each)]


def same_in_each_call(program: Callable[..., Any], *given: Tensor, backward: bool = True, whole: bool = True) -> None:
    """As in eager: values, classes, histories, gradients, memory in common, random numbers. `whole`: in one graph."""
    compiled = tatara.compile(program)
    with counts() as grown:
        for call in range(4):
            outcomes = []
            for run in (program, compiled):
                torch.manual_seed(call)
                operands = [t.detach().clone().requires_grad_(t.requires_grad) for t in given]
                out = run(*operands)
                found = tensors(out)
                before = [t.detach().clone() for t in found]
                memory = [
                    [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in found + operands]
                    for a in found
                ]
                kinds = state(out)
                if backward:
                    sum(t.square().sum() for t in found if t.requires_grad).backward()
                grads = [t.grad if t.is_leaf else None for t in found + operands]
                outcomes.append((before, grads, torch.rand(3), kinds, memory))
            (*values, kinds, memory), (*others, kinds_found, memory_found) = outcomes
            torch.testing.assert_close(others, values)
            assert kinds_found == kinds and memory_found == memory
    assert grown["recompiles"] == 0
    assert not whole or (grown["graphs"], grown["breaks"]) == (1, 0)


@pytest.mark.parametrize("grad", ["on", "off", "of the input"])
@pytest.mark.parametrize("kind", MODULES)
def test_modules_made_inside(kind: str, grad: str) -> None:
    def program(x: Tensor) -> Tensor:
        return MODULES[kind]()(x).relu() * 2

    x = torch.randn(5, 6, requires_grad=grad == "of the input")
    with torch.set_grad_enabled(grad != "off"):
        needs = grad == "of the input" or (grad == "on" and kind != "frozen")
        same_in_each_call(program, x, backward=needs, whole=kind != "frozen")


@pytest.mark.parametrize("kind", MODULES)
def test_modules_that_leave(kind: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, nn.Module]:
        module = MODULES[kind]()
        return module(x) + 1, module

    same_in_each_call(program, torch.randn(5, 6), backward=kind != "frozen", whole=kind != "frozen")


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "of a new tensor": lambda x: nn.Parameter(torch.ones(3)),
    "of an argument": lambda x: nn.Parameter(x),
    "of a result": lambda x: nn.Parameter(x * 2),
    "of a view": lambda x: nn.Parameter(x[1:, ::2]),
    "without gradients": lambda x: (nn.Parameter(x, requires_grad=False), nn.Parameter(x.long(), False)),
    "by keyword": lambda x: nn.Parameter(data=x.exp(), requires_grad=True),
    "of a parameter": lambda x: (lambda p: (p, nn.Parameter(p), p * x))(nn.Parameter(x + 1)),
    "beside its data": lambda x: (lambda t: (t, nn.Parameter(t), t + 1))(x.sin()),
    "used": lambda x: (lambda p: (p * x).sum() + p.sum())(nn.Parameter(torch.rand(5, 6))),
    "asked": lambda x: (
        x + (lambda p: isinstance(p, nn.Parameter) + 2 * p.requires_grad + 4 * p.is_leaf)(nn.Parameter(x))
    ),
    "of its class": lambda x: x + (type(nn.Parameter(x)) is nn.Parameter),
    "written": lambda x: nn.init.uniform_(nn.Parameter(torch.empty(4, 2)), 1, 2),
    "in a dict": lambda x: nn.ParameterDict({"a": nn.Parameter(x.cos()), "b": nn.Parameter(x.sin())}),
    "in a list": lambda x: nn.ParameterList([torch.ones(2), nn.Parameter(torch.zeros(3))]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_parameters(name: str) -> None:
    quiet = name in ("without gradients", "asked", "of its class")
    same_in_each_call(PROGRAMS[name], torch.randn(5, 6), backward=not quiet)


def test_what_the_program_keeps() -> None:
    """A layer made at the first call, for the sizes that come."""

    class Lazy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not hasattr(self, "layer"):
                self.layer = nn.Linear(x.shape[1], 3)
            return self.layer(x)

    eager, model = Lazy(), Lazy()
    compiled = tatara.compile(model)
    for call in range(4):
        x = torch.randn(2, 6)
        results = []
        for module, run in ((eager, eager), (model, compiled)):
            torch.manual_seed(call)
            out = run(x)
            out.sum().backward()
            assert type(module.layer.weight) is nn.Parameter
            results.append((out, [p.grad for p in module.parameters()], torch.rand(2)))
        torch.testing.assert_close(results[1], results[0])
    assert [name for name, _ in model.named_parameters()] == ["layer.weight", "layer.bias"]


def test_errors_are_eagers() -> None:
    def program(x: Tensor) -> Tensor:
        return nn.Parameter(x) * 2

    compiled = tatara.compile(program)
    for x in (torch.arange(3), torch.rand(3), torch.arange(3)):
        outcomes = []
        for run in (program, compiled):
            try:
                outcomes.append(run(x))
            except RuntimeError as error:
                outcomes.append(str(error))
        if isinstance(outcomes[0], str):
            assert outcomes[1] == outcomes[0]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0])


def test_a_break_inside_of_a_constructor() -> None:
    """The draws before it are made once."""

    class Talks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 4)
            print(end="")
            self.second = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).relu())

    def program(x: Tensor) -> Tensor:
        x = x * 2
        module = Talks()
        return module(x) + 1

    compiled, x = tatara.compile(program), torch.randn(3, 6)
    for call in range(8):
        if call == 4:
            before = tatara.stats()
        outcomes = []
        for run in (program, compiled):
            torch.manual_seed(call)
            outcomes.append((run(x), torch.rand(2)))
        torch.testing.assert_close(outcomes[1], outcomes[0])
    after = tatara.stats()
    assert (after["graphs"], after["breaks"]) == (before["graphs"], before["breaks"])


def test_hyper_network() -> None:
    """Weights that another network gives, put where a new layer's own were."""

    class Hyper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.make = nn.Linear(2, 18)

        def forward(self, x: Tensor, z: Tensor) -> Tensor:
            layer = nn.Linear(6, 3, bias=False)
            weight = self.make(z).view(3, 6)
            return layer(x) + nn.functional.linear(x, weight + layer.weight.detach())

    eager, model = Hyper(), Hyper()
    model.load_state_dict(eager.state_dict())
    compiled = tatara.compile(model)
    with counts() as grown:
        for call in range(4):
            results = []
            for module, run in ((eager, eager), (model, compiled)):
                torch.manual_seed(call)
                module.zero_grad()
                out = run(torch.randn(4, 6), torch.randn(2))
                out.square().sum().backward()
                results.append((out, [p.grad for p in module.parameters()]))
            torch.testing.assert_close(results[1], results[0])
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (1, 0, 0)
