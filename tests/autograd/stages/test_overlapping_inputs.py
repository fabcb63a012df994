"""Inputs that share memory with what a graph writes to: eager's results, in the first such call and behind others."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.nn import functional as F

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
ORDERS = ([False] * 4, [True] * 3, [False, False, True, True, False], [True, False, True, False])


def pair(overlap: bool) -> tuple[Tensor, Tensor]:
    memory = torch.linspace(-1, 2, 12)
    return (memory[:8], memory[4:]) if overlap else (memory[:8].clone(), memory[4:].clone())


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_write_beside_others(order: list[bool], drops: bool, training: bool) -> None:
    layer = torch.nn.Linear(8, 8)

    def program(x: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        h = layer(x + p).relu()
        q.clamp_(0, 1)
        h = F.dropout(h, 0.5, training=drops) * q
        return (h * (p + 1)).sum(), q + 1

    compiled = tatara.compile(program)
    with torch.set_grad_enabled(training):
        for seed, overlap in enumerate(order):
            x, found = torch.randn(3, 8), []
            for function in (program, compiled):
                torch.manual_seed(seed)
                p, q = pair(overlap)
                result = function(x, p, q)
                layer.zero_grad()
                if training:
                    result[0].backward()
                found.append([result, p, q, layer.weight.grad, torch.rand(2)])
            same(found[1], found[0])


def test_inputs_that_nobody_writes_to_may_overlap() -> None:
    def program(p: Tensor, q: Tensor, r: Tensor) -> Tensor:
        r.add_(1)
        return (p.sin() + q.cos()) * r

    compiled = tatara.compile(program)
    with counts() as grown:
        for _ in range(3):
            p, q = pair(True)
            ours, theirs = torch.zeros(8), torch.zeros(8)
            same(compiled(p, q, ours), program(p, q, theirs))
            same(ours, theirs)
    assert grown["fallbacks"] == 0
    assert grown["kernels_launched"] > 0


def test_inputs_that_always_overlap_are_the_programs_own_to_run() -> None:
    """Call by call a graph costs more than the program. Where they are apart again the graph runs."""

    def program(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(0.5)
        return (a + b).sin()

    def names(*args: Tensor) -> list[str]:
        seen: list[str] = []
        sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
        try:
            compiled(*args)
        finally:
            sys.setprofile(None)
        return seen

    compiled = tatara.compile(program)
    base, twin = torch.randn(8), torch.randn(8)
    twin.copy_(base)
    apart = torch.randn(4), torch.randn(4)
    compiled(*apart)
    for _ in range(6):
        same(compiled(base[:4], base[2:6]), program(twin[:4], twin[2:6]))
        same(base, twin)
    assert "program" in names(base[:4], base[2:6])
    assert "program" not in names(*apart)
    assert "program" not in names(base[:4], base[2:6])
