"""Branches by numbers that a tensor keeps: RAdam's warm-up, ASGD's averages, a program's own counter of steps."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "RAdam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "RAdam decoupled": lambda p: torch.optim.RAdam(p, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    "RAdam short": lambda p: torch.optim.RAdam(p, lr=1e-2, betas=(0.5, 0.6), maximize=True),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=1e-2),
    "ASGD averages": lambda p: torch.optim.ASGD(p, lr=1e-2, t0=3, weight_decay=0.1),
}


def _train(make: Callable[[Any], Any], compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    optimizer = make(net.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tatara.compile(step) if compiled else step
    seen = []
    for _ in range(12):
        seen.append(run(torch.randn(5, 4)).clone())
    states = [v for each in optimizer.state_dict()["state"].values() for v in each.values()]
    return [*seen, *[p.detach() for p in net.parameters()], *states]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_one_graph(name: str) -> None:
    expected = _train(OPTIMIZERS[name], False)
    with counts() as grown:
        found = _train(OPTIMIZERS[name], True)
    same(found, expected)
    assert (grown["breaks"], grown["fallbacks"]) == (0, 0)
    assert grown["graphs"] <= 4  # without a state, with one, and on each side of a branch


COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("limit", [4, 4.0, 4.5])
@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons(compare: Callable[[Any, Any], bool], limit: float, mirrored: bool) -> None:
    def make() -> tuple[Callable[[Any], Any], Any]:
        count = torch.zeros(())

        def step(x: Any) -> Any:
            count.add_(1)
            n = count.item()
            holds = compare(limit, n) if mirrored else compare(n, limit)
            y = x / n if holds else x * n
            return y.cos() + y, holds

        return step, count

    step, count = make()
    other, expected_count = make()
    run = tatara.compile(step)
    for _ in range(9):
        x = torch.randn(3, 4)
        same(run(x), other(x))
        same(count, expected_count)
    assert tatara.stats()["fallbacks"] == 0


def _truth(n: float) -> bool:
    return bool(n - 3)


def _both(n: float) -> bool:
    return n > 2 and not n * 2 > 12 - n


def _largest(n: float) -> float:
    return max(1, n - 3) + min(n, 2.5)


def _power(n: float) -> bool:
    return n**0.5 == 2.0  # the last bit of a root decides


def _chain(n: float) -> bool:
    return 2 < n <= 5


def _nan(n: float) -> bool:
    return n * float("inf") - float("inf") > 1


@pytest.mark.parametrize("question", [_truth, _both, _largest, _power, _chain, _nan])
def test_questions(question: Callable[[float], Any]) -> None:
    def make() -> tuple[Callable[[Any], Any], Any]:
        count = torch.zeros((), dtype=torch.float64)

        def step(x: Any) -> Any:
            nonlocal count
            count += 1
            answer = question(count.item())
            return x * 2 if answer == 1 else x - 1, answer

        return step, lambda: count

    step, count = make()
    other, expected = make()
    run = tatara.compile(step)
    for _ in range(10):
        x = torch.randn(3, 4)
        same(run(x), other(x))
        same(count(), expected())


def _counted() -> tuple[Any, Any]:
    count = torch.zeros(())

    def step(x: Any) -> Any:
        count.add_(1)
        return x * 2 if count.item() > 3 else x + 1

    return count, step


def test_a_counter_that_somebody_sets_back() -> None:
    count, step = _counted()
    run = tatara.compile(step)
    x = torch.randn(3)
    for number in range(1, 25):
        if number % 6 == 1:
            count.zero_()
        same(run(x), x * 2 if (number - 1) % 6 >= 3 else x + 1)
        assert count.item() == (number - 1) % 6 + 1


def test_without_breaks_it_is_an_error_at_once() -> None:
    _, step = _counted()
    with pytest.raises(tatara.Unsupported, match="the value of a float"):
        tatara.compile(step, fullgraph=True)(torch.randn(3))


def test_explaining_changes_no_decision() -> None:
    count, step = _counted()
    run = tatara.explain(step)
    for number in range(1, 7):
        report = run(torch.ones(2))
        assert report.result.tolist() == ([2, 2])
        assert count.item() == number
        assert not report.breaks
