"""torch's associative_scan inside of compiled code: one graph, with gradients, and the same as the recurrence."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import tatara


def _linear(left, right):
    return left[0] * right[0], left[1] * right[0] + right[1]


def _by_hand(a, b, dim, reverse):
    a, b = a.movedim(dim, 0), b.movedim(dim, 0)
    order = range(len(a) - 1, -1, -1) if reverse else range(len(a))
    state, factor, states, factors = torch.zeros_like(b[0]), torch.ones_like(a[0]), [], []
    for i in order:
        state, factor = state * a[i] + b[i], factor * a[i]
        states.append(state)
        factors.append(factor)
    if reverse:
        states.reverse()
        factors.reverse()
    return torch.stack(factors).movedim(0, dim), torch.stack(states).movedim(0, dim)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 33])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_linear_recurrence(count, dim, reverse):
    def function(a, b):
        return associative_scan(_linear, (a.sigmoid(), b), dim, reverse=reverse)

    def expected(a, b):
        return _by_hand(a.sigmoid(), b, dim, reverse)

    sizes = [3, 3, 3]
    sizes[dim] = count
    compiled = tatara.compile(function)
    for call in range(3):
        generator = torch.Generator().manual_seed(call)
        a, b = (torch.randn(sizes, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
        found, wanted = compiled(a, b), expected(a, b)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(sum(t.square().sum() for t in each), (a, b)) for each in (found, wanted)]
        torch.testing.assert_close(*gradients)
    report = tatara.explain(function)(a.detach(), b.detach())
    assert len(report.graphs) == 1 and not report.breaks


def test_functions_that_are_not_pointwise():
    def function(x):
        return associative_scan(lambda p, q: q @ p, x, 0, combine_mode="generic")

    compiled = tatara.compile(function)
    for call in range(3):
        x = torch.randn(6, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(call)).requires_grad_()
        states = [x[0]]
        for each in x[1:]:
            states.append(each @ states[-1])
        found, wanted = compiled(x), torch.stack(states)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(each.square().sum(), x)[0] for each in (found, wanted)]
        torch.testing.assert_close(*gradients)
    report = tatara.explain(function)(torch.randn(6, 3, 3))
    assert len(report.graphs) == 1 and not report.breaks


def test_dicts_of_tensors():
    def function(x, y):
        return associative_scan(
            lambda p, q: {"sum": p["sum"] + q["sum"], "most": torch.maximum(p["most"], q["most"])},
            {"sum": x, "most": y},
            dim=1,
        )

    compiled = tatara.compile(function)
    for call in range(3):
        x, y = torch.randn(2, 9, generator=torch.Generator().manual_seed(call)), torch.arange(18.0).reshape(2, 9).sin()
        found = compiled(x, y)
        torch.testing.assert_close(found, {"sum": x.cumsum(1), "most": y.cummax(1).values})


def test_what_torch_refuses():
    compiled = tatara.compile(lambda x: associative_scan(torch.add, x, 5))
    for _ in range(3):
        with pytest.raises(Exception, match="dim|Dim|index"):
            compiled(torch.ones(3))
