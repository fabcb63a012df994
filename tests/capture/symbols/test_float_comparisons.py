"""Comparisons of floats that vary: how one comes out is the guard, not the value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

VALUES = [0.1, 0.2, 0.7, 0.8, -0.5, 0.0, -0.0, math.nan, math.inf, 0.3, 0.15, 1e300, -3.0, -math.inf, 0.65]


def _three_ways(x: Any, v: float) -> Any:
    if v > 0.5:
        return x * v
    return x - v if v < 0 else x + v


def _between(x: Any, v: float) -> Any:
    return x * (v if 0.1 <= v <= 0.7 else 3.0)


def _clamped(x: Any, v: float) -> Any:
    return x * max(0.0, min(v, 0.5))


def _equal(x: Any, v: float) -> Any:
    return x * v if v == 0.7 else x + 1


def _truth(x: Any, v: float) -> Any:
    return x * v if v else x - 1


def _derived(x: Any, v: float) -> Any:
    return x * v if v * 2 + 1 > abs(v) + 1.5 else x - v


def _behind_a_break(x: Any, v: float) -> Any:
    y = x * v
    if y.sum().item() > 1 and v > 0.3:
        return y + v
    return y - 1 if v > 0.15 else y * 2


def _halved(x: Any, v: float) -> Any:
    count = 0
    while v > 0.2 and count < 5:
        v, count = v / 2, count + 1
    return x * v


@pytest.mark.parametrize(
    "function",
    [_three_ways, _between, _clamped, _equal, _truth, _derived, _behind_a_break, _halved],
    ids=lambda f: f.__name__,
)
def test_as_in_eager(function: Callable[..., Any]) -> None:
    run, x = tatara.compile(function), torch.arange(4.0)
    for value in VALUES + VALUES[::-1]:
        torch.testing.assert_close(run(x, value), function(x, value), equal_nan=True)
    if function not in (_behind_a_break, _derived):
        assert tatara.stats()["graphs"] <= 8


def test_integers_and_their_quotients() -> None:

    def function(x: Any, n: int) -> Any:
        return x * (n / 4 if n / 4 < 0.6 else float(n)) if n < 6.5 else x - n

    run, x = tatara.compile(function), torch.arange(4.0)
    for n in [1, 2, 3, 4, 5, 6, 0, 7, 8, 9, 3, 5, 11]:
        torch.testing.assert_close(run(x, n), function(x, n))
    assert tatara.stats()["graphs"] <= 7


def _warm_up(step: int) -> float:
    if step < 4:
        return float(step) / float(max(1, 4))
    return max(0.0, float(20 - step) / float(max(1, 20 - 4)))


SCHEDULES: dict[str, Callable[[int], float]] = {
    "warm_up": _warm_up,
    "capped": lambda step: min(1, (step + 1) / 5) * 0.95**step,
    "cosine": lambda step: step / 4 if step < 4 else 0.5 * (1 + math.cos(math.pi * (step - 4) / 16)),
    "inverse_root": lambda step: min((step + 1) ** -0.5, (step + 1) * 4**-1.5),
}


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_schedules_compile_once_for_each_part(name: str) -> None:
    def train(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, SCHEDULES[name])

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss

        run = tatara.compile(step) if compiled else step
        seen: list[Any] = []
        for _ in range(20):
            seen += [run(torch.randn(3, 4)).detach(), torch.tensor(optimizer.param_groups[0]["lr"])]
        return [*seen, *(p.detach() for p in model.parameters())]

    tatara.reset()
    for want, got in zip(train(False), train(True), strict=True):
        torch.testing.assert_close(got, want)
    assert tatara.stats()["graphs"] <= 6
    assert tatara.stats()["breaks"] == 0
