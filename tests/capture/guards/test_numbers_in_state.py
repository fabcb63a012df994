"""Numbers and sizes of what a program keeps between calls: slots, dicts with defaults, state that the first call fills."""

from __future__ import annotations

import collections
import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


class Slots:
    __slots__ = ("mean", "rate", "steps")

    def __init__(self) -> None:
        self.steps, self.rate, self.mean = 0, 1.0, torch.zeros(3)


class Kept:
    """What the programs below keep; made anew for each run of one."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.totals: Any = collections.defaultdict(float)
        self.states: dict[Any, dict[str, Any]] = {}
        self.groups: dict[str, Any] = {}
        self.counts: Any = collections.Counter()
        self.slots_or_not = types.SimpleNamespace()
        self.weights = [torch.zeros(2), torch.zeros(3)]


kept = Kept()


def slots(x: Tensor, call: int) -> Any:
    s = kept.slots
    s.steps += 1
    s.rate = s.rate * 0.5 + s.steps
    s.mean = s.mean + x * s.steps
    return s.mean * s.rate


def totals(x: Tensor, call: int) -> Any:
    kept.totals["seen"] += 1.5
    kept.totals["norm"] += 1
    return x * kept.totals["seen"] + kept.totals["norm"]


def optimizer(x: Tensor, call: int) -> Any:
    """State that the first call fills, with a counter, and an argument of more than one type."""
    decay = [None, 0.1, 0.2][call % 3]
    for i, weight in enumerate(kept.weights):
        state = kept.states.setdefault(i, {})
        if len(state) == 0:
            state["step"] = 0
            state["mean"] = torch.zeros_like(weight)
        state["step"] += 1
        state["mean"].lerp_(torch.ones_like(weight), 0.5)
        weight.add_(state["mean"], alpha=-1 / math.sqrt(state["step"]))
    return x if decay is None else x * decay


def asks_truth(x: Tensor, call: int) -> Any:
    if not kept.groups:
        kept.groups["step"] = 0
    kept.groups["step"] += 2
    return x * kept.groups["step"]


def counter(x: Tensor, call: int) -> Any:
    """A Counter's items, read one by one, counted from a list, added from another dict."""
    kept.counts["seen"] += 1
    kept.counts.update(["a", "b", "a"])
    kept.counts.update({"seen": 2, "c": 1})
    kept.counts["b"] += kept.counts.get("never", 0) + kept.counts["missing"]
    return x * kept.counts["seen"] + kept.counts["a"] - kept.counts.get("b", 0)


def asks_by_name(x: Tensor, call: int) -> Any:
    """Attributes that are there from the first call on, read by getattr."""
    state = kept.slots_or_not
    state.calls = getattr(state, "calls", 0) + 1
    kept.slots.steps = getattr(kept.slots, "steps", 7) + 2
    return x * state.calls + kept.slots.steps


PROGRAMS = [slots, totals, optimizer, asks_truth, counter, asks_by_name]


def plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, types.SimpleNamespace):
        return plain(vars(value))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, Slots):
        return [plain(getattr(value, name)) for name in Slots.__slots__]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_counters_in_state_cost_few_compilations(program: Callable[..., Any]) -> None:
    global kept
    seen: list[list[Any]] = []
    for run in (program, tatara.compile(program)):
        kept = Kept()
        seen.append([])
        for call in range(9):
            with counts() as grown:
                result = run(torch.arange(3.0) + call, call)
            seen[-1].append((plain(result), plain(vars(kept))))
    for eager, compiled in zip(*seen, strict=True):
        assert compiled == pytest.approx(eager) if not isinstance(eager, tuple) else compiled == eager
    assert grown["graphs"] == grown["recompiles"] == grown["breaks"] == 0


table: dict[str, Any] = {"a": 1.0, "b": torch.ones(3)}
items: list[Any] = [1, 2]


def test_the_size_of_a_dict_or_list_is_compared_alone() -> None:
    run = tatara.compile(lambda x: x * len(table) + (1 if items else 2))
    x = torch.ones(2)
    assert torch.equal(run(x), x * 3)
    table["a"], table["b"], items[0] = "other", torch.zeros(1), None
    with counts() as grown:
        assert torch.equal(run(x), x * 3)
    assert grown["graphs"] == grown["recompiles"] == 0
    table["c"] = 1
    assert torch.equal(run(x), x * 4)
    del table["c"]
    items.clear()
    assert torch.equal(run(x), x * 2 + 2)
    items[:] = [1, 2]


def test_a_slot_may_hold_something_else() -> None:
    state = Slots()
    run = tatara.compile(lambda x: x * state.steps if state.steps is not None else x + 1)
    x = torch.ones(2)
    for steps in (1, 2, 3, 2.5, None, -4, 2**40, 5):
        state.steps = steps
        assert torch.equal(run(x), x * steps if steps is not None else x + 1)
