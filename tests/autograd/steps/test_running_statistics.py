"""Buffers that a module writes to while it trains: running statistics and counters, beside gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def _check_training(module: Any, *shape: int) -> Any:
    """Four steps beside eager: results, gradients, buffers. The compiled module."""
    theirs = copy.deepcopy(module)
    compiled = tatara.compile(module)
    for _ in range(4):
        x = torch.randn(shape)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        ours, expected = compiled(a), theirs(b)
        torch.testing.assert_close(ours, expected)
        cotangent = torch.randn_like(expected)
        ours.backward(cotangent)
        expected.backward(cotangent)
        torch.testing.assert_close(a.grad, b.grad)
        for mine, other in zip(module.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
        for (name, mine), other in zip(module.state_dict().items(), theirs.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, other, msg=name)
            assert not mine.requires_grad
    return compiled


@pytest.mark.parametrize(
    "module, shape",
    [
        (torch.nn.BatchNorm1d(5), (4, 5)),
        (torch.nn.BatchNorm2d(3, affine=False), (2, 3, 4, 5)),
        (torch.nn.InstanceNorm2d(3, track_running_stats=True), (2, 3, 4, 5)),
        (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()), (2, 3, 6, 6)),
    ],
    ids=["batch", "not affine", "instance", "network"],
)
def test_normalisation_trains_in_compiled_code(module: Any, shape: tuple[int, ...]) -> None:
    compiled = _check_training(module, *shape)
    stats = tatara.stats()
    assert stats["fallbacks"] == 0
    assert stats["graphs"] == 1
    report = report_of(compiled)
    assert report.kernels
    assert not report.graphs[0].problem


def test_cumulative_average() -> None:
    _check_training(torch.nn.BatchNorm1d(5, momentum=None), 4, 5)


def test_a_schedule_of_the_momentum_compiles_once() -> None:
    ours, theirs = torch.nn.BatchNorm1d(5), torch.nn.BatchNorm1d(5)
    compiled = tatara.compile(ours)
    for step in range(5):
        ours.momentum = theirs.momentum = 0.9 ** (step + 1)
        x = torch.randn(4, 5)
        torch.testing.assert_close(compiled(x), theirs(x))
        torch.testing.assert_close(ours.running_mean, theirs.running_mean)
        torch.testing.assert_close(ours.running_var, theirs.running_var)
    assert tatara.stats()["graphs"] == 2  # the second momentum made it a number of each call
    assert not any(graph.fallback or graph.problem for graph in report_of(compiled).graphs)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_number_of_each_call_is_read_by_compiled_code(needs_grad: bool) -> None:
    compiled = tatara.compile(lambda x, k: x.sin() * k)
    for step in range(4):
        x = torch.randn(3, 4, requires_grad=needs_grad)
        torch.testing.assert_close(compiled(x, 0.5 + step), x.sin() * (0.5 + step))
    graphs = report_of(compiled).graphs
    assert len(graphs) == 2
    assert not any(graph.fallback or graph.problem for graph in graphs)


class _Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[0] > 1
        self.calls.add_(1)
        if int(self.calls) > 100:
            return x
        return x.sin()


def test_a_graph_that_only_writes_is_run_in_every_step() -> None:
    module = _Counting()
    _check_training(module, 3, 4)
    assert int(module.calls) == 4
