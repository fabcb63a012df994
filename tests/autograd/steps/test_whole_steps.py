"""Whole training steps as one graph: forward, backward and optimizer, against eager."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from results import same

Step = Callable[..., Any]
STEPS = 10


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 8, generator=generator), torch.randn(5, 4, generator=generator)


def plain_step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def check(
    step: Step,
    make: Callable[[], nn.Module] = mlp,
    optimizer: Callable[..., Any] | None = None,
    data: Callable[[int], Any] = batch,
    rounds: int = STEPS,
    graphs: int | None = 1,
    **setup: Any,
) -> tuple[dict[str, int], dict[str, int]]:
    """Eager and compiled side by side; the counts of the first two steps and of the later ones."""
    torch.manual_seed(0)
    ours = make()
    theirs = copy.deepcopy(ours)
    make_optimizer = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1))
    mine, other = make_optimizer(ours.parameters()), make_optimizer(theirs.parameters())
    torch.optim.SGD(ours.parameters(), lr=0.1).zero_grad()  # torch imports its compiler in here, once
    compiled = tatara.compile(step)
    identity = [id(p) for p in ours.parameters()]
    counts = [dict(tatara.stats())]
    for i in range(rounds):
        torch.manual_seed(i)
        result = compiled(ours, mine, *data(i), **setup)
        state = torch.get_rng_state()
        torch.manual_seed(i)
        expected = step(theirs, other, *data(i), **setup)
        assert torch.equal(state, torch.get_rng_state())
        same(result, expected)
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None), name
            same(p.detach(), q.detach())
            if p.grad is not None:
                same(p.grad, q.grad)
        for p, q in zip(ours.buffers(), theirs.buffers(), strict=True):
            same(p, q)
        if i == 1:
            counts.append(dict(tatara.stats()))
    same(mine.state_dict(), other.state_dict())
    assert identity == [id(p) for p in ours.parameters()]
    counts.append(dict(tatara.stats()))
    warm, later = ({k: b[k] - a[k] for k in a} for a, b in zip(counts, counts[1:], strict=False))
    if graphs is not None:
        assert warm["breaks"] == 0, tatara.explain(compiled)
        assert warm["graphs"] <= 2 * graphs
        assert warm["fallbacks"] == 0
        assert later["graphs"] == later["recompiles"] == later["breaks"] == later["fallbacks"] == 0
        assert later["guard_hits"] == rounds - 2
    return warm, later


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"maximize": True},
        {"dampening": 0.5, "momentum": 0.5},
    ],
    ids=str,
)
def test_sgd(arguments: dict[str, Any]) -> None:
    check(plain_step, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, **arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"amsgrad": True},
        {"weight_decay": 0.0, "betas": (0.8, 0.99)},
        {"maximize": True},
        {"foreach": True},
        {"capturable": False, "eps": 1e-6},
    ],
    ids=str,
)
def test_adamw(arguments: dict[str, Any]) -> None:
    check(plain_step, optimizer=lambda p: torch.optim.AdamW(p, lr=0.01, **arguments))


def test_adam_with_decay_in_the_gradient() -> None:
    check(plain_step, optimizer=lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1))


def test_a_step_counter_is_no_reason_to_compile_again() -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    compiled = tatara.compile(plain_step)
    for i in range(2):
        compiled(model, optimizer, *batch(i))
    before = dict(tatara.stats())
    for i in range(20):
        compiled(model, optimizer, *batch(i))
    after = dict(tatara.stats())
    assert after["recompiles"] == before["recompiles"]
    assert after["guard_hits"] == before["guard_hits"] + 20
    assert {float(state["step"]) for state in optimizer.state.values()} == {22.0}


@pytest.mark.parametrize("kind", ["cosine", "exponential", "lambda", "warmup"])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_a_schedule_of_the_learning_rate(kind: str, optimizer: str) -> None:
    schedules: dict[str, Callable[[Any], Any]] = {
        "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=100),
        "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.95),
        "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch),
        "warmup": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.25, total_iters=50),
    }

    def step(model: nn.Module, holder: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = plain_step(model, holder[0], x, y)
        holder[1].step()
        return loss

    torch.manual_seed(0)
    ours = mlp()
    theirs = copy.deepcopy(ours)
    holders = []
    for model in (ours, theirs):
        made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.05)
        holders.append((made, schedules[kind](made)))
    compiled = tatara.compile(step)
    for i in range(12):
        if i == 3:
            before = dict(tatara.stats())
        same(compiled(ours, holders[0], *batch(i)), step(theirs, holders[1], *batch(i)))
        assert holders[0][1].get_last_lr() == pytest.approx(holders[1][1].get_last_lr(), rel=1e-14)
        assert holders[0][1].last_epoch == holders[1][1].last_epoch
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            same(a.detach(), b.detach())
    after = dict(tatara.stats())
    for name in ("recompiles", "graphs", "breaks", "fallbacks"):
        assert after[name] == before[name], (name, str(tatara.explain(compiled)(ours, holders[0], *batch())))


def test_cnn() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        )

    def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(4, 3, 12, 12, generator=generator), torch.randint(0, 5, (4,), generator=generator)

    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    check(step, make=make, data=data)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_gpt2(optimizer: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=32)

    def data(seed: int) -> tuple[torch.Tensor]:
        return (torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(seed)),)

    def make() -> nn.Module:
        model = transformers.GPT2LMHeadModel(config)
        model(input_ids=data(0)[0], labels=data(0)[0])  # its loggers and caches are filled by the first call
        return model  # type: ignore[no-any-return]

    def step(model: nn.Module, optimizer: Any, ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()  # type: ignore[no-any-return]

    check(
        step,
        make=make,
        optimizer=lambda p: getattr(torch.optim, optimizer)(p, lr=1e-3),
        data=data,
    )


def test_zero_grad_at_the_end_leaves_no_gradients() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    check(step)


def test_gradients_that_are_set_to_zero_stay_the_same_tensors() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    check(step)
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = tatara.compile(step)
    compiled(model, optimizer, *batch())
    held = [p.grad for p in model.parameters()]
    versions = [g._version for g in held if g is not None]
    compiled(model, optimizer, *batch())
    compiled(model, optimizer, *batch())
    for p, g, version in zip(model.parameters(), held, versions, strict=True):
        assert p.grad is g
        assert g is not None
        assert g._version > version


@pytest.mark.smoke
def test_two_passes_add_up() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        for part in range(2):
            nn.functional.mse_loss(model(x + part), y).backward()
        optimizer.step()
        return x

    check(step)


def test_accumulation_over_calls() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss.detach()

    check(step)


def test_a_graph_kept_for_a_second_pass() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        out = model(x)
        nn.functional.mse_loss(out, y).backward(retain_graph=True)
        out.square().mean().backward()
        optimizer.step()
        return out.detach()

    check(step)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(8, 4)
        self.unused = nn.Linear(8, 4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.used(x))  # type: ignore[no-any-return]


def test_unused_and_frozen_parameters_get_no_gradient() -> None:
    check(plain_step, make=Unused)
    model = Unused()
    compiled = tatara.compile(plain_step)
    for _ in range(3):
        compiled(model, torch.optim.SGD(model.parameters(), lr=0.1), *batch())
    assert model.unused.weight.grad is None
    assert model.frozen.weight.grad is None
    assert model.used.weight.grad is not None


def test_freezing_a_parameter_later() -> None:
    torch.manual_seed(0)
    ours = mlp()
    theirs = copy.deepcopy(ours)
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (ours, theirs))
    compiled = tatara.compile(plain_step)
    for i in range(6):
        if i == 3:
            ours[0].weight.requires_grad_(False)  # type: ignore[union-attr,operator]
            theirs[0].weight.requires_grad_(False)  # type: ignore[union-attr,operator]
        compiled(ours, mine, *batch(i))
        plain_step(theirs, other, *batch(i))
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            same(p.detach(), q.detach())


@pytest.mark.smoke
def test_gradients_by_autograd_grad() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        loss = nn.functional.mse_loss(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients, strict=True):
                p -= 0.1 * g
        return list(gradients)

    check(step)


def test_gradient_by_a_value_inside() -> None:
    def step(model: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = model[0](x)
        loss = nn.functional.mse_loss(model[2](hidden.relu()), y)
        return torch.autograd.grad(loss, hidden)[0]

    check(step)


@pytest.mark.parametrize("norm", [2.0, float("inf")])
def test_clipped_gradients(norm: float) -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm)
        optimizer.step()
        return total

    check(step)


class Averaged(nn.Module):
    """With a moving average of a weight beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()
        self.register_buffer("average", torch.zeros(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]


def test_moving_average_without_gradients() -> None:
    def step(model: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = plain_step(model, optimizer, x, y)
        with torch.no_grad():
            model.average.mul_(0.9).add_(model.net[0].weight, alpha=0.1)
        return loss

    check(step, make=Averaged)


def test_dropout_takes_eagers_random_numbers() -> None:
    check(plain_step, make=lambda: nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.5), nn.GELU(), nn.Linear(32, 4)))


def test_the_loss_is_used_up() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = tatara.compile(plain_step)
    for _ in range(3):
        loss = compiled(model, optimizer, *batch())
        assert loss.requires_grad
        assert not loss.is_leaf
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_a_result_with_a_history_keeps_it() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        nn.functional.mse_loss(out, y).backward(retain_graph=True)
        return out

    torch.manual_seed(0)
    ours = mlp()
    theirs = copy.deepcopy(ours)
    compiled = tatara.compile(step)
    for _ in range(3):
        compiled(ours, None, *batch()).sum().backward()
        step(theirs, None, *batch()).sum().backward()
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            same(p.grad, q.grad)


def triple(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(3)


@pytest.mark.parametrize("kind", ["tensor", "accumulated", "intermediate"])
def test_hooks_run(kind: str) -> None:
    def step(model: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        hidden = model[0](x)
        if kind == "intermediate":
            hidden.register_hook(lambda g: 2 * g)
        loss = nn.functional.mse_loss(model[2](hidden.relu()), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    torch.manual_seed(0)
    ours = mlp()
    theirs = copy.deepcopy(ours)
    mine, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs))
    compiled = tatara.compile(step)
    for i in range(6):
        if i == 3:  # compiled already
            for model in (ours, theirs):
                weight: Any = model[0].weight  # type: ignore[index]
                if kind == "tensor":
                    weight.register_hook(lambda g: 3 * g)
                elif kind == "accumulated":
                    weight.register_post_accumulate_grad_hook(triple)
        compiled(ours, mine, *batch(i))
        step(theirs, other, *batch(i))
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            same(p.detach(), q.detach())


def test_backward_twice_is_eagers_error() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        loss.backward()

    for _ in range(2):
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            tatara.compile(step)(mlp(), None, *batch())


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics(momentum: float | None) -> None:
    check(
        plain_step,
        make=lambda: nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=momentum), nn.ReLU(), nn.Linear(16, 4)
        ),
    )


def test_convolutions_with_running_statistics() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 2, 4)),
            nn.Conv2d(1, 4, 2),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.InstanceNorm2d(4, track_running_stats=True),
            nn.Flatten(),
            nn.Linear(12, 4),
        )

    check(plain_step, make=make)


def test_micro_batches() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        for a, b in zip(x.chunk(3), y.chunk(3), strict=True):
            (nn.functional.mse_loss(model(a), b) / 3).backward()
            assert not b.requires_grad
        optimizer.step()
        return x

    check(step)


def test_autocast() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    check(step)


@pytest.mark.parametrize("overflow", [False, True])
def test_scaled_gradients(overflow: bool) -> None:
    """The scaler looks at its gradients before each step, so the graph breaks there; the second step may be left out."""

    def step(model: nn.Module, holder: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer, scaler = holder
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    class Holder(tuple):  # type: ignore[type-arg]
        def state_dict(self) -> Any:
            return [each.state_dict() for each in self]

    def data(i: int) -> Any:
        x, y = batch(i)
        return (x * 1e18 if overflow and i == 3 else x), y

    def make(parameters: Any) -> Any:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        return Holder((torch.optim.SGD(parameters, lr=0.1), scaler))

    check(step, optimizer=make, data=data, graphs=None)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embedding(x)))  # type: ignore[no-any-return]


def test_tied_weights() -> None:
    def step(model: nn.Module, optimizer: Any, ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    check(step, make=Tied, data=lambda i: (torch.randint(0, 10, (3, 5), generator=torch.Generator().manual_seed(i)),))


def test_groups_of_parameters() -> None:
    def make(parameters: Any) -> Any:
        a, b, c, d = parameters
        groups = [
            {"params": [a], "lr": 0.1, "weight_decay": 0.0},
            {"params": [b, c]},
            {"params": [d], "betas": (0.5, 0.9)},
        ]
        return torch.optim.AdamW(groups, lr=0.01)

    check(plain_step, optimizer=make)


def test_two_roots_and_values_clipped() -> None:
    def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        out = model(x)
        losses = nn.functional.mse_loss(out, y), out.abs().mean()
        torch.autograd.backward(losses)
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
        return [loss.detach() for loss in losses]

    check(step)


def test_moving_average_by_lerp() -> None:
    def step(model: Any, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = plain_step(model, optimizer, x, y)
        with torch.no_grad():
            model.average.lerp_(model.net[0].weight, 0.1)
        return loss

    check(step, make=Averaged)


def test_gradients_that_the_step_lets_go_of_are_gone_before_it_computes() -> None:
    """As in eager, where `zero_grad` frees them: a step holds one set of gradients, not two."""
    layer = torch.nn.Linear(8, 8)
    seen: list[int] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        layer.zero_grad(set_to_none=True)
        loss = layer(x).square().sum()
        loss.backward()
        return loss.detach()

    compiled = tatara.compile(step)
    x = torch.randn(8, 8)
    for _ in range(4):
        compiled(x)
    assert layer.weight.grad is not None
    weakref.finalize(layer.weight.grad, lambda: seen.append(tatara.stats()["kernels_launched"]))
    before = tatara.stats()
    compiled(x)
    after = tatara.stats()
    assert after["graphs"] == before["graphs"]
    assert after["kernels_launched"] > before["kernels_launched"]
    assert seen == [before["kernels_launched"]]
