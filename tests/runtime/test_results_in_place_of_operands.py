"""A result that lies where an operand did, in a kernel that also reduces: the reduction reads the operand, not the result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

STEPS: list[Callable[[Any], Any]] = [
    torch.exp,
    torch.sigmoid,
    lambda x: x * 3 + 1,
    lambda x: (x - x.mean()).clamp(min=-2),
]
REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(0),
    "argmax": lambda x: x.argmax(1),
    "cummax": lambda x: x.cummax(1),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(-1),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "max and sum": lambda x: (x.max(1)[0], x.sum(1)),
    "max twice": lambda x: ((x * 2).max(1)[0], (x + x.max()).min(1)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_beside_a_reduction(name: str) -> None:
    reduce = REDUCTIONS[name]
    for step, size in itertools.product(STEPS, (6, 16, 33)):

        def program(x: Any, step: Callable[[Any], Any] = step) -> Any:
            d = step(x @ x.t())
            return reduce(d), (d + d.max()).sum(1), d.sin().min(0)

        compiled = tatara.compile(program)
        torch.manual_seed(size)
        for _ in range(3):
            x = torch.randn(size, size) / size**0.5
            same(list(map(_plain, compiled(x))), list(map(_plain, program(x))), rtol=1e-4, atol=1e-4)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_hardest_pairs() -> None:
    """A triplet loss that mines its pairs: both walks over the distances are in one program."""

    def loss(e: Any, y: Any) -> Any:
        d = (e @ e.t()).exp()
        alike = (y[:, None] == y).float()
        hardest = (d * alike).max(1)[0]
        nearest = (d + d.max() * alike).min(1)[0]
        return torch.relu(hardest - nearest + 0.2).mean(), hardest, nearest

    compiled = tatara.compile(loss)
    torch.manual_seed(0)
    for _ in range(4):
        e, y = torch.randn(6, 8) / 3, torch.randint(0, 4, (6,))
        same(compiled(e, y), loss(e, y), rtol=1e-4, atol=1e-5)
