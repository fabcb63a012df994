"""What a call that raises leaves behind: the writes and the drawn numbers of eager, each once."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.linspace(-2, 3, 24).view(4, 3, 2)
BAD, GOOD = torch.tensor([0, 7]), torch.tensor([0, 1])


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args).detach().clone()
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
        return type(error), str(error).splitlines()[0], lines[-1]


def in_turn(function: Any, state: Any, warm: int, *args: Any) -> list[Any]:
    """Results and errors of good calls, then of bad and good ones by turns, and the state after each of them."""
    seen = [outcome(function, *args, GOOD) for _ in range(warm)]
    for index in (BAD, GOOD, BAD, BAD, GOOD):
        seen += [outcome(function, *args, index), state()]
    return seen


Module = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
NORMS: dict[str, Module] = {
    "index after": lambda m, x, i: m(x)[i],
    "index after a product": lambda m, x, i: (m(x).flatten(1) @ torch.ones(6, 2)).index_select(0, i),
    "two of them": lambda m, x, i: m(m(x))[i],
    "the norm itself": lambda m, x, i: F.batch_norm(
        x, m.running_mean, m.running_var, torch.ones(3), torch.ones(3, dtype=torch.complex64), True, 0.5
    ),
    "singular": lambda m, x, i: torch.linalg.inv(m(x)[:3, :, 0] * 0 + (i[-1] < 3) * torch.eye(3)),
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm1d(3, momentum=0.5),
    "instance": lambda: nn.InstanceNorm1d(3, momentum=0.5, track_running_stats=True, affine=True),
    "evaluated": lambda: nn.BatchNorm1d(3).eval(),
}


@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("gradients", [False, True], ids=["", "gradients"])
def test_running_statistics(name: str, kind: str, warm: int, gradients: bool) -> None:
    call = NORMS[name]
    seen = []
    for run in (tatara.compile(call), call):
        module = MODULES[kind]().requires_grad_(gradients)
        state = lambda m=module: {key: value.clone() for key, value in m.state_dict().items()}  # noqa: E731
        seen.append(in_turn(run, state, warm, module, X))
    same(*seen, rtol=1e-4, atol=1e-5)


Drawn = Callable[[torch.Tensor, torch.Generator, torch.Tensor], torch.Tensor]
DRAWING: dict[str, Drawn] = {
    "dropout": lambda x, g, i: F.dropout(x, 0.5, True)[i],
    "dropout of many": lambda x, g, i: F.dropout(x.repeat(1, 1, 400), 0.5, True)[i],
    "rand": lambda x, g, i: (x + torch.rand(4, 3, 2))[i],
    "randn before a sum": lambda x, g, i: (x.sin() * torch.randn(4, 3, 2)).index_select(0, i).sum(),
    "before a singular matrix": lambda x, g, i: torch.linalg.inv(torch.rand(3, 3) * (i.max() < 4) + x.sum() * 0),
    "after the error": lambda x, g, i: x[i] + torch.rand(2, 3, 2),
    "before and after": lambda x, g, i: F.dropout(F.dropout(x, 0.5, True)[i], 0.5, True),
    "of a generator": lambda x, g, i: (x + torch.rand(4, 3, 2, generator=g))[i],
    "of both": lambda x, g, i: (x + torch.rand(4, 3, 2, generator=g) * torch.rand(4, 3, 2))[i],
    "in place": lambda x, g, i: (x * 1).detach().uniform_(0, 1, generator=g)[i],
}


@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("gradients", [False, True], ids=["", "gradients"])
@pytest.mark.parametrize("name", DRAWING)
def test_generators(name: str, gradients: bool, warm: int) -> None:
    call = DRAWING[name]
    x = X.clone().requires_grad_(gradients)
    seen = []
    for run in (tatara.compile(call), call):
        torch.manual_seed(5)
        generator = torch.Generator().manual_seed(6)
        state = lambda g=generator: (torch.get_rng_state().clone(), g.get_state().clone())  # noqa: E731
        seen.append(in_turn(run, state, warm, x, generator))
    same(*seen)


Written = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
WRITING: dict[str, Written] = {
    "before": lambda a, b, i: (a.add_(1), b[i])[1],
    "after": lambda a, b, i: (b[i], a.add_(1))[0],
    "both": lambda a, b, i: (a.add_(1), b.mul_(2), (a.sum() + b)[i], a.sub_(3))[2],
    "the same": lambda a, b, i: a.mul_(2).index_select(0, i),
    "part of it": lambda a, b, i: (a[1:].add_(1), b[i])[1],
    "from a singular matrix": lambda a, b, i: (a.add_(1), torch.linalg.inv(torch.eye(2) * (i.max() < 4)))[1],
}


@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("name", WRITING)
def test_writes(name: str, warm: int) -> None:
    call = WRITING[name]
    seen = []
    for run in (tatara.compile(call), call):
        a, b = X.clone(), X.clone()
        seen.append(in_turn(run, lambda a=a, b=b: (a.clone(), b.clone()), warm, a, b))
    same(*seen)


@pytest.mark.parametrize("name", ["before", "after", "the same"])
def test_big_tensors(name: str) -> None:
    """Not copied beforehand: the error is the graph's own, and what was written before it stays."""
    call = WRITING[name]
    seen = []
    for run in (tatara.compile(call), call):
        a, b = torch.ones(1500, 400), torch.ones(4, 3)
        for _ in range(3):
            run(a, b, GOOD)
        with pytest.raises(IndexError, match="out of (bounds|range)"):
            run(a, b, torch.tensor([1600]))
        seen.append((a, b))
    same(*seen)


class Told:
    """A parameter, and what a step has noted of its gradient before dropping it."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.ones(4, 3))
        self.weight.grad = torch.full((4, 3), 2.0)
        self.notes: list[Any] = []
        self.kept: Any = None


def notes_whether(told: Told) -> None:
    told.notes.append(told.weight.grad is not None)


def keeps_it(told: Told) -> None:
    told.kept = told.weight.grad


def notes_its_layout(told: Told) -> None:
    gradient = told.weight.grad
    told.notes.append(None if gradient is None else (gradient.shape, gradient.stride(), gradient.dtype))


@pytest.mark.parametrize("warm", [0, 1, 3])
@pytest.mark.parametrize("note", [notes_whether, keeps_it, notes_its_layout])
def test_gradients_dropped_before_the_error(note: Callable[[Told], None], warm: int) -> None:
    """The program runs again, and is to find the gradient that it drops."""

    def step(told: Told, index: torch.Tensor) -> torch.Tensor:
        note(told)
        told.weight.grad = None
        loss = (told.weight.index_select(0, index) * 3).sum()
        loss.backward()
        return loss

    def run(compiled: bool) -> Any:
        told = Told()

        def state() -> Any:
            gradients = [None if t is None else t.clone() for t in (told.weight.grad, told.kept)]
            return list(told.notes), gradients

        return in_turn(tatara.compile(step) if compiled else step, state, warm, told)

    same(run(True), run(False))
    assert tatara.stats()["breaks"] == 0
