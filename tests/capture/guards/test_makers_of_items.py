"""What a defaultdict makes its items with, where that is a function made anew: metrics of a trainer."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402


class Meter:
    def __init__(self, start: float) -> None:
        self.sums: Any = collections.defaultdict(lambda: [start, 0])

    def add(self, name: str, value: Any) -> None:
        entry = self.sums[name]
        entry[0] = entry[0] + value
        entry[1] += 1

    def means(self) -> dict[str, Any]:
        return {k: s / n for k, (s, n) in self.sums.items()}


class Trainer:
    def __init__(self) -> None:
        self.meter = Meter(0.0)
        self.log: list[Any] = []

    def step(self, x: Any) -> Any:
        self.meter.add("loss", x.sum())
        self.meter.add("norm", x.norm())
        return x * 2


@pytest.mark.parametrize("starts", [[0.0], [0.0, 1.0]], ids=["one start", "two starts"])
def test_meters_made_anew(starts: list[float]) -> None:
    def calls(wrap: Callable[..., Any]) -> list[Any]:
        trainer = Trainer()
        step, seen = wrap(trainer.step), []
        for i in range(12):
            if i % 3 == 0:
                trainer.meter = Meter(starts[i % len(starts)])
            seen.append([step(torch.arange(3.0) + i).tolist()])
            seen[-1].append({k: float(v) for k, v in trainer.meter.means().items()})
        return seen

    expected = calls(lambda f: f)
    with counts() as count:
        got = calls(tatara.compile)
    for a, b in zip(got, expected, strict=True):
        assert a == [b[0], pytest.approx(b[1])]
    assert count["breaks"] == 0
    assert count["graphs"] <= 9  # an empty table and a full one, by start, and behind them


def test_another_maker() -> None:
    """Of another code, of C code, none: each is seen."""
    makers = [lambda: 1.0, lambda: 2.0, list, None, lambda: 1.0, int]

    def f(d: Any, x: Any) -> Any:
        try:
            item = d["a"]
        except KeyError:
            return x
        return x + (len(item) + 5 if isinstance(item, list) else item)

    compiled = tatara.compile(f)
    for _ in range(2):
        for maker in makers:
            expected = f(collections.defaultdict(maker), torch.ones(2))
            assert torch.equal(compiled(collections.defaultdict(maker), torch.ones(2)), expected)


def test_cells_of_a_maker() -> None:
    def make(start: Any) -> Any:
        return collections.defaultdict(lambda: start + 1)

    def f(d: Any, x: Any) -> Any:
        return d["a"] * x, d

    compiled = tatara.compile(f)
    for i in range(6):
        start = torch.full((2,), float(i))
        got, table = compiled(make(start), torch.ones(2))
        assert torch.equal(got, start + 1)
        assert torch.equal(table["a"], start + 1)
        assert torch.equal(table["b"], start + 1)
