"""What data decide behind writes to what is older than the trace: running statistics, counters. They happen once in each call."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
Module = torch.nn.Module


class Normed(Module):
    """A norm, a condition, and another norm and condition."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.BatchNorm1d(6), torch.nn.BatchNorm1d(6)
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(self.linear(x)).relu()
        if not torch.isfinite(h).all():
            h = torch.clamp(h.nan_to_num(1.0), max=8.0)
        h = self.second(h + x.nan_to_num(0.0, 1.0, -1.0))
        if h.abs().max() > 50:
            h = h / 2
        return h


class Counting(Module):
    """A counter, a moving mean through a view of a buffer, and sizes and numbers that data decide."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("means", torch.zeros(2, 6))
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        h = self.linear(x)
        self.means[0].mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        if not torch.isfinite(self.means).all():
            h = h + 1
        kept = h[h.detach()[:, 0].nan_to_num() > -100]
        return kept * (self.means[0].nan_to_num() + self.count)


class Shared(Module):
    """Two buffers in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.zeros(6))
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        self.part.add_(1)
        h = self.linear(x) + self.whole
        return h + 1 if torch.isfinite(h).all() else h.nan_to_num(0.5)


class Big(Module):
    """More than a call copies."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(200_000, 6))
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        self.table.add_(1)
        h = self.linear(x) + self.table[0]
        return h + 1 if torch.isfinite(h).all() else h.nan_to_num(0.5)


def _module(make: Callable[[], Module]) -> Module:
    torch.manual_seed(0)
    module = make()
    if isinstance(module, Shared):
        module.part = module.whole[2:4]
    return module


def _states(module: Module) -> list[Tensor]:
    own = [module.part] if isinstance(module, Shared) else []
    return [b.clone() for b in [*module.buffers(), *own]]


def _inputs() -> list[Tensor]:
    torch.manual_seed(1)
    inputs = [torch.randn(8, 6) for _ in range(7)]
    for n in (2, 4, 5):
        inputs[n][0, 1] = float("inf")
    return inputs


def _same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert a.stride() == b.stride()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [Normed, Counting, Shared, Big])
def test_as_eager(make: Callable[[], Module], training: bool) -> None:
    ours, theirs = _module(make), _module(make)
    compiled = tatara.compile(ours)
    for x in _inputs():
        with torch.set_grad_enabled(training):
            a, b = compiled(x), theirs(x)
        _same(a, b)
        if training:
            weights = torch.linspace(1, 2, a.numel()).reshape(a.shape)
            for module, result in ((ours, a), (theirs, b)):
                module.zero_grad()
                (result * weights).tanh().sum().backward()
            for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-3, equal_nan=True)
        for p, q in zip(_states(ours), _states(theirs), strict=True):
            _same(p, q)
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize(("make", "breaks"), [(Normed, 0), (Counting, 0), (Shared, 1), (Big, 1)])
def test_breaks(make: Callable[[], Module], breaks: int) -> None:
    module = _module(make)
    report = tatara.explain(copy.deepcopy(module) if breaks == 0 else module)(_inputs()[0])
    assert len(report.breaks) == breaks


def test_whole_steps() -> None:
    def run(compiled: bool) -> list[Tensor]:
        module = _module(Normed)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (module(x) * torch.linspace(1, 2, 6)).tanh().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        function = tatara.compile(step) if compiled else step
        losses = [function(x) for x in [*_inputs()[:2], _inputs()[3], _inputs()[6]]]
        return [*losses, *_states(module), *(p.detach() for p in module.parameters())]

    for a, b in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    assert (tatara.stats()["breaks"], tatara.stats()["fallbacks"]) == (0, 0)
