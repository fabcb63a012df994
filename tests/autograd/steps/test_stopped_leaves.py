"""requires_grad_(False) of parameters inside of a compiled function, and back: the parts of a step that train another model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


class Models:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.make = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
        self.judge = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.makes = torch.optim.Adam(self.make.parameters(), 1e-2)
        self.judges = torch.optim.SGD(self.judge.parameters(), 1e-2, momentum=0.9)

    def state(self) -> list[Any]:
        tensors = [*self.make.parameters(), *self.judge.parameters()]
        return [
            (p.detach().clone(), p.requires_grad, p.is_leaf, None if p.grad is None else p.grad.clone())
            for p in tensors
        ]


@contextlib.contextmanager
def _frozen(model: torch.nn.Module) -> Iterator[None]:
    before = [(p, p.requires_grad) for p in model.parameters()]
    try:
        for p, _ in before:
            p.requires_grad_(False)
        yield
    finally:
        for p, needs in before:
            p.requires_grad_(needs)


def _in_turns(m: Models, z: Tensor, real: Tensor) -> Any:
    with _frozen(m.judge):
        m.makes.zero_grad()
        first = F.softplus(-m.judge(m.make(z))).mean()
        first.backward()
        m.makes.step()
    with _frozen(m.make):
        m.judges.zero_grad()
        second = F.softplus(m.judge(m.make(z))).mean() + F.softplus(-m.judge(real)).mean()
        second.backward()
        m.judges.step()
    return first.detach(), second.detach()


def _as_pix2pix(m: Models, z: Tensor, real: Tensor) -> Any:
    """The flags are set as attributes, and the last ones stay."""
    fake = m.make(z)
    for p in m.judge.parameters():
        p.requires_grad = True
    m.judges.zero_grad()
    second = F.softplus(m.judge(fake.detach())).mean() + F.softplus(-m.judge(real)).mean()
    second.backward()
    m.judges.step()
    for p in m.judge.parameters():
        p.requires_grad = False
    m.makes.zero_grad()
    first = F.softplus(-m.judge(fake)).mean()
    first.backward()
    m.makes.step()
    return first.detach(), second.detach()


def _one_part(m: Models, z: Tensor, real: Tensor) -> Any:
    """A part of the model is frozen, and stays so."""
    m.make[0].requires_grad_(False)
    m.makes.zero_grad()
    loss = F.mse_loss(m.make(z), real)
    loss.backward()
    m.makes.step()
    return loss.detach(), [p.requires_grad for p in m.make.parameters()]


def _history_from_before(m: Models, z: Tensor, real: Tensor) -> Any:
    """The flag is off when the engine comes to a leaf that was used with it on."""
    m.makes.zero_grad()
    loss = F.mse_loss(m.make(z), real)
    m.make[0].requires_grad_(False)
    loss.backward()
    m.make[0].requires_grad_(True)
    return loss.detach()


def _same_object(m: Models, z: Tensor, real: Tensor) -> Any:
    weight = m.make[0].weight
    weight.requires_grad_(False)
    given = weight.contiguous()
    first = (given is weight, given.requires_grad, weight.is_leaf, weight.grad_fn is None, (weight * 2).requires_grad)
    weight.requires_grad_(True)
    return first, weight.requires_grad, (given * z[0, 0]).sum().requires_grad, (weight.float() * 2).requires_grad


def _write_while_off(m: Models, z: Tensor, real: Tensor) -> Any:
    weight = m.make[0].weight
    weight.requires_grad_(False)
    weight.mul_(0.5)
    weight.requires_grad_(True)
    loss = F.mse_loss(m.make(z), real)
    m.make.zero_grad()
    loss.backward()
    return loss.detach(), weight._version > 0


def _write_between(m: Models, z: Tensor, real: Tensor) -> Any:
    m.make.zero_grad()
    m.make[0].requires_grad_(False)
    m.make[0].requires_grad_(True)
    with torch.no_grad():
        m.make[0].weight.mul_(0.9)
    loss = F.mse_loss(m.make(z), real)
    loss.backward()
    return loss.detach()


def _twice(m: Models, z: Tensor, real: Tensor) -> Any:
    found = []
    for on in (False, False, True, True, False, True):
        m.make.requires_grad_(on)
        found.append((m.make(z).requires_grad, [p.requires_grad for p in m.make.parameters()]))
    return found


def _error_while_off(m: Models, z: Tensor, real: Tensor) -> Any:
    m.make.requires_grad_(False)
    m.make(z).sum().backward()


def _gradient_of_stopped(m: Models, z: Tensor, real: Tensor) -> Any:
    m.make[0].requires_grad_(False)
    return torch.autograd.grad(m.make(z).sum(), m.make[0].weight)


def _forward_alone(m: Models, z: Tensor, real: Tensor) -> Any:
    """A result with a history: gradients come from outside."""
    with _frozen(m.judge):
        return m.judge(m.make(z)).mean()


def _by_torch_func(m: Models, z: Tensor, real: Tensor) -> Any:
    with _frozen(m.make):
        gradients = torch.func.grad(lambda w: (z @ w.T).pow(2).sum())(m.make[0].weight)
    return gradients, gradients.requires_grad


def _alternating(m: Models, z: Tensor, real: Tensor) -> Any:
    """A break while the flags are off."""
    with _frozen(m.judge):
        loss = m.judge(m.make(z)).mean()
        print(end=str(float(loss))[:0])
        m.make.zero_grad()
        loss.backward()
    return loss.detach()


PROGRAMS: list[Callable[..., Any]] = [
    _in_turns,
    _as_pix2pix,
    _one_part,
    _history_from_before,
    _same_object,
    _write_while_off,
    _write_between,
    _twice,
    _error_while_off,
    _gradient_of_stopped,
    _forward_alone,
    _by_torch_func,
    _alternating,
]


def _run(program: Callable[..., Any], compiled: bool) -> list[Any]:
    models = Models()
    function = tatara.compile(program) if compiled else program
    found: list[Any] = []
    for i in range(6):
        generator = torch.Generator().manual_seed(i)
        z, real = torch.randn(5, 3, generator=generator), torch.randn(5, 4, generator=generator)
        try:
            result = function(models, z, real)
            if isinstance(result, Tensor) and result.requires_grad:
                models.make.zero_grad()
                result.backward()
                result = result.detach()
        except RuntimeError as error:
            result = str(error)[:60]
        found.append([result, models.state()])
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: Callable[..., Any]) -> None:
    same(_run(program, True), _run(program, False), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("program", [_in_turns, _as_pix2pix, _forward_alone, _twice])
def test_no_break(program: Callable[..., Any]) -> None:
    _run(program, True)
    assert tatara.stats()["breaks"] == 0


def test_a_leaf_between_parts() -> None:
    """What follows requires_grad_() is a part of its own, which takes gradients by the new leaf."""

    def program(p: Tensor, x: Tensor) -> Any:
        before = p * x
        p.requires_grad_(True)
        after = p * x
        for _ in range(12):
            after = after.sin() * p + x
        return before, after

    compiled = tatara.compile(program)
    for i in range(4):
        found = []
        for function in (compiled, program):
            generator = torch.Generator().manual_seed(i)
            p, x = torch.rand(64, generator=generator) * 0.5, torch.randn(64, 64, generator=generator)
            before, after = function(p, x)
            after.sum().backward()
            found.append([before, after.detach(), after.requires_grad, p.grad])
        same(found[0], found[1], rtol=1e-4, atol=1e-4)
