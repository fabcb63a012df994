"""Cells of recurrent networks and paddings: compiled forward and backward, without calls of the host's kernels."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402, N812 - the ecosystem's name

import tatara  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


CELLS = {
    "rnn": torch.nn.RNNCell(3, 4),
    "rnn relu": torch.nn.RNNCell(3, 4, nonlinearity="relu"),
    "rnn without bias": torch.nn.RNNCell(3, 4, bias=False),
    "gru": torch.nn.GRUCell(3, 4),
    "gru without bias": torch.nn.GRUCell(3, 4, bias=False),
    "lstm": torch.nn.LSTMCell(3, 4),
}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_over_time(name: str, dtype: Any) -> None:
    ours, theirs = (copy.deepcopy(CELLS[name]).to(dtype) for _ in range(2))

    def unrolled(cell: Any, xs: Any) -> Any:
        state = None
        for x in xs:
            state = cell(x, state)
        return torch.cat(state) if isinstance(state, tuple) else state

    compiled = tatara.compile(lambda xs: unrolled(ours, xs))
    a, b = (torch.linspace(-2, 2, 30, dtype=dtype).reshape(5, 2, 3).requires_grad_() for _ in range(2))
    for _ in range(2):
        result, expected = compiled(a), unrolled(theirs, b)
        torch.testing.assert_close(result, expected)
        result.backward(torch.ones_like(result))
        expected.backward(torch.ones_like(expected))
    torch.testing.assert_close(a.grad, b.grad)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    report = report_of(compiled)
    assert not any(graph.fallback or graph.problem for graph in report.graphs)
    assert not any("cell" in call.operator for call in report.host_calls)
    with torch.no_grad():
        torch.testing.assert_close(compiled(a), unrolled(theirs, b))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [(1, 2), (0, 3), (2, 0, 1, 3), (3, 3, 0, 0), (1, 2, 2, 1, 1, 0)], ids=str)
def test_gradients_of_padding(mode: str, pad: tuple[int, ...]) -> None:
    shape = (2, 3, 4, 5, 6)[: len(pad) // 2 + 2]
    if len(pad) == 2:
        shape = (2, 3, 6)
    values = torch.randn(shape, dtype=torch.float64)
    ours, theirs = values.clone().requires_grad_(), values.clone().requires_grad_()

    def function(x: Any) -> Any:
        return F.pad(x.sin(), pad, mode)

    compiled = tatara.compile(function)
    for f, x in ((compiled, ours), (function, theirs)):
        result = f(x)
        cotangent = torch.linspace(-1, 2, result.numel(), dtype=torch.float64).reshape(result.shape)
        (first,) = torch.autograd.grad(result, x, cotangent, create_graph=True)
        (first * cotangent.sum()).sum().backward()
        x.first = first.detach()
    torch.testing.assert_close(ours.first, theirs.first)
    torch.testing.assert_close(ours.grad, theirs.grad)
    report = report_of(compiled)
    assert not any(graph.fallback or graph.problem for graph in report.graphs)
    assert not report.host_calls
