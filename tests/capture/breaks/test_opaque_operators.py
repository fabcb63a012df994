"""Operators of the user, and of libraries, that the registry lacks: steps inside of a graph, which the host runs as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

CALLS: list[float] = []


@torch.library.custom_op("tatara_tests::noted", mutates_args=())
def noted(x: torch.Tensor, factor: float) -> torch.Tensor:
    CALLS.append(factor)
    return x * factor


@torch.library.custom_op("tatara_tests::moody", mutates_args=())
def moody(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 1e3:
        raise ValueError("too large")
    return x.new_zeros(3) if x.sum() < -1e3 else x * 2


@torch.library.custom_op("tatara_tests::parts", mutates_args=())
def parts(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:n].clone(), x.sum(0)


@torch.library.custom_op("tatara_tests::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x)


@torch.library.custom_op("tatara_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@torch.library.custom_op("tatara_tests::increment", mutates_args=("x",))
def increment(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("tatara_tests::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def _keep(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


sine.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=_keep)
for each in (moody, noisy, sine):
    each.register_fake(torch.empty_like)
noted.register_fake(lambda x, factor: torch.empty_like(x))
parts.register_fake(lambda x, n: (x.new_empty(n, *x.shape[1:]), x.new_empty(x.shape[1:])))

_library = torch.library.Library("tatara_tests", "FRAGMENT")
_library.define("same(Tensor x) -> Tensor")
_library.impl("same", lambda x: x, "CompositeExplicitAutograd")
_library.define("says_new(Tensor x) -> Tensor")
_library.impl("says_new", lambda x: x, "CPU")
_library.impl("says_new", torch.empty_like, "Meta")


def _reads_what_is_shared(x: torch.Tensor) -> torch.Tensor:
    twice = x * 2
    same = torch.ops.tatara_tests.says_new(twice)
    others = [(x + i).sin() for i in range(4)]
    return same + sum(others)


PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    # the program, and whether it is one graph where nothing is differentiated
    "called twice": (lambda x: noted(x.sin(), 2.0) * 1 + noted(x + 1, 3.0), True),
    "result not needed": (lambda x: (noted(x, 5.0), x.cos() * 2)[1], True),
    "same call again": (lambda x: noted(x, 2.0) + noted(x, 2.0), True),
    "several results": (lambda x: sum(t.sum() for t in parts(x * 2, 2)) * 2, True),
    "random numbers": (lambda x: noisy(torch.rand_like(x) + x * 2) * torch.rand_like(x), True),
    "size of data": (lambda x: positive(x * 2) + 1, False),
    "writes": (lambda x: (lambda y: (increment(y), y * 2)[1])(x * 1), False),
    "gives its operand": (lambda x: torch.ops.tatara_tests.same(x * 2).add(1), False),
    "writes through": (lambda x: torch.ops.tatara_tests.same(x).mul_(2) + 1, False),
    "memory of an operand": (lambda x: torch.ops.tatara_tests.says_new(x * 2) + 1, False),
    "memory used again": (_reads_what_is_shared, False),
    "derivative": (lambda x: sine(x * 2) * 3, True),
    "all overloads": (lambda x: torch.ops.tatara_tests.noted(x * 3, factor=2.0) + 1, True),
    "one overload": (lambda x: torch.ops.tatara_tests.noted.default(x * 3, 2.0) + 1, True),
    "batch": (lambda x: torch.func.vmap(lambda row: torch.ops.tatara_tests.sine(row * 2))(x) + 1, False),
}


def _outcome(function: Callable[..., Any], x: torch.Tensor, needs: bool) -> tuple[Any, ...]:
    """What a program can tell of a call: result, what it wrote, calls of the operator, random numbers, gradient."""
    torch.manual_seed(0)
    CALLS.clear()
    given = x.clone().requires_grad_(needs)
    operand = given * 1 if needs else given
    try:
        result = function(operand)
    except Exception as error:
        return type(error).__name__, str(error), tuple(CALLS)
    gradient = None
    if needs and result.requires_grad:
        try:
            gradient = torch.autograd.grad(result.sum(), given, allow_unused=True)[0]
        except RuntimeError as error:  # of an operator without a derivative
            gradient = str(error)
    return result.detach(), operand.detach(), tuple(CALLS), torch.rand(2), gradient, result.requires_grad


def _compare(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for a, b in zip(actual, expected, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        else:
            assert a == b


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["inference", "gradients", "dynamic"])
def test_as_eager(name: str, how: str) -> None:
    program, whole = PROGRAMS[name]
    compiled = tatara.compile(program, dynamic=True) if how == "dynamic" else tatara.compile(program)
    needs = how == "gradients"
    with torch.set_grad_enabled(needs), counts() as grown:
        for call in range(3):
            x = torch.randn(4 + (call if how == "dynamic" else 0), 5)
            expected, actual = _outcome(program, x, needs), _outcome(compiled, x, needs)
            _compare(actual, expected)
    assert grown["fallbacks"] == 0
    if whole and not needs:
        assert grown["graphs"] == (3 if how == "dynamic" else 1)  # such an operator decides by sizes
        assert grown["breaks"] == 0 and (how == "dynamic" or grown["host_calls"] >= 2)


def test_errors_and_other_results_are_eagers() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return moody(x * 1) * 2 + 1

    compiled = tatara.compile(program)
    for value in (1.0, 1.0, 2000.0, 1.0, -2000.0, 1.0):
        x = torch.full((4,), value)
        _compare(_outcome(compiled, x, False), _outcome(program, x, False))


def test_an_operator_may_keep_what_it_is_given_and_what_it_gives() -> None:
    """Memory of a plan is written over by later steps and calls; what the operator has seen stays as it was."""
    kept: list[torch.Tensor] = []

    @torch.library.custom_op("tatara_tests::keeps", mutates_args=())
    def keeps(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result = x * weight
        kept.extend((x, weight, result))
        return result

    keeps.register_fake(lambda x, weight: torch.empty_like(x))

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for i in range(4):
            x = (keeps((x + i).sin() * 2, weight.t()) * 3).cos() + x
        return x

    compiled = tatara.compile(program)
    seen = []
    for function in (program, compiled):
        kept.clear()
        with torch.no_grad():
            for call in range(4):
                torch.manual_seed(call)
                function(torch.randn(64, 64), torch.randn(64, 64))
                torch.randn(1000, 64)
        seen.append([t.clone() for t in kept])
    for ours, theirs in zip(*seen, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)  # memory written over would be far off
