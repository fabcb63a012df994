"""Loops as people write them: rows written to a tensor that was made before, numbers that change with the turn, lists filled from the
back, stages that take a tensor apart. Each is a node of the graph, and gives eager's results in every call and every form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara

TURNS = 30
PROGRAMS: list[Any] = []


def _program(*sizes: tuple[int, ...], batched: bool = True) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        PROGRAMS.append(pytest.param(function, sizes, batched, id=function.__name__))
        return function

    return add


@_program((TURNS, 4), (TURNS, 4), (TURNS,), batched=False)
def rows_of_a_new_tensor(k, v, beta):
    state = k.new_zeros(4, 4)
    out = torch.zeros_like(v)
    for i in range(k.shape[0]):
        state = state + beta[i] * torch.outer(k[i], v[i] - k[i] @ state)
        out[i] = k[i] @ state
    return out


@_program((2, TURNS, 3), (3,), batched=False)
def columns_from_the_last_to_the_first(x, w):
    out = torch.empty_like(x)
    h = torch.zeros(2, 3)
    for t in reversed(range(x.shape[1])):
        h = torch.tanh(h * w + x[:, t])
        out[:, t] = h
    return out


@_program((TURNS, 3), batched=False)
def pairs_of_columns(x):
    out = torch.zeros(3, 2 * TURNS)
    h = torch.zeros(3)
    for t in range(TURNS):
        h = torch.sin(h + x[t])
        out[:, 2 * t : 2 * t + 2] = torch.stack([h, h * 2], 1)
    return out


@_program((2 * TURNS + 3, 3), batched=False)
def every_other_row_of_what_was_there(x):
    out = x * 2
    h = torch.zeros(3)
    for t in range(TURNS):
        h = torch.tanh(h + x[t])
        out[2 * t + 1] = h
    return out


@_program((TURNS, 3), batched=False)
def rows_that_are_added_to(x):
    out = torch.ones(TURNS + 2, 3)
    for t in range(TURNS):
        out[t + 1] += torch.sin(x[t])
    return out


@_program((TURNS, 3), batched=False)
def numbers_are_cast_to_the_rows(x):
    out = torch.zeros(TURNS, 3, dtype=torch.float64)
    h = torch.zeros(3)
    for t in range(TURNS):
        h = torch.tanh(h + x[t])
        out[t] = h
    return out


@_program((TURNS, 3))
def a_list_filled_from_the_front(x):
    out = []
    h = torch.zeros(3)
    for t in range(TURNS - 1, -1, -1):
        h = torch.tanh(h * 0.5 + x[t])
        out.insert(0, h)
    return torch.stack(out, 1)


@_program((TURNS, 3))
def a_list_turned_around(x):
    out = []
    h = torch.zeros(3)
    for row in x:
        h = torch.tanh(h * 0.5 + row)
        out.append(h[None])
    return torch.cat(out[::-1])


@_program((TURNS, 3))
def means_so_far(x):
    mean = torch.zeros(3)
    spread = torch.zeros(3)
    for count, row in enumerate(x, 1):
        d = row - mean
        mean = mean + d / count
        spread = spread + d * (row - mean)
    return mean, spread


@_program((6, 3), (6,))
def powers_of_numbers(x, y):
    w, m, v = torch.zeros(3), torch.zeros(3), torch.full((3,), 0.1)
    for t in range(1, TURNS + 1):
        g = x.T @ (x @ w - y) / 6
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        w = w - 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-3)
    return w


@_program((3,), (3,))
def stages_at_times(y, p):
    def rate(t, y):
        a, b, c = y
        return torch.stack([p[0] * (b - a), a * (p[1] - c) - b, a * b - p[2] * c]) + 0.1 * math.sin(t)

    ys = [y]
    for i in range(TURNS):
        t = 0.02 * i
        k = rate(t, y)
        y = y + 0.01 * (k + rate(t + 0.02, y + 0.02 * k))
        ys.append(y)
    return torch.stack(ys)


def _parts(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _loss(result: Any) -> torch.Tensor:
    return sum((part.double() * torch.linspace(-1, 1, part.numel()).view(part.shape)).sum() for part in _parts(result))


def _train(function: Any, given: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [x.clone().requires_grad_() for x in given]
    result = function(*leaves)
    return [*(part.detach() for part in _parts(result)), *torch.autograd.grad(_loss(result), leaves)]


def _forms(function: Any, batched: bool) -> dict[str, tuple[Any, Any]]:
    """The function's forms as functions of its arguments: compiled, and not."""

    def pushed(*given: torch.Tensor) -> Any:
        return torch.func.jvp(function, given, tuple(torch.ones_like(x) for x in given))

    def pulled(*given: torch.Tensor) -> Any:
        return torch.func.grad(lambda *x: _loss(function(*x)), argnums=tuple(range(len(given))))(*given)

    def mapped(first: torch.Tensor, *rest: torch.Tensor) -> Any:
        return torch.func.vmap(lambda x: function(x, *rest))(torch.stack([first, first * 1.1]))

    compiled = tatara.compile(function, fullgraph=True)
    forms: dict[str, tuple[Any, Any]] = {
        "forward": (compiled, function),
        "training": (lambda *x: _train(compiled, list(x)), lambda *x: _train(function, list(x))),
    }
    for form in (pushed, pulled, mapped) if batched else (pushed, pulled):
        forms[form.__name__] = (tatara.compile(form, fullgraph=True), form)
    return forms


def _flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [part for each in result for part in _flat(each)]


@pytest.mark.parametrize(("function", "sizes", "batched"), PROGRAMS)
def test_a_loop_program(function: Any, sizes: tuple[tuple[int, ...], ...], batched: bool) -> None:
    torch.manual_seed(0)
    given = [torch.rand(size) - 0.3 for size in sizes]
    for name, (ours, eager) in _forms(function, batched).items():
        for turn in range(3):  # a loop that writes too far is seen in the call behind
            now = [x * (1 + 0.1 * turn) for x in given]
            with tatara.kernel_history() as history:
                got = _flat(ours(*now))
            for one, other in zip(got, _flat(eager(*now)), strict=True):
                assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride()), name
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")
        assert any(event.name == "tatara::loop" for event in history.events), name


def test_rows_of_an_argument_are_written() -> None:
    def fill(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(3)
        for t in range(TURNS):
            h = torch.tanh(h + x[t])
            cache[t + 2] = h
        return h

    compiled = tatara.compile(fill, fullgraph=True)
    for _ in range(3):
        x = torch.randn(TURNS, 3)
        ours, eager = torch.ones(TURNS + 5, 3), torch.ones(TURNS + 5, 3)
        torch.testing.assert_close(compiled(ours, x), fill(eager, x))
        torch.testing.assert_close(ours, eager)


def test_gradients_reach_what_was_there() -> None:
    """A tensor of which all rows are written has a gradient of zeros in eager, not none."""

    def overwrite(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        out = x * 1.0
        h = torch.zeros(3)
        for t in range(TURNS):
            h = torch.tanh(h + rows[t])
            out[t] = h
        return out

    given = [torch.randn(TURNS, 3), torch.randn(TURNS, 3)]
    compiled = tatara.compile(overwrite, fullgraph=True)
    for _ in range(3):
        for one, other in zip(_train(compiled, given), _train(overwrite, given), strict=True):
            torch.testing.assert_close(one, other)


def _fed_by_itself(x: torch.Tensor, b: torch.Tensor) -> Any:
    h = x[0].clone()
    c = h + b
    seen = []
    for row in x:
        h, c = torch.sin(c * row), h * 0.5
        h, c = (c + torch.tanh(row)) * 0.5, (c + torch.sin(h)) * 0.5
        seen.append(h)
    return h, torch.stack(seen)


def _two_apart(x: torch.Tensor, b: torch.Tensor) -> Any:
    h, c, seen = x[0] * 1, b * 1, []
    for row in x:
        h, c = torch.sin(h * row), torch.cos(c + 0.1)
        seen.append(c)
    return h, c, torch.stack(seen)


@pytest.mark.parametrize("function", [_fed_by_itself, _two_apart])
@pytest.mark.parametrize("result", range(3))
def test_what_no_turn_reaches_has_no_gradient(function: Any, result: int) -> None:
    """A loop carries values together that do not depend on each other."""
    compiled = tatara.compile(function, fullgraph=True)
    for _ in range(3):
        given = [torch.randn(TURNS, 3), torch.randn(3)]
        found = []
        with tatara.kernel_history() as history:
            for each in (function, compiled):
                leaves = [x.clone().requires_grad_() for x in given]
                out = each(*leaves)
                out = out[min(result, len(out) - 1)]
                found.append(torch.autograd.grad(out.sum(), leaves, allow_unused=True))
        assert any(event.name == "tatara::loop" for event in history.events)
        for one, other in zip(*found, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(other, one)


def test_rows_without_gradients_stay_without() -> None:
    def partly(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(TURNS, 3)
        h = torch.zeros(3)
        for t in range(TURNS):
            h = torch.tanh(h + x[t])
            with torch.no_grad():
                out[t] = h
        return out.sum() + h.sum()

    x = torch.randn(TURNS, 3)
    compiled = tatara.compile(partly, fullgraph=True)
    for _ in range(3):
        ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(ours).backward()
        partly(eager).backward()
        torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.parametrize("detached", [False, True])
def test_gradients_in_each_turn(detached: bool) -> None:
    """Whether a pass asks about an earlier one or not."""

    def descend(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            if detached:
                w = w.detach().requires_grad_()
            loss = ((torch.tanh(x @ w) - y) ** 2).mean()
            (g,) = torch.autograd.grad(loss, w, create_graph=not detached)
            w = w - 0.1 * g
        return w

    torch.manual_seed(0)
    x, y = torch.randn(6, 3), torch.randn(6)
    compiled = tatara.compile(descend)
    for _ in range(3):
        ours, eager = (torch.ones(3, requires_grad=True) for _ in range(2))
        got, wanted = compiled(x, y, ours), descend(x, y, eager)
        assert got.requires_grad == wanted.requires_grad
        torch.testing.assert_close(got, wanted)
        if not detached:
            torch.testing.assert_close(
                torch.autograd.grad(got.sum(), ours), torch.autograd.grad(wanted.sum(), eager), rtol=1e-4, atol=1e-5
            )
