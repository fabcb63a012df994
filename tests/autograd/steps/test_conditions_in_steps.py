"""Branches by data inside of training steps: checked by the graph that holds forward, backward and optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
Module = torch.nn.Module


def _stats(*names: str) -> tuple[int, ...]:
    stats = tatara.stats()
    return tuple(stats[name] for name in names)


def _states(model: Module, optimizer: Any) -> list[Any]:
    state = [v for each in optimizer.state.values() for v in each.values()]
    return [[p.detach().clone(), None if p.grad is None else p.grad.clone()] for p in model.parameters()] + [
        v.clone() if isinstance(v, Tensor) else v for v in state
    ]


def _run(loss_of: Callable[..., Tensor], inputs: list[Any], compiled: bool, width: int, how: str) -> list[Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 4))
    optimizer = getattr(torch.optim, how)(model.parameters(), lr=0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    function = tatara.compile(step) if compiled else step
    found: list[Any] = []
    for i, x in enumerate(inputs):
        torch.manual_seed(i)
        try:
            result: Any = function(x.clone())
        except ValueError as error:
            result = str(error)[:60]
        found.append([result, _states(model, optimizer), torch.get_rng_state()])
    return found


def _check(loss_of: Callable[..., Tensor], inputs: list[Any], width: int = 8, how: str = "Adam") -> None:
    ours = _run(loss_of, inputs, True, width, how)
    same(ours, _run(loss_of, inputs, False, width, how), rtol=1e-4, atol=1e-5, equal_nan=True)


def _normal(model: Module, x: Tensor) -> Tensor:
    mean, scale = model(x).chunk(2, -1)
    return -Normal(mean, scale.exp()).log_prob(x[:, :2]).mean()


def _policy(model: Module, x: Tensor) -> Tensor:
    mean, scale = model(x).chunk(2, -1)
    policy = TransformedDistribution(Independent(Normal(mean, scale.exp()), 1), TanhTransform(cache_size=1))
    action = policy.rsample()
    return (policy.log_prob(action) - action.sum(-1)).mean()


def _filter(model: Module, x: Tensor) -> Tensor:
    total = x.new_zeros(())
    for row in x:
        noise = torch.diag(model(row).exp())
        total = total - MultivariateNormal(row, noise).log_prob(row * 0.5)
    return total


def _branch(model: Module, x: Tensor) -> Tensor:
    y = model(x)
    return y.pow(2).mean() if x.sum() > 0 else y.abs().mean() * 3


def _drawn(model: Module, x: Tensor) -> Tensor:
    y = torch.nn.functional.dropout(model(x), 0.5) + torch.rand_like(x)
    return y.pow(2).mean() if x.sum() > 0 else torch.nn.functional.dropout(y, 0.1).abs().mean() * 3


def _several(model: Module, x: Tensor) -> Tensor:
    y = model(x)
    if not torch.isfinite(y).all():
        return y.mean() * 0
    if y.detach().norm() < 100 and (y.detach().max() - y.detach().min()).bool():
        return y.square().sum()
    return y.sum()


@pytest.mark.parametrize("loss_of", [_normal, _policy, _filter, _several])
def test_one_graph(loss_of: Callable[..., Tensor]) -> None:
    inputs = [torch.randn(5, 4, generator=torch.Generator().manual_seed(i)) for i in range(5)]
    _check(loss_of, inputs)
    assert _stats("graphs", "breaks", "fallbacks") == (2, 0, 0)  # the first call makes the state of the optimizer


@pytest.mark.parametrize("width", [8, 600])  # of which the parameters are more than a run keeps copies of
@pytest.mark.parametrize("how", ["SGD", "Adam"])
@pytest.mark.parametrize("loss_of", [_branch, _drawn])
def test_a_condition_that_falls_otherwise(loss_of: Callable[..., Tensor], width: int, how: str) -> None:
    """No parameter, gradient, state or random number is other than in eager."""
    up, down = torch.full((3, 4), 0.5), torch.full((3, 4), -0.5)
    _check(loss_of, [up, up, up, down, up, up, down, down, up, down, up], width, how)


def test_writes_come_after_the_conditions() -> None:
    """A condition that is there late: of the loss."""

    def loss_of(model: Module, x: Tensor) -> Tensor:
        loss = model(x).pow(2).mean()
        return loss * 2 if loss > 0.5 else loss * 3

    small, big = torch.full((3, 4), 0.1), torch.full((3, 4), 9.0)
    for width in (8, 600):
        _check(loss_of, [small, small, small, big, small, big, big, small], width)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_errors_of_the_program(value: float) -> None:
    good, bad = torch.full((3, 4), 0.5), torch.full((3, 4), 0.5)
    bad[1, 2] = value
    _check(_normal, [good, good, good, bad, good, good, bad, bad, good])


def test_values_out_of_range_behind_a_condition() -> None:
    """What is read where the condition does not hold is read by nobody."""
    table = torch.arange(8.0).reshape(2, 4)

    def program(x: Tensor, index: Tensor) -> Tensor:
        if (index < 2).all():
            return table[index] * x.sin()
        return x.cos()

    compiled = tatara.compile(program)
    x = torch.randn(3, 4)
    for index in ([0, 1, 1], [1, 1, 0], [1, 0, 0], [1, 5, 0], [1, 1, 1], [7, 7, 7]):
        same(compiled(x, torch.tensor(index)), program(x, torch.tensor(index)), rtol=1e-5, atol=1e-6)


def test_conditions_between_sizes_that_data_decide() -> None:
    def program(x: Tensor, limit: float) -> Tensor:
        kept = x[x > limit]
        if (kept.sum() > 100) or not torch.isfinite(kept).all():
            return kept * 2
        places = (kept > 0.5).nonzero()
        return kept.exp().sum() + places.sum() if (places >= 0).all() else kept.sum()

    compiled = tatara.compile(program)
    for i in range(6):
        x = torch.randn(30, generator=torch.Generator().manual_seed(i))
        same(compiled(x, 0.1), program(x, 0.1), rtol=1e-5, atol=1e-6)
    assert _stats("breaks", "fallbacks") == (0, 0)


def test_statistics_are_written_once() -> None:
    """Running statistics are written to behind a condition."""

    def run(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm1d(4)

        def program(x: Tensor) -> Tensor:
            return norm(x * 2) if x.sum() > 0 else norm(x - 1)

        function = tatara.compile(program) if compiled else program
        found: list[Any] = []
        for sign in (1, 1, 1, -1, 1, 1, -1, -1):
            y = function(torch.full((3, 4), 0.5) * sign + torch.arange(12.0).reshape(3, 4) * 0.01)
            y.sum().backward()
            found.append([y.detach().clone(), *(b.clone() for b in norm.buffers())])
        return found

    same(run(True), run(False), rtol=1e-4, atol=1e-5)


def test_conditions_by_gradients() -> None:
    """A sampler: what it decides depends on gradients by tensors that were made leaves."""

    def energy(q: Tensor) -> Tensor:
        return Normal(0.0, 1.0).log_prob(q).sum() + Normal(q.mean(), 2.0).log_prob(torch.ones(())).sum()

    def program(q: Tensor) -> Tensor:
        for _ in range(3):
            q = q.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(energy(q), q)
            q = q.detach() + 0.1 * slope
            if not torch.isfinite(q).all():
                return q * 0
        return q

    compiled = tatara.compile(program)
    for i in range(5):
        q = torch.randn(4, generator=torch.Generator().manual_seed(i))
        same(compiled(q), program(q), rtol=1e-5, atol=1e-6)
    assert _stats("breaks", "fallbacks") == (0, 0)


def test_operators_of_libraries_run_once() -> None:
    """Behind a condition they run where the program comes to them."""
    calls = []

    @torch.library.custom_op("tatara_tests::counted_behind", mutates_args=())
    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return x * 2

    @counted.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def program(x: Tensor) -> Tensor:
        y = x.sin() * 2
        return counted(y) + 1 if (y.cos() + x).sum() > 0 else y.exp()

    compiled = tatara.compile(program)
    for sign in (1, 1, 1, 1, -1, 1, -1, -1, 1):
        x = torch.full((8, 4), 3.0) * sign
        found = []
        for function in (program, compiled):
            calls.clear()
            found.append([function(x), len(calls)])
        same(found[1], found[0], rtol=1e-5, atol=1e-6)
