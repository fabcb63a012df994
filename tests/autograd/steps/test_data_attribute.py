"""`tensor.data` beside gradients: what is read and written through it is part of the graph, and eager does not count it as a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


class Model:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.average = nn.Parameter(torch.ones(3))
        self.buffer = torch.zeros(3)
        self.counts = torch.zeros(4, 3)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.1)

    def state(self) -> Any:
        weight = self.layer.weight
        versions = [t._version for t in (self.average, self.buffer, self.counts, weight)]
        return [t.detach().clone() for t in (self.average, self.buffer, self.counts, weight)], versions, weight.grad


def of_a_buffer(m: Model, x: torch.Tensor) -> Any:
    y = m.layer(x)
    with torch.no_grad():
        m.buffer.data.mul_(0.9).add_(y.mean(0), alpha=0.1)
    y.square().sum().backward()
    m.optimizer.step()
    return y.detach()


def of_a_row(m: Model, x: torch.Tensor) -> Any:
    y = m.layer(x)
    m.counts.data[1].add_(y.detach().mean(0))
    m.counts.data[2:, 1] = 5
    y.square().sum().backward()
    return y.detach()


def of_a_result(m: Model, x: torch.Tensor) -> Any:
    y = m.layer(x)
    (y * y.data.sign()).sum().backward()
    return y.data


def by_hand(m: Model, x: torch.Tensor) -> Any:
    m.layer(x).square().mean().backward()
    for p in m.layer.parameters():
        p.data.add_(p.grad.data, alpha=-0.1)
        p.grad.data.zero_()
    return m.layer.weight.data


def afterwards(m: Model, x: torch.Tensor) -> Any:
    m.layer(x).square().mean().backward()
    m.optimizer.step()
    m.average.data.copy_(m.layer.weight.data[0] * 0.9 + m.average.data * 0.1)
    return m.average.data


def without_a_pass(m: Model, x: torch.Tensor) -> Any:
    m.average.data.mul_(0.5).add_(x[0])
    return m.buffer.data, m.buffer.data[1:]


@pytest.mark.parametrize("step", [of_a_buffer, of_a_row, of_a_result, by_hand, afterwards, without_a_pass])
def test_steps(step: Callable[..., Any]) -> None:
    runs: list[Any] = []
    for function in (step, tatara.compile(step)):
        model, seen = Model(), []
        for i in range(5):
            result = function(model, torch.linspace(-1, 1, 12).view(4, 3) * (i + 1))
            values, versions, gradient = model.state()
            seen.append((result, values, versions, None if gradient is None else gradient.clone()))
        runs.append(seen)
    same(runs[1], runs[0])
    assert tatara.stats()["breaks"] == 0 and tatara.stats()["fallbacks"] == 0


def test_a_write_that_is_not_counted_spoils_no_history() -> None:
    def write(model: Model, x: torch.Tensor) -> torch.Tensor:
        model.average.data.mul_(2)
        return model.average.data.sum() + x.sum()

    gradients = []
    for function in (write, tatara.compile(write)):
        model, x = Model(), torch.ones(3)
        for _ in range(3):
            loss = (model.average * model.average).sum()
            function(model, x)
            loss.backward()
        gradients.append(model.average.grad)
    same(gradients[1], gradients[0])


def written_results(m: Model, x: torch.Tensor) -> Any:
    y = m.layer(x)
    y.data.clamp_(-0.5, 0.5)
    z = (y * y).sum()
    z.backward()
    return y.detach(), m.layer.weight.grad


def saved_before(m: Model, x: torch.Tensor) -> Any:
    y = m.average * x
    m.average.data.mul_(3)
    (y * m.average).sum().backward()
    return y.detach(), m.average.grad


@pytest.mark.parametrize("step", [written_results, saved_before])
def test_gradients_see_what_was_written_as_in_eager(step: Callable[..., Any]) -> None:
    runs = []
    for function in (step, tatara.compile(step)):
        model = Model()
        runs.append([function(model, torch.linspace(-1, 1, 3).expand(4, 3) * (i + 1)) for i in range(4)])
    same(runs[1], runs[0])


def operand(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w * x
    x.data.mul_(3)
    return y.sum()


def part_of_an_operand(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(w) * x.view(-1)
    x.view(-1).data[1:].add_(1)
    return y.sum() + (w * x).sum()


def result_of_an_operator(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(w)
    y.data.mul_(2)
    return (y * x).sum()


def parameter(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = w.square() * x
    w.data.neg_()
    return y.sum()


def nothing_saved(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    count = x.data.sum()
    x.data.add_(count)
    return (w * x).sum()


@pytest.mark.parametrize("program", [operand, part_of_an_operand, result_of_an_operator, parameter, nothing_saved])
def test_a_pass_afterwards_reads_what_was_written(program: Callable[..., Any]) -> None:
    runs = []
    for function in (program, tatara.compile(program)):
        w = nn.Parameter(torch.linspace(0.5, 1.5, 3))
        rows = []
        for i in range(3):
            x = torch.linspace(-1, 1, 3) * (i + 1)
            loss = function(w, x)
            loss.backward()
            rows.append((loss.detach(), x, w.detach().clone(), w.grad.clone(), w._version, x._version))
        runs.append(rows)
    same(runs[1], runs[0])
