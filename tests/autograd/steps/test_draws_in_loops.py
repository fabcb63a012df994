"""Random numbers in loops that become one node: eager's bits in eager's order, and few operators in the compiled graph."""

import random
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import tatara

Program = Callable[..., torch.Tensor]

X = torch.linspace(-1, 1, 60 * 12).reshape(60, 3, 4)
W = torch.linspace(-0.5, 0.5, 16).reshape(4, 4)


def dropout(x, w):
    h, out = x.new_zeros(3, 4), []
    for row in x:
        h = functional.dropout(torch.tanh(row + h @ w), 0.3)
        out.append(h)
    return torch.stack(out)


def three_draws(x, w):
    h, first = x.new_zeros(3, 4), torch.rand(3, 4)
    for t in range(len(x)):
        h = functional.dropout(torch.tanh(functional.dropout(x[t], 0.1) + h @ w), 0.2) + torch.randn(3, 4) * 0.01
    return h + first + torch.rand(4)


def like_a_tensor(x, w):
    y = x[0]
    for t in range(len(x)):
        y = y - 0.01 * y @ w + 0.1 * torch.randn_like(y) * torch.rand_like(x[t])
    return y


def drawn_in_place(x, w):
    y = x[0]
    for _ in range(60):
        y = torch.tanh(y @ w + torch.empty(3, 4).normal_(0.5, 0.1))
    return y


def two_loops(x, w):
    y = x[0]
    for _ in range(40):
        y = torch.tanh(y @ w + torch.randn(3, 4))
    for _ in range(40):
        y = torch.sin(y + torch.rand(3, 4))
    return y


def decided_by_numbers(x, w):
    y = x[0]
    for _ in range(60):
        y = torch.where(torch.rand(3, 4) < 0.5, torch.tanh(y @ w), y)
    return y


def by_values(x, w):
    """Of what turns compute: is drawn in its turn."""
    h = x[0]
    for row in x:
        h = torch.tanh(row + h @ w) + 0.1 * torch.bernoulli(torch.sigmoid(h)).detach() + torch.randn(3, 4)
    return h


def states_between(x, w):
    y, state = x[0], torch.get_rng_state()
    for t in range(60):
        y = torch.tanh(y @ w + torch.randn(3, 4))
        if t == 29:
            torch.set_rng_state(state)
    return y


def _run(program: Program, grad: bool, seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    leaves = [X.clone().requires_grad_(grad), W.clone().requires_grad_(grad)]
    out = program(*leaves)
    state = torch.get_rng_state()
    if not grad:
        return [out, state]
    gradients = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
    return [out.detach(), state, *(torch.zeros(()) if g is None else g for g in gradients)]


def _check(program: Program, grad: bool, what: str = "") -> None:
    compiled = tatara.compile(program)
    plain = tatara.compile(program, options={"disable": "draw_ahead"})
    for call in range(3):
        expected = _run(program, grad, call)
        for ours in (_run(compiled, grad, call), _run(plain, grad, call)):
            assert torch.equal(ours[1], expected[1]), what
            for one, other in zip(ours, expected, strict=True):
                assert one.shape == other.shape and one.stride() == other.stride() and one.dtype == other.dtype
                if one.is_floating_point():
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, msg=what)


PROGRAMS = {
    f.__name__: f
    for f in (
        dropout,
        three_draws,
        like_a_tensor,
        drawn_in_place,
        two_loops,
        decided_by_numbers,
        by_values,
        states_between,
    )
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_draws(name: str, grad: bool) -> None:
    _check(PROGRAMS[name], grad)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["dropout", "three_draws", "like_a_tensor", "drawn_in_place", "two_loops"])
def test_loops_with_draws_are_nodes(name: str, grad: bool) -> None:
    """No turn is a call of its own."""
    compiled = tatara.compile(PROGRAMS[name])
    with tatara.kernel_history() as history:
        _run(compiled, grad, 0)
    names = [event.name for event in history.events]
    assert "tatara::draws" in names and "tatara::loop" in names
    assert history.launched < 40 and len(names) < 40, names


def test_no_gradients() -> None:
    compiled = tatara.compile(dropout)
    for seed in range(3):
        with torch.no_grad():
            expected, ours = _run(dropout, False, seed), _run(compiled, False, seed)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_second_derivatives() -> None:
    def second(f: Program) -> torch.Tensor:
        torch.manual_seed(5)
        x, w = X.clone(), W.clone().requires_grad_()
        (g,) = torch.autograd.grad(f(x, w).square().sum(), w, create_graph=True)
        return torch.autograd.grad(g.square().sum(), w)[0]

    compiled = tatara.compile(dropout)
    for _ in range(3):
        torch.testing.assert_close(second(compiled), second(dropout), rtol=1e-3, atol=1e-3)


def _generated(seed: int) -> tuple[str, Program]:
    draw = random.Random(seed)
    kinds = [draw.choice(["dropout", "randn", "like", "where", "none"]) for _ in range(draw.randrange(1, 4))]
    before, inner, every = (draw.random() < 0.4 for _ in range(3))

    def one(kind: str, h: torch.Tensor) -> torch.Tensor:
        if kind == "dropout":
            return functional.dropout(h, 0.25)
        if kind == "randn":
            return h + 0.1 * torch.randn(3, 4)
        if kind == "like":
            return h * torch.rand_like(h)
        if kind == "where":
            return torch.where(torch.rand(3, 4) < 0.5, h, torch.sin(h))
        return h * 0.9

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.rand(3, 4) if before else x[0]
        out = []
        for row in x:
            h = torch.tanh(h @ w + row)
            for _ in range(2 if inner else 1):
                for kind in kinds:
                    h = one(kind, h)
            out.append(h)
        return torch.stack(out) if every else h

    return f"{kinds} {before=} {inner=} {every=}", program


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_random_loops_with_draws(seed: int, grad: bool) -> None:
    what, program = _generated(seed)
    _check(program, grad, what)


def test_compiling_the_first_call_draws_nothing():
    def f(b):
        draws, h = [], b
        for _ in range(30):
            r = torch.randn(3, 4)
            draws.append(r)
            h = h * 0.5 + r.sum()
        return h, torch.stack(draws)

    compiled = tatara.compile(f)
    for _ in range(3):
        results = []
        for function in (f, compiled):
            torch.manual_seed(3)
            results.append((*function(torch.ones(2, requires_grad=True)), torch.get_rng_state()))
        for expected, got in zip(*results, strict=True):
            torch.testing.assert_close(got, expected)
