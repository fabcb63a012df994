"""Loops of tensors are one node of the graph: what they compute is what the written-out loop and eager compute."""

import random
from collections.abc import Callable

import pytest
import torch

import tatara

Program = Callable[..., torch.Tensor]


def _body(draw: random.Random) -> tuple[str, Program, int]:
    """A random loop over rows, with carried values, invariants, values of turns before and stacks; and a text of it."""
    ops = [draw.choice(["tanh", "sin", "sigmoid"]) for _ in range(3)]
    product, back, two, reverse, every = (draw.random() < 0.5 for _ in range(5))
    dim = draw.choice([0, 1])
    first = draw.randrange(3)

    def program(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows = x.shape[dim]
        outs = [h]
        c, before = h * 0.5, h
        for t in range(first, rows):
            at = rows - 1 - t if reverse else t
            row = x[at] if dim == 0 else x[:, at]
            g = row + (h @ w if product else h * w.mean(0))
            if back:
                g = g + 0.1 * before
            before = h
            h = getattr(torch, ops[0])(g + b) * 0.7
            if two:
                c = getattr(torch, ops[1])(c * 0.9 + h)
                h = h + 0.1 * getattr(torch, ops[2])(c)
            if every:
                outs.append(h)
        return torch.stack(outs, draw_dim) if every else h + c

    draw_dim = draw.choice([0, 1, -1])
    return f"{ops} {product=} {back=} {two=} {reverse=} {every=} {dim=} {first=} {draw_dim=}", program, dim


def _inputs(dim: int, rows: int) -> list[torch.Tensor]:
    torch.manual_seed(3)
    x = torch.randn(rows, 3, 4) if dim == 0 else torch.randn(3, rows, 4)
    return [x, torch.randn(3, 4), torch.randn(4, 4) * 0.3, torch.randn(4)]


def _run(program: Program, inputs: list[torch.Tensor], grad: bool) -> list[torch.Tensor]:
    if not grad:
        return [program(*inputs)]
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = program(*leaves)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    gradients = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)
    return [out.detach(), *(torch.zeros(()) if g is None else g for g in gradients)]


def _check(got: list[torch.Tensor], wanted: list[torch.Tensor], what: str) -> None:
    for ours, eager in zip(got, wanted, strict=True):
        assert ours.shape == eager.shape and ours.stride() == eager.stride() and ours.dtype == eager.dtype, what
        torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5, msg=what)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_random_loops(seed: int, grad: bool) -> None:
    what, program, dim = _body(random.Random(seed))
    inputs = _inputs(dim, 40)
    eager = _run(program, inputs, grad)
    rolled = tatara.compile(program, fullgraph=True)
    unrolled = tatara.compile(program, fullgraph=True, options={"disable": "roll_loops"})
    for _ in range(2):
        _check(_run(rolled, inputs, grad), eager, what)
        _check(_run(unrolled, inputs, grad), eager, what)


def _recurrent(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    outs = []
    for row in x:
        h = torch.tanh(row + h @ w)
        outs.append(h)
    return torch.stack(outs)


@pytest.mark.parametrize("grad", [False, True])
def test_kernels_do_not_grow_with_turns(grad: bool) -> None:
    counts = []
    for turns in (40, 160):
        x = torch.randn(turns, 2, 8)
        compiled = tatara.compile(_recurrent, dynamic=False)
        args = [x, torch.zeros(2, 8), torch.randn(8, 8) * 0.2]
        with tatara.kernel_history() as history:
            for _ in range(3):
                _run(compiled, args, grad)
        counts.append(history.launched)
        assert history.compiled < 20
        assert len([event for event in history.events if event.name == "tatara::loop"]) >= 2
    assert counts[0] == counts[1]


def test_batches_and_tangents() -> None:
    x, h, w = torch.randn(32, 3, 4), torch.randn(3, 4), torch.randn(4, 4) * 0.3
    batched = torch.func.vmap(_recurrent, in_dims=(1, 0, None))
    tangents = tuple(torch.ones_like(v) for v in (x, h, w))

    def pushed(*args: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(_recurrent, args, tangents)[1]

    for function in (batched, pushed):
        compiled = tatara.compile(function, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(x, h, w), function(x, h, w), rtol=1e-4, atol=1e-5)


def test_second_derivatives() -> None:
    def penalised(f: Program, x: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        leaves = [v.clone().requires_grad_() for v in (x, h, w)]
        first = torch.autograd.grad(f(*leaves).square().sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))

    x, h, w = torch.randn(30, 2, 4), torch.randn(2, 4), torch.randn(4, 4) * 0.3
    compiled = tatara.compile(_recurrent, fullgraph=True)
    for _ in range(2):
        for ours, eager in zip(penalised(compiled, x, h, w), penalised(_recurrent, x, h, w), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("step", ["sin", "product", "carried", "gated"])
def test_second_derivatives_of_what_gradients_save(step: str, every: bool) -> None:
    """Values that turns save for gradients are results of the loop when these are differentiated again."""

    def program(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        outs, c = [], h
        for t in range(len(x)):
            if step == "sin":
                h = torch.sin(x[t] + h @ w)
            elif step == "product":
                h = torch.tanh(x[t] + h @ w) * x[t]
            elif step == "carried":
                h = torch.sin(x[t] * h) * w[0] + h * 0.1
            else:
                c = torch.sigmoid(x[t] @ w) * c + torch.tanh(h @ w)
                h = torch.tanh(c) * torch.sigmoid(x[t])
            outs.append(h)
        return torch.stack(outs) if every else h

    def second(f: Program) -> list[torch.Tensor]:
        torch.manual_seed(1)
        leaves = [v.requires_grad_() for v in (torch.randn(30, 2, 4) * 0.5, torch.randn(2, 4), torch.randn(4, 4) * 0.2)]
        first = torch.autograd.grad(f(*leaves).square().sum(), leaves, create_graph=True, allow_unused=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first if g is not None), leaves))

    compiled, expected = tatara.compile(program, fullgraph=True), second(program)
    for _ in range(2):
        for ours, eager in zip(second(compiled), expected, strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-4)


def test_results_of_a_loop_depend_on_each_other() -> None:
    """In eager the last turn's value is a place of its own, which the stack's gradient goes through."""

    def both(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outs = []
        for row in x:
            h = torch.tanh(row + h @ w)
            outs.append(h)
        return torch.stack(outs), h

    x, h, w = torch.randn(30, 2, 4), torch.randn(2, 4), torch.randn(4, 4, requires_grad=True)
    compiled = tatara.compile(both, fullgraph=True)
    for _ in range(2):
        gradients = []
        for function in (both, compiled):
            stack, last = function(x, h, w)
            gradients.append(torch.autograd.grad(stack.sum(), last, retain_graph=True)[0])
            gradients.append(torch.autograd.grad(stack.sum() + last.sum(), w)[0])
        torch.testing.assert_close(gradients[0], gradients[2])
        torch.testing.assert_close(gradients[1], gradients[3], rtol=1e-4, atol=1e-4)


def test_what_needs_no_gradient_says_so() -> None:
    def two(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = torch.zeros(4), torch.zeros(4)
        for t in range(32):
            a, b = a * 0.9 + x[t], torch.tanh(b * w)
        return a * 2, b * 2

    x, w = torch.randn(32, 4), torch.randn(4, requires_grad=True)
    compiled = tatara.compile(two, fullgraph=True)
    for _ in range(2):
        assert [v.requires_grad for v in compiled(x, w)] == [v.requires_grad for v in two(x, w)]


def test_turns_that_differ_stay_as_they_are() -> None:
    def scheduled(x: torch.Tensor) -> torch.Tensor:
        for t in range(40):
            x = torch.sin(x) * (0.5 + 0.01 * t)
        return x

    def dropped(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = torch.nn.functional.dropout(x, 0.1) + 1
        return x

    x = torch.randn(5)
    for function in (scheduled, dropped):
        compiled = tatara.compile(function)
        for _ in range(3):
            torch.manual_seed(1)
            wanted = function(x)
            torch.manual_seed(1)
            torch.testing.assert_close(compiled(x), wanted)


def test_a_loop_inside_of_a_loop_and_one_behind_another() -> None:
    def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        first, second, h = [], [], torch.zeros(4)
        for t in range(30):
            h = torch.tanh(x[t] + h @ w)
            first.append(h)
        for t in range(30):
            h = torch.sigmoid(first[t] + h @ w)
            second.append(h)
        for _ in range(26):
            for _ in range(26):
                h = torch.sin(h) + 0.1
            h = h * w.diagonal()
        return torch.stack(second, 1) + h[:, None]

    x, w = torch.randn(30, 4), torch.randn(4, 4) * 0.3
    compiled = tatara.compile(layers, fullgraph=True)
    for grad in (False, True):
        for _ in range(2):
            _check(_run(compiled, [x, w], grad), _run(layers, [x, w], grad), "layers")


@pytest.mark.parametrize("kept", [False, True])
def test_inputs_written_to_before_the_pass(kept: bool) -> None:
    """Eager refuses a pass whose kept tensors were written to since, and no other."""

    def added(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(4)
        for t in range(30):
            h = torch.tanh(h * w + (x[t] * w if kept else x[t]))
        return h

    compiled = tatara.compile(added, fullgraph=True)
    for _ in range(2):
        outcomes = []
        for function in (added, compiled):
            torch.manual_seed(0)
            x, w = torch.randn(30, 4), torch.randn(4, requires_grad=True)
            out = function(x, w)
            x.mul_(2)
            try:
                out.sum().backward()
                outcomes.append(w.grad)
            except RuntimeError as error:
                outcomes.append(str(error)[:60])
        if isinstance(outcomes[0], str):
            assert outcomes[1] == outcomes[0]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-4, atol=1e-5)
