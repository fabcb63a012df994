"""Tensors that gradients need, written before the pass: eager refuses the pass, or not, and so does each compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import tatara
from results import same
from tatara.torch import _spoiled

pytestmark = pytest.mark.usefixtures("fresh")

_MORE_ARGUMENTS = (
    "fill",
    "frexp",
    "nn.functional.prelu",
    "nn.functional.threshold",
    "mvlgamma",
    "polygamma",
    "cdouble",
    "cfloat",
    "chalf",
)
UNARY = {
    op.name: op.op
    for op in op_db
    if type(op).__name__ == "UnaryUfuncInfo"
    and op.supports_autograd
    and torch.float64 in op.supported_backward_dtypes("cpu")
    and not op.name.endswith(_MORE_ARGUMENTS)
    and "dropout" not in op.name
}
BINARY = {
    name: getattr(torch, name)
    for name in (
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "atan2",
        "maximum",
        "fmod",
        "hypot",
        "mm",
        "dist",
        "logaddexp",
    )
} | {"where": lambda x, y: torch.where(x > 0, x, y), "softmax": lambda x, y: torch.softmax(x, 1) + y}


def _outcome(call: Callable[..., Any], *others: torch.Tensor) -> list[Any]:
    """Results and gradients of each result, or the error of its pass, and the operands afterwards."""
    x = torch.tensor([[0.25, 0.5], [0.75, 0.125]], dtype=torch.float64, requires_grad=True)
    others = tuple(o.clone() for o in others)
    results = call(x, *others)
    found: list[Any] = [r.detach().clone() for r in results] + [o.detach() for o in others]
    for result in results:
        x.grad = None
        try:
            result.sum().backward(retain_graph=True)
        except RuntimeError as error:
            found.append(str(error))
        else:
            found.append(x.grad)
    return found


def _check(program: Callable[..., Any], *others: torch.Tensor) -> list[Any]:
    expected = _outcome(program, *others)
    compiled = tatara.compile(program)
    for _ in range(3):
        same(_outcome(compiled, *others), expected, equal_nan=True)
    return expected


@pytest.mark.parametrize("name", UNARY)
def test_a_write_to_an_operand_or_a_result(name: str) -> None:
    function = UNARY[name]

    def program(x: torch.Tensor) -> Any:
        operand, other = x * 1, x * 2
        of_operand, result = function(operand), function(other)
        unchanged = function(other) * 1
        operand.mul_(0.5)
        result.mul_(2)
        return of_operand, result, unchanged

    expected = _check(program)
    assert isinstance(expected[-1], torch.Tensor)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("write", ["second", "detached", "without gradients"])
def test_a_write_to_one_of_two(name: str, write: str) -> None:
    function = BINARY[name]

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        before, beside = function(x, y), x * 3
        if write == "second":
            y.add_(1)
        elif write == "detached":
            y.detach()[0].add_(1)
        else:
            with torch.no_grad():
                y.view(-1).add_(1)
        return before, beside, function(x, y)

    _check(program, torch.tensor([[1.5, 2.5], [0.25, 3.0]], dtype=torch.float64))


def test_spoiled_results_are_compiled() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        product, sum_ = (x * y).sum(), (x + y).sum()
        y.add_(1)
        return product, sum_

    expected = _check(program, torch.ones(2, 2, dtype=torch.float64))
    assert "modified by an inplace operation" in expected[3] and isinstance(expected[4], torch.Tensor)
    stats = tatara.stats()
    assert (stats["graphs"], stats["breaks"], stats["fallbacks"]) == (1, 0, 0)


def test_a_step_that_returns_what_it_did_not_use() -> None:
    """Weights are written after the pass; the pass has been through one result only."""

    def step(x: torch.Tensor, w: torch.Tensor) -> Any:
        w = w.requires_grad_()
        used, unused = (x * w).sum(), (x.exp() * w).sum()
        (gradient,) = torch.autograd.grad(used, w)
        with torch.no_grad():
            w.sub_(0.1 * gradient)
        return used, unused

    _check(step, torch.ones(2, 2, dtype=torch.float64))


def test_hooks_on_saved_tensors_are_not_called() -> None:
    x = torch.ones(2, requires_grad=True)
    calls: list[str] = []
    first = _spoiled.next_node()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: calls.append("unpacked") or t):
        y = x.exp()
        assert _spoiled.spoiled([y], first) == [None]
    assert calls == []


def test_a_pass_through_earlier_nodes_is_not_looked_at() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.detach().mul_(2)
    first = _spoiled.next_node()
    z = y + 1
    assert _spoiled.spoiled([z], first) == [None]
    (error,) = _spoiled.spoiled([z], 0)
    assert error is not None and "modified by an inplace operation" in error
