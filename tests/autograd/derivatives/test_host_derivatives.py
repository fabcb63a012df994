"""Operators without a rule of ours: ATen differentiates that one call, and the graph around it stays compiled."""

import pytest
import torch

import tatara

CALLS = {
    "bessel": lambda x: torch.special.modified_bessel_i0(x.detach()) * x,
    "cumulative trapezoid": lambda x: torch.cumulative_trapezoid(x, torch.arange(4.0).double()),
    "matrix exponential": lambda x: torch.linalg.matrix_exp(x * 0.1),
    "pseudo inverse": lambda x: torch.linalg.pinv(x + torch.eye(4).double() * 5),
    "nuclear norm": lambda x: torch.norm(x + torch.eye(4).double() * 3, p="nuc"),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_missing_rule_leaves_the_graph_compiled(name):
    def function(x):
        for _ in range(3):
            x = torch.tanh(x) * 1.5 + x
        y = CALLS[name](x)
        for _ in range(3):
            y = torch.sin(y) * 0.5 + y
        return y.sum()

    compiled = tatara.compile(function)
    for call in range(3):
        start = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(call))
        found, expected = [], []
        for results, run in ((found, compiled), (expected, function)):
            x = start.clone().requires_grad_()
            value = run(x)
            (gradient,) = torch.autograd.grad(value, x, create_graph=True)
            (second,) = torch.autograd.grad(gradient.square().sum(), x)
            results.extend([value.detach(), gradient.detach(), second])
        torch.testing.assert_close(found, expected)
    report = tatara.explain(function)(torch.randn(4, 4, dtype=torch.float64, requires_grad=True))
    assert len(report.graphs) == 1 and not report.breaks and not report.graphs[0].fallback
