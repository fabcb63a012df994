"""A call that breaks the graph has written to tensors before. Those that it has made itself are no matter of its caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from tatara.report._report import report_of

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


def _item(x: Tensor) -> Tensor:
    y = x * 2
    y[0] = 1
    return y


def _in_place(x: Tensor) -> Tensor:
    return torch.zeros(x.shape).add_(x)


def _through_a_view(x: Tensor) -> Tensor:
    y = x.cos()
    y.view(-1)[1:3].mul_(3)
    return y


def _out(x: Tensor) -> Tensor:
    y = torch.empty(3, 4)
    torch.sin(x, out=y)
    return y


def _leaf(x: Tensor) -> Tensor:
    y = x[None]
    y.requires_grad = True
    return y[0] * 2


def _leaf_in_place(x: Tensor) -> Tensor:
    return (x * 3).detach().requires_grad_() * 2


MADE_INSIDE = [_item, _in_place, _through_a_view, _out, _leaf, _leaf_in_place]


def _older(x: Tensor, older: Tensor) -> Tensor:
    older.add_(1)
    return x * older


def _view_of_older(x: Tensor, older: Tensor) -> Tensor:
    older[1:].view(-1)[2:].fill_(4)
    return x + older


def _older_becomes_leaf(x: Tensor, older: Tensor) -> Tensor:
    older.requires_grad_()
    return x * older


def _around(call: Callable[..., Any], *given: Tensor) -> Any:
    """What the call makes, and what it wrote to before the graph broke inside of it."""
    made = call(*given)
    print(end="")
    return made


@pytest.mark.parametrize("call", MADE_INSIDE)
@pytest.mark.parametrize("trained", [False, True])
def test_a_call_that_writes_to_what_it_has_made(call: Callable[..., Any], trained: bool) -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        before = (x * w).tanh() + 1
        inside = _around(call, x)
        return (before + inside).sin() * 2

    compiled = tatara.compile(program)
    for turn in range(5):
        before = tatara.stats()
        x, w = torch.linspace(-2, 2, 12).reshape(3, 4) + turn, torch.full((4,), 1.5, requires_grad=trained)
        other = w.detach().clone().requires_grad_(trained)
        with tatara.kernel_history() as history:
            ours = compiled(x, w)
        theirs = program(x.clone(), other)
        torch.testing.assert_close(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad
        if trained:
            ours.sum().backward()
            theirs.sum().backward()
            torch.testing.assert_close(w.grad, other.grad)
    after = tatara.stats()
    assert all(after[name] == before[name] for name in ("graphs", "breaks", "recompiles", "fallbacks"))
    assert len(history.launches) >= 2, "what is before the call, and what is behind it"
    assert not [each for each in report_of(compiled).breaks if "state changed" in str(each)]


@pytest.mark.parametrize("call", [_older, _view_of_older, _older_becomes_leaf])
def test_a_call_that_writes_to_what_is_older(call: Callable[..., Any]) -> None:
    def program(x: Tensor, argument: Tensor, made_before: bool) -> tuple[Tensor, Tensor]:
        older = x + 1 if made_before else argument
        inside = _around(call, x, older)
        return (older + inside).sin() * 2, older

    for made_before in (False, True):
        compiled = tatara.compile(program)
        for turn in range(4):
            x, argument = torch.linspace(-2, 2, 12).reshape(3, 4) + turn, torch.zeros(3, 4)
            other = argument.clone()
            ours, theirs = compiled(x, argument, made_before), program(x.clone(), other, made_before)
            torch.testing.assert_close(ours, theirs)
            torch.testing.assert_close(argument, other)
            assert [t.requires_grad for t in (*ours, argument)] == [t.requires_grad for t in (*theirs, other)]
            assert [t.is_leaf for t in (*ours, argument)] == [t.is_leaf for t in (*theirs, other)]
            assert (ours[1] is argument) == (theirs[1] is other)
