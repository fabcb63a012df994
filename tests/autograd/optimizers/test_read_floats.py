"""Floats that an optimizer reads from tensors, and computes with: Adafactor."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

OPTIONS: list[dict[str, Any]] = [
    {"lr": 0.05},
    {"lr": 0.05, "foreach": True},
    {"lr": 0.5, "d": 1.5, "weight_decay": 0.1, "maximize": True},
    {"lr": 0.05, "eps": (1e-8, 0.7), "foreach": True},
]


def _train(options: dict[str, Any], way: str, compiled: bool, size: int = 6) -> list[Any]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, size), torch.nn.Tanh(), torch.nn.Linear(size, 2)).double()
    optimizer = torch.optim.Adafactor(net.parameters(), **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def pass_of(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()

    def train(x: Any) -> Any:
        loss = pass_of(x)
        optimizer.step()
        return loss

    def alone(x: Any) -> Any:
        loss = pass_of(x)
        update()
        return loss

    def make(function: Any) -> Any:
        return tatara.compile(function) if compiled else function

    update = make(lambda: optimizer.step())
    run = make(train) if way == "train" else alone
    seen = []
    for i in range(8):
        seen.append(
            run(torch.randn(5, 4, dtype=torch.float64) * (1 + 5 * (i % 3))).clone()
        )  # updates are large, and small
        schedule.step()
    states = [v for each in optimizer.state_dict()["state"].values() for v in each.values()]
    return [*seen, *[p.detach() for p in net.parameters()], *states]


@pytest.mark.parametrize("way", ["step", "train"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_one_graph(options: dict[str, Any], way: str) -> None:
    expected = _train(options, way, False)
    with counts() as grown:
        got = _train(options, way, True)
    same(got, expected, rtol=1e-4, atol=1e-5)
    assert grown["breaks"] == 0
    assert grown["fallbacks"] == 0
    assert grown["graphs"] <= 3


def test_weights_that_are_zero() -> None:
    def run(compiled: bool) -> list[Any]:
        p = torch.zeros(3, 2, requires_grad=True)
        optimizer = torch.optim.Adafactor([p], lr=0.1)
        step = tatara.compile(lambda: optimizer.step()) if compiled else optimizer.step
        seen = []
        for i in range(5):
            p.grad = torch.zeros(3, 2) if i % 2 else torch.full((3, 2), float("nan") if i == 4 else 2.0)
            step()
            seen.append(p.detach().clone())
        return seen

    same(run(True), run(False), equal_nan=True)


def test_floats_read_elsewhere_break() -> None:
    def f(x: Any) -> Any:
        return x * max(1.0, x.norm().item())

    x = torch.randn(3)
    report = tatara.explain(f)(x)
    assert torch.equal(report.result, f(x))
    assert len(report.breaks) == 1
