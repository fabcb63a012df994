"""Learning-rate schedules in and around compiled training steps: as eager has them, and never a compilation per step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler as schedules  # noqa: E402
from torch.optim.swa_utils import SWALR  # noqa: E402

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

STEPS = 24

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.05),
    "adam_foreach": lambda groups: torch.optim.Adam(groups, lr=0.05, foreach=True),
}


def _two(optimizer: Any) -> Any:
    parts = [schedules.LinearLR(optimizer, 0.1, 1.0, 5), schedules.CosineAnnealingLR(optimizer, 12)]
    return schedules.SequentialLR(optimizer, parts, [5])


def _three(optimizer: Any) -> Any:
    parts = [
        schedules.ConstantLR(optimizer, 0.1, 3),
        schedules.ExponentialLR(optimizer, 0.9),
        schedules.StepLR(optimizer, 3),
    ]
    return schedules.SequentialLR(optimizer, parts, [4, 12])


def _chained(optimizer: Any) -> Any:
    parts = [schedules.ConstantLR(optimizer, 0.1, 6), schedules.ExponentialLR(optimizer, 0.9)]
    return schedules.ChainedScheduler(parts, optimizer=optimizer)


# Each with the parts that it has: a graph each, beside that of the first step, when the schedule is in the step and when not.
SCHEDULERS: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "LambdaLR": (lambda o: schedules.LambdaLR(o, lambda s: 0.95**s), 1, 1),
    "LambdaLR, two": (
        lambda o: schedules.LambdaLR(o, [lambda s: 0.9**s if s < 6 else 0.5, lambda s: 1 / (1 + s)]),
        2,
        1,
    ),
    "MultiplicativeLR": (lambda o: schedules.MultiplicativeLR(o, lambda s: 1 - 0.01 * s), 1, 1),
    "StepLR": (lambda o: schedules.StepLR(o, 6, 0.5), 2, 2),
    "MultiStepLR": (lambda o: schedules.MultiStepLR(o, [5, 11, 17], 0.3), 2, 2),
    "ConstantLR": (lambda o: schedules.ConstantLR(o, 0.3, 6), 3, 2),
    "LinearLR": (lambda o: schedules.LinearLR(o, 0.3, 1.0, 8), 2, 1),
    "ExponentialLR": (lambda o: schedules.ExponentialLR(o, 0.9), 1, 1),
    "PolynomialLR": (lambda o: schedules.PolynomialLR(o, 16, 2.0), 2, 1),
    "CosineAnnealingLR": (lambda o: schedules.CosineAnnealingLR(o, 9, 0.001), 2, 1),
    "CosineAnnealingWarmRestarts": (lambda o: schedules.CosineAnnealingWarmRestarts(o, 4, 2, 0.001), 4, 1),
    "CyclicLR": (lambda o: schedules.CyclicLR(o, 0.01, 0.1, 4, 5), 2, 1),
    "CyclicLR, triangular2": (lambda o: schedules.CyclicLR(o, 0.01, 0.1, 4, mode="triangular2"), 2, 1),
    "CyclicLR, exp_range": (lambda o: schedules.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.95), 2, 1),
    "OneCycleLR": (lambda o: schedules.OneCycleLR(o, 0.1, STEPS + 2), 2, 1),
    "OneCycleLR, three phases": (
        lambda o: schedules.OneCycleLR(o, [0.1, 0.05], STEPS + 2, anneal_strategy="linear", three_phase=True),
        3,
        1,
    ),
    "OneCycleLR, no momentum": (lambda o: schedules.OneCycleLR(o, 0.1, STEPS + 2, cycle_momentum=False), 2, 1),
    "ReduceLROnPlateau": (lambda o: schedules.ReduceLROnPlateau(o, patience=1, cooldown=1), 6, 2),
    "SequentialLR": (_two, 5, 1),
    "SequentialLR, three": (_three, 9, 2),
    "ChainedScheduler": (_chained, 2, 1),
    "SWALR": (lambda o: SWALR(o, 0.05, 6), 3, 1),
}


def _metric(step: int) -> float:
    return float(10 - step) if step < 4 else 7.0


def _plain(value: Any) -> Any:
    """States as they can be compared: tensors copied, functions left out."""
    if isinstance(value, schedules.LRScheduler):
        return _plain(value.state_dict())
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if not callable(v)}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(_plain(v) for v in value)]
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return None if callable(value) else value


def _train(
    optimizer_name: str, make: Callable[[Any], Any], inside: bool, compiled: bool
) -> tuple[list[Any], list[int]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters()), "lr": 0.02}]
    optimizer = OPTIMIZERS[optimizer_name](groups)
    scheduler = make(optimizer)
    plateau = isinstance(scheduler, schedules.ReduceLROnPlateau)
    metric = [0.0]

    def advance() -> None:
        if plateau:
            scheduler.step(metric[0])
        else:
            scheduler.step()

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if inside:
            advance()
        return loss

    run = tatara.compile(step) if compiled else step
    seen, graphs = [], []
    for i in range(STEPS):
        x = torch.randn(3, 4)
        metric[0] = _metric(i)
        with counts() as grown:
            loss = run(x)
            if not inside:
                advance()
        graphs.append(grown["graphs"])
        seen.append(
            _plain(
                {
                    "loss": loss,
                    "parameters": list(model.parameters()),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "last": scheduler.get_last_lr(),
                }
            )
        )
    return seen, graphs


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("name", list(SCHEDULERS))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_schedulers_of_torch(name: str, optimizer: str, inside: bool) -> None:
    make, parts_inside, parts_outside = SCHEDULERS[name]
    tatara.reset()
    want, _ = _train(optimizer, make, inside, False)
    got, graphs = _train(optimizer, make, inside, True)
    for a, b in zip(got, want, strict=True):
        same(a, b)
    assert tatara.stats()["breaks"] == 0
    assert sum(graphs) <= 1 + (parts_inside if inside else parts_outside), graphs
    assert not any(graphs[STEPS - 6 :]), graphs


COUNT = 0


class Holder:
    """A class whose attribute counts, and whose objects do."""

    shared = 0

    def __init__(self) -> None:
        self.count = 0


def _counters() -> dict[str, tuple[Callable[[], int], Callable[[], None]]]:
    """What counts a step and gives the number, and what sets it to 0."""
    held, table, items, local = Holder(), {"step": 0}, [0, 7], 0

    def in_object() -> int:
        held.count += 1
        return held.count

    def in_class() -> int:
        Holder.shared += 1
        return Holder.shared

    def in_dict() -> int:
        table["step"] += 1
        return table["step"]

    def in_list() -> int:
        items[0] += 1
        return items[0]

    def in_global() -> int:
        global COUNT
        COUNT += 1
        return COUNT

    def in_closure() -> int:
        nonlocal local
        local += 1
        return local

    def clear() -> None:
        global COUNT
        nonlocal local
        held.count = Holder.shared = table["step"] = items[0] = COUNT = local = 0

    counters = {"object": in_object, "class": in_class, "dict": in_dict, "list": in_list}
    counters |= {"global": in_global, "closure": in_closure}
    return {name: (count, clear) for name, count in counters.items()}


def _half_every_ten(step: int) -> float:
    return 0.1 * 0.5 ** (step // 10)


RATES = [0.1 / (1 + i) for i in range(STEPS + 1)]

WRITTEN: dict[str, Callable[[int], float]] = {
    "cosine": lambda step: 0.1 * 0.5 * (1 + math.cos(math.pi * step / STEPS)),
    "warm-up": lambda step: 0.1 * min(1.0, step / 10),
    "every tenth": lambda step: 0.2 if step % 10 == 0 else 0.1,
    "halved": _half_every_ten,
    "table": lambda step: RATES[step],
    "milestones": lambda step: 0.1 if step not in (6, 12) else 0.2,
    "saw": lambda step: 0.1 * (step / 7 - math.floor(step / 7)) + 0.01,
    "whole": lambda step: 0.1 / (1 + int(step * 0.3)) + 0.01 * round(step / 3),
}


@pytest.mark.parametrize("counter", list(_counters()))
@pytest.mark.parametrize("name", list(WRITTEN))
def test_schedules_of_the_program(name: str, counter: str) -> None:
    schedule = WRITTEN[name]
    optimizer_name = next(o for o, n in zip(itertools.cycle(OPTIMIZERS), WRITTEN) if n == name)

    def train(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
        groups = [
            {"params": list(model[0].parameters())},
            {"params": list(model[2].parameters()), "weight_decay": 0.01},
        ]
        optimizer = OPTIMIZERS[optimizer_name](groups)
        count, clear = _counters()[counter]
        clear()

        def step(x: Any) -> Any:
            number = count()
            for i, group in enumerate(optimizer.param_groups):
                group["lr"] = schedule(number) * 0.5**i
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss, number

        run = tatara.compile(step) if compiled else step
        seen = []
        for _ in range(STEPS):
            loss, number = run(torch.randn(3, 4))
            seen.append(_plain([loss, number, list(model.parameters()), optimizer.state_dict()]))
        return seen

    tatara.reset()
    want, got = train(False), train(True)
    for a, b in zip(got, want, strict=True):
        same(a, b)
    # A write to a class breaks the graph.
    assert tatara.stats()["graphs"] <= (6 if counter == "class" else 4)
    assert tatara.stats()["breaks"] <= (3 if counter == "class" else 0)


def test_momentum_and_betas_set_outside() -> None:
    for name, key in (("sgd", "momentum"), ("adamw", "betas"), ("adam_foreach", "betas")):

        def train(compiled: bool, name: str = name, key: str = key) -> list[Any]:
            torch.manual_seed(0)
            model = nn.Linear(4, 2)
            optimizer = OPTIMIZERS[name](model.parameters())

            def step(x: Any) -> Any:
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss

            run = tatara.compile(step) if compiled else step
            seen = []
            for i in range(12):
                value = 0.9 - 0.08 * i  # past one half, where the other form of lerp begins
                optimizer.param_groups[0][key] = value if key == "momentum" else (value, 0.99 + 0.0005 * i)
                seen.append(_plain([run(torch.randn(3, 4)), list(model.parameters()), optimizer.state_dict()]))
            return seen

        tatara.reset()
        for a, b in zip(train(True), train(False), strict=True):
            same(a, b)
        assert tatara.stats()["graphs"] == 2
        assert tatara.stats()["breaks"] == 0
