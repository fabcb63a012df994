"""On a GPU: conditions that tensors decide are part of the graph, and so are those of numbers drawn on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graph_counts import counted
from torch import Tensor, nn

import tatara

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


def _same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def _checked(x: Tensor) -> Tensor:
    y = torch.softmax(x * 2, -1)
    if torch.isnan(y).any():
        y = torch.zeros_like(y)
    z = (y @ y.T).relu()
    if (z.sum() > 1e6).item():
        z = z / 2
    return z + 1


def test_conditions_are_in_the_graph() -> None:
    compiled = tatara.compile(_checked)
    x = torch.randn(64, 32, device="cuda")
    for _ in range(3):
        _same(compiled(x), _checked(x))
    with counted():
        for _ in range(6):
            x = torch.randn(64, 32, device="cuda")
            _same(compiled(x), _checked(x))
    assert not tatara.explain(compiled)(x).breaks


def test_a_condition_that_falls_otherwise() -> None:
    compiled = tatara.compile(_checked)
    x = torch.randn(64, 32, device="cuda")
    for _ in range(4):
        _same(compiled(x), _checked(x))
    bad = x.clone()
    bad[3, 3] = float("nan")
    _same(compiled(bad), _checked(bad))
    _same(compiled(x), _checked(x))


def _guarded_index(table: Tensor, places: Tensor) -> Tensor:
    if (places < table.shape[0]).all():
        return table[places] * 2 + table[places].sum()
    return torch.full_like(table, -1.0)


def test_indices_that_the_program_would_not_read() -> None:
    compiled = tatara.compile(_guarded_index)
    table = torch.randn(16, 8, device="cuda")
    good, bad = torch.arange(16, device="cuda"), torch.arange(16, device="cuda") + 4
    for _ in range(4):
        _same(compiled(table, good), _guarded_index(table, good))
    _same(compiled(table, bad), _guarded_index(table, bad))
    torch.cuda.synchronize()
    for _ in range(3):
        _same(compiled(table, good), _guarded_index(table, good))


def _counting(state: Tensor, x: Tensor) -> Tensor:
    y = (x * x).sum()
    if y > 100:
        state.mul_(0.5)
    state.add_(x.mean())
    return state * y


def test_nothing_is_written_before_the_condition() -> None:
    compiled = tatara.compile(_counting)
    a, b = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    for i in range(12):
        x = torch.full((16,), 4.0 if i % 5 == 4 else 0.5, device="cuda")
        _same(compiled(a, x), _counting(b, x))
        _same(a, b)


def _drawn(x: Tensor) -> Tensor:
    y = torch.nn.functional.dropout(x * 3, 0.5)
    if y.sum() > 1e6:
        y = y + 1
    return y * torch.rand_like(x)


def test_random_state_after_a_condition() -> None:
    compiled = tatara.compile(_drawn)
    big = torch.full((64,), 1e9, device="cuda")
    x = torch.randn(64, device="cuda")
    for i in range(8):
        argument = x if i != 5 else big
        torch.manual_seed(i)
        expected = _drawn(argument)
        after = torch.cuda.get_rng_state()
        torch.manual_seed(i)
        torch.testing.assert_close(compiled(argument), expected, equal_nan=True)
        assert torch.equal(after, torch.cuda.get_rng_state())


class _Layers(nn.Module):
    """As speech models leave layers out."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            left_out = torch.rand([]) < self.drop
            if not left_out:
                x = x + torch.nn.functional.dropout(layer(x).relu(), 0.1)
        return x


@pytest.mark.parametrize("drop", [0.0, 0.02, 0.5])
def test_layers_left_out_by_the_cpu(drop: float) -> None:
    torch.manual_seed(0)
    model = _Layers(drop).cuda()
    compiled = tatara.compile(model)
    x = torch.randn(8, 32, device="cuda")
    for i in range(30):
        grads = []
        for run in (model, compiled):
            torch.manual_seed(i)
            model.zero_grad()
            run(x.requires_grad_()).square().sum().backward()
            grads.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
            grads[-1].append(torch.rand(1))
        for a, b in zip(*grads, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                _same(b, a)
    if drop == 0.0:
        before = tatara.stats()
        compiled(x).sum().backward()
        after = tatara.stats()
        assert after["fallbacks"] == before["fallbacks"]
        assert not tatara.explain(compiled)(x).breaks


def _whole_step(x: Tensor, weight: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss = (x @ weight).square().mean()
    if not torch.isfinite(loss):
        raise ValueError("no number")
    loss.backward()
    optimizer.step()
    return loss.detach()


def test_a_step_that_looks_at_its_loss() -> None:
    def fresh() -> tuple[Tensor, torch.optim.Optimizer]:
        torch.manual_seed(0)
        weight = torch.randn(32, 16, device="cuda", requires_grad=True)
        return weight, torch.optim.Adam([weight], lr=1e-2)

    (w1, o1), (w2, o2) = fresh(), fresh()
    compiled = tatara.compile(_whole_step)
    for i in range(8):
        torch.manual_seed(i)
        x = torch.randn(8, 32, device="cuda")
        _same(compiled(x, w1, o1), _whole_step(x, w2, o2))
        _same(w1, w2)
    bad = torch.full((8, 32), float("nan"), device="cuda")
    for run, w, o in ((compiled, w1, o1), (_whole_step, w2, o2)):
        with pytest.raises(ValueError, match="no number"):
            run(bad, w, o)
    x = torch.randn(8, 32, device="cuda")
    _same(compiled(x, w1, o1), _whole_step(x, w2, o2))
    _same(w1, w2)
    assert not tatara.explain(compiled)(x, w1, o1).breaks
