"""Deques outside of the arguments whose items are others in each call: windows of frames, of losses, of states."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from counters import counts
from results import plain

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


class Window(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frames: collections.deque[Any] = collections.deque([torch.zeros(3)] * 3, maxlen=3)
        self.counts: dict[str, int] = {}


def stacks(self: Window, x: Tensor) -> Any:
    self.frames.append(x)
    return torch.stack(list(self.frames))


def sums(self: Window, x: Tensor) -> Any:
    self.frames.appendleft(x * 2)
    return sum(self.frames) / len(self.frames)


def drops(self: Window, x: Tensor) -> Any:
    oldest = self.frames.popleft()
    self.frames.append(x + oldest)
    return oldest


def turns(self: Window, x: Tensor) -> Any:
    self.frames.append(x)
    self.frames.rotate(1)
    return [item * 1 for item in self.frames]


def holds_pairs(self: Window, x: Tensor) -> Any:
    self.frames.append((x, {"loss": x.sum()}))
    return [item for item in self.frames if isinstance(item, tuple)][-1][1]["loss"]


def asks_identity(self: Window, x: Tensor) -> Any:
    self.frames.append(x)
    return x + (self.frames[0] is self.frames[1])


def writes_to_items(self: Window, x: Tensor) -> Any:
    self.frames.append(x)
    for item in self.frames:
        item.add_(1)
    return x * 1


def counts_by_get(self: Window, x: Tensor) -> Any:
    self.counts["seen"] = self.counts.get("seen", 0) + 1
    return x * self.counts["seen"]


PROGRAMS = [stacks, sums, drops, turns, holds_pairs, asks_identity, writes_to_items, counts_by_get]
SETTLED = [stacks, sums, drops, turns, counts_by_get]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_deques_hold_what_they_hold_in_eager(program: Callable[..., Any]) -> None:
    eager, window = Window(), Window()
    compiled = tatara.compile(lambda x: program(window, x))
    for call in range(9):
        if call == 7:
            for each in (eager, window):
                each.frames.clear()
                each.frames.extend(torch.full((3,), float(i)) for i in range(3))
        x = torch.arange(3.0) + call
        with counts() as grown:
            result = compiled(x.clone())
        assert plain(result) == plain(program(eager, x.clone()))
        assert plain(window.frames) == plain(eager.frames)
    if program in SETTLED:
        assert grown["graphs"] == grown["recompiles"] == grown["breaks"] == 0


def test_items_that_stay_are_guarded_as_they_are() -> None:
    window = Window()
    window.frames = collections.deque([1, 2.5, "a", None], maxlen=4)
    compiled = tatara.compile(lambda x: x * sum(n for n in window.frames if isinstance(n, int | float)))
    assert compiled(torch.ones(1)).item() == 3.5
    window.frames[0] = 4
    assert compiled(torch.ones(1)).item() == 6.5
    window.frames.append(5)
    assert compiled(torch.ones(1)).item() == 7.5
