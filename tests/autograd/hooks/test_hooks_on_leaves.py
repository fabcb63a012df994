"""Hooks on parameters in whole training steps: part of the graph, called when eager calls them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Log = list[Any]
Setup = Callable[[nn.Module, Log], None]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def train(setup: Setup, compiled: bool, optimized: bool = True, sizes: tuple[int, ...] = (5, 5, 5, 5)) -> Any:
    model, log = network(), []
    setup(model, log)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        if optimized:
            optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if optimized:
            optimizer.step()
        return loss.detach()

    run = tatara.compile(step) if compiled else step
    torch.manual_seed(1)
    losses = [run(torch.randn(size, 4)) for size in sizes]
    gradients = [p.grad for p in model.parameters()]
    return losses, list(model.parameters()), gradients, log, torch.get_rng_state()


def check(setup: Setup, breaks: int | None = 0, **how: Any) -> None:
    """Steps of the compiled function beside eager's; `breaks`: graph breaks (None: some)."""
    expected = train(setup, False, **how)
    tatara.reset()
    with counts() as grown:
        actual = train(setup, True, **how)
    same(expected, actual)
    assert grown["breaks"] > 0 if breaks is None else grown["breaks"] == breaks
    if breaks == 0:
        assert grown["fallbacks"] == 0


def on_all(*hooks: Callable[[torch.Tensor], Any]) -> Setup:
    def setup(model: nn.Module, _log: Log) -> None:
        for p in model.parameters():
            for hook in hooks:
                p.register_hook(hook)

    return setup


@pytest.mark.parametrize("optimized", [True, False], ids=["optimizer", "accumulating"])
@pytest.mark.parametrize(
    "hooks",
    [
        (lambda g: g.clamp(-0.01, 0.01),),
        (lambda g: g * 2, lambda g: None, lambda g: torch.where(g > 0, g, 0)),
        (lambda g: g,),
        (lambda g: g.detach(),),
        (lambda g: torch.zeros((), dtype=g.dtype).expand_as(g),),
        (lambda g: g / (g.norm() + 1e-6),),
        (lambda g: g + 0.1 * torch.randn_like(g),),
        (torch.sign,),
    ],
    ids=["clamp", "several", "itself", "view", "expanded", "norm", "noise", "builtin"],
)
def test_hooks_on_gradients(hooks: Any, optimized: bool) -> None:
    check(on_all(*hooks), optimized=optimized)


def test_sizes_change() -> None:
    check(on_all(lambda g: g * 0.5), sizes=(5, 6, 7, 8, 5))


def test_an_optimizer_in_the_backward() -> None:
    def setup(model: nn.Module, _log: Log) -> None:
        optimizers = {p: torch.optim.AdamW([p], lr=0.1) for p in model.parameters()}

        def update(p: torch.Tensor) -> None:
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)

    check(setup, optimized=False)


def test_the_order_of_hooks() -> None:
    def setup(model: nn.Module, log: Log) -> None:
        for name, p in model.named_parameters():
            p.register_post_accumulate_grad_hook(lambda _p, name=name: log.append(name))

    check(setup)


def test_both_kinds() -> None:
    def setup(model: nn.Module, _log: Log) -> None:
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(clamp)
            p.register_hook(lambda g: g * 3)

    def clamp(p: torch.Tensor) -> None:
        p.grad.clamp_(-0.02, 0.02)

    check(setup)


def test_a_hook_that_reads_what_changes() -> None:
    def setup(model: nn.Module, _log: Log) -> None:
        scale = {"of": 1.0}

        def hook(g: torch.Tensor) -> torch.Tensor:
            return g * scale["of"]

        for p in model.parameters():
            p.register_hook(hook)

        def grow(*_: Any) -> None:
            scale["of"] += 1

        model.register_forward_pre_hook(grow)

    check(setup)


def test_a_hook_that_is_seen_runs_in_eager() -> None:
    def setup(model: nn.Module, log: Log) -> None:
        def hook(g: torch.Tensor) -> None:
            log.append(g.shape)

        model[3].weight.register_hook(hook)

    check(setup, breaks=None)


def test_a_hook_that_breaks_the_graph() -> None:
    def setup(model: nn.Module, log: Log) -> None:
        def look(p: torch.Tensor) -> None:
            if p.grad.norm().item() > 0:
                log.append(round(p.grad.sum().item(), 4))

        model[3].weight.register_post_accumulate_grad_hook(look)

    check(setup, breaks=None)


def test_hooks_come_and_go() -> None:
    def run(compiled: bool) -> Any:
        model = network()
        weight = model[0].weight

        def step(x: torch.Tensor) -> Any:
            model.zero_grad()
            model(x).square().mean().backward()
            return [p.grad.clone() for p in model.parameters()]

        def by_weight(x: torch.Tensor) -> Any:
            return torch.autograd.grad(model(x).sum(), [weight, model[0].bias])

        torch.manual_seed(1)
        x = torch.randn(5, 4)
        calls = [tatara.compile(f) if compiled else f for f in (step, by_weight)]
        found = []

        def both() -> None:
            for call in calls * 2:
                found.append(list(call(x)))

        both()
        scaled = weight.register_hook(lambda g: g * 3)
        both()
        moved = weight.register_hook(lambda g: g + 1)
        both()
        scaled.remove()
        both()

        def clear(p: torch.Tensor) -> None:
            p.grad.zero_()

        after = model[3].bias.register_post_accumulate_grad_hook(clear)
        both()
        after.remove()
        moved.remove()
        both()
        return found

    expected = run(False)
    with counts() as grown:
        same(expected, run(True))
    assert grown["breaks"] == 0


def test_a_shared_weight_has_its_hook_called_once() -> None:
    def run(compiled: bool) -> Any:
        torch.manual_seed(0)
        weight = torch.randn(4, 4, requires_grad=True)
        weight.register_hook(lambda g: g.abs())

        def step(x: torch.Tensor) -> Any:
            (x @ weight @ weight.t() - x).sum().backward()
            found, weight.grad = weight.grad, None
            return found

        call = tatara.compile(step) if compiled else step
        return [call(torch.full((3, 4), float(i))) for i in range(3)]

    same(run(False), run(True))


@pytest.mark.parametrize(
    "hook",
    [lambda g: g[0], lambda g: "no tensor", lambda g: g.double(), lambda g: g.no_such_method()],
    ids=["sizes", "type", "dtype", "exception"],
)
def test_wrong_hooks_are_eagers_errors(hook: Any) -> None:
    def run(compiled: bool) -> Any:
        weight = torch.ones(3, 4, requires_grad=True)
        weight.register_hook(hook)

        def step(x: torch.Tensor) -> Any:
            (x * weight).sum().backward()
            return weight.grad

        call = tatara.compile(step) if compiled else step
        said: list[Any] = []
        for _ in range(2):
            with contextlib.suppress(RuntimeError, TypeError, AttributeError):
                said.append(call(torch.ones(3, 4)))
                continue
            try:
                call(torch.ones(3, 4))
            except Exception as error:
                said.append((type(error).__name__, str(error)))
        return [*said, weight.grad]

    same(run(False), run(True))


def test_a_post_accumulate_hook_that_returns_something() -> None:
    def run(compiled: bool) -> Any:
        weight = torch.ones(3, requires_grad=True)
        weight.register_post_accumulate_grad_hook(lambda p: p.grad)

        def step(x: torch.Tensor) -> None:
            (x * weight).sum().backward()

        with pytest.raises(RuntimeError) as caught:
            (tatara.compile(step) if compiled else step)(torch.ones(3))
        return str(caught.value)

    assert run(False) == run(True)


def test_a_second_hook_put_on_inside() -> None:
    """A parameter's hooks are the parameter's, not those of the placeholder that stands for it."""

    def run(compiled: bool) -> Any:
        p = torch.ones(3, requires_grad=True)
        p.register_hook(lambda g: g * 3)

        def f(x: torch.Tensor) -> torch.Tensor:
            p.register_hook(lambda g: g + 1)
            return (p * x).sum()

        call = tatara.compile(f) if compiled else f
        found = []
        for _ in range(2):
            call(torch.full((3,), 2.0)).backward()
            found.append(p.grad.clone())
        return found

    same(run(False), run(True))
