"""`register_hook` on a tensor made inside of compiled code: the hook is part of the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Function = Callable[[torch.Tensor], Any]


def inputs(size: int = 4) -> torch.Tensor:
    torch.manual_seed(size)
    return torch.randn(size, 4, requires_grad=True)


def by_backward(function: Function) -> Function:
    """Loss and gradient, the backward outside of the function."""

    def run(x: torch.Tensor) -> Any:
        loss = function(x)
        loss.backward()
        return loss.detach(), x.grad

    return run


def check(function: Function, breaks: int | None = 0, make: Callable[[Function], Function] = by_backward) -> None:
    sizes = (4, 4, 5, 6)
    expected = [make(function)(inputs(size)) for size in sizes]
    tatara.reset()
    with counts() as grown:
        compiled = make(tatara.compile(function))
        same(expected, [compiled(inputs(size)) for size in sizes])
    assert grown["breaks"] > 0 if breaks is None else grown["breaks"] == breaks
    assert grown["fallbacks"] == 0


HOOKS: dict[str, Callable[[torch.Tensor], Any]] = {
    "scale": lambda g: g * 3,
    "nothing": lambda g: None,
    "itself": lambda g: g,
    "clamp": lambda g: g.clamp(-0.1, 0.1),
    "norm": lambda g: g / g.norm(),
    "zeros": torch.zeros_like,
    "noise": lambda g: g + torch.randn(g.shape),
}


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_hook(hook: Callable[[torch.Tensor], Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(hook)
        return (y.sin() * y).sum()

    check(function)


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_hook_in_a_whole_step(hook: Callable[[torch.Tensor], Any]) -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        y.register_hook(hook)
        (y.sin() * y).sum().backward()
        found, x.grad = x.grad, None
        return found

    check(function, make=lambda f: f)


def test_a_hook_that_reads_values_of_the_forward() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y, mask = x.exp(), x.detach() > 0
        y.register_hook(lambda g: g * mask)
        return y.square().sum()

    check(function)


def test_second_derivatives_go_through_a_hook() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        y.register_hook(lambda g: g * g)
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return first.detach(), second

    check(function, make=lambda f: f)


def test_clipped_states_of_a_recurrent_cell() -> None:
    torch.manual_seed(0)
    cell = nn.GRUCell(4, 4)

    def function(x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x)
        for _ in range(3):
            state = cell(x, state)
            state.register_hook(lambda g: g.clamp(-0.05, 0.05))
        return state.sum()

    check(function)


def test_a_handle_that_is_kept() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        handle = y.register_hook(lambda g: g * 3)
        loss = y.sin().sum()
        handle.remove()
        return loss

    check(function, breaks=None)


def test_two_hooks_are_called_in_their_order() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 3)
        y.register_hook(lambda g: g + 1)
        return y.sin().sum()

    check(function, breaks=None)


def test_a_hook_on_a_tensor_that_was_used_before() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.sin()
        y.register_hook(lambda g: g * 3)
        return (z * y).sum()

    check(function, breaks=None)


def test_a_hook_before_a_write() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 3)
        y.add_(1).mul_(5)
        return y.sin().sum()

    check(function)


@pytest.mark.smoke
def test_a_hook_on_a_view() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y[1:]
        z.register_hook(lambda g: g * 3)
        return y.sin().sum() + z.cos().sum()

    check(function)


def test_a_hook_on_a_result_that_is_returned() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).sum()
        y.register_hook(lambda g: g * 3)
        return y

    check(function)


def test_a_hook_that_is_seen() -> None:
    def run(compiled: bool) -> Any:
        seen: list[Any] = []

        def function(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y.register_hook(lambda g: seen.append(g.sum().item()))
            return y.sin().sum()

        call = tatara.compile(function) if compiled else function
        for size in (4, 4, 5):
            call(inputs(size)).backward()
        return seen

    assert run(True) == pytest.approx(run(False))


@pytest.mark.parametrize(
    "hook", [lambda g: g[0], lambda g: "no tensor", lambda g: g.no_such_method()], ids=["sizes", "type", "exception"]
)
def test_wrong_hooks_are_eagers_errors(hook: Callable[[torch.Tensor], Any]) -> None:
    def run(compiled: bool) -> Any:
        def function(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y.register_hook(hook)
            return y.sin().sum()

        call = tatara.compile(function) if compiled else function
        said = []
        for _ in range(2):
            x = inputs()
            with pytest.raises((RuntimeError, TypeError, AttributeError)) as caught:
                call(x).backward()
            said.append((caught.type, str(caught.value), x.grad))
        return said

    assert run(True) == run(False)


def test_a_tensor_without_gradient() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.detach().mul(2).register_hook(lambda g: g)
        return x

    with pytest.raises(RuntimeError) as expected:
        function(inputs())
    with pytest.raises(RuntimeError) as actual:
        tatara.compile(function)(inputs())
    assert str(expected.value) == str(actual.value)
