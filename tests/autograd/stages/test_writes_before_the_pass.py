"""Tensors of the program that are written between the compiled forward and its backward: what eager has saved decides whether the
pass is refused, not what the compiled graph would like to save.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
ORDER = torch.tensor([2, 0, 1])

FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda b: b,
    "clone": lambda b: b.clone(),
    "contiguous": lambda b: b.contiguous(),
    "contiguous that copies": lambda b: b.t().contiguous(),
    "to the same type": lambda b: b.to(torch.float32),
    "to another type and back": lambda b: b.to(torch.float64).float(),
    "to with a copy": lambda b: b.to(torch.float32, copy=True),
    "reshape that copies": lambda b: b.t().reshape(9).view(3, 3),
    "reshape": lambda b: b.reshape(9).reshape(3, 3),
    "detach": lambda b: b.detach(),
    "detach and clone": lambda b: b.detach().clone(),
    "cat of one": lambda b: torch.cat([b]),
    "stack of rows": lambda b: torch.stack(list(b)),
    "index": lambda b: b[ORDER],
    "slices": lambda b: b[0:3, :],
    "transpose": lambda b: b.t(),
    "permute": lambda b: b.permute(1, 0),
    "expand": lambda b: b[0].expand(3, 3),
    "part of a split": lambda b: b.split(3)[0],
    "flip": lambda b: b.flip(0),
    "a product": lambda b: b * 2,
    "an exponential": lambda b: b.exp(),
    "a comparison": lambda b: (b > 0.5).float(),
    "a sum": lambda b: b.sum(0, keepdim=True).expand(3, 3),
    "unsqueezed": lambda b: b.unsqueeze(0)[0],
}

USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda q, f: q @ f,
    "product": lambda q, f: q * f,
    "product and exponential": lambda q, f: (q * f).exp(),
    "linear": lambda q, f: F.linear(q, f, f[0]),
    "a condition": lambda q, f: torch.where(f > 0.5, q, q * q),
    "sum and tanh": lambda q, f: (q + f).tanh(),
    "sum and gelu": lambda q, f: F.gelu(q + f) * 2,
    "layer norm": lambda q, f: F.layer_norm(q, (3,), f[0], f[1]),
    "bias of a layer norm": lambda q, f: F.layer_norm(q, (3,), None, f[1]),
    "quotient": lambda q, f: q / f,
    "power": lambda q, f: q**f,
    "softmax": lambda q, f: torch.softmax(q + f, 1) * q,
    "mean squared error": lambda q, f: F.mse_loss(q, f),
    "nothing that is saved": lambda q, f: q + f,
}

WRITES: dict[str, Callable[[Tensor], Any]] = {
    "none": lambda b: None,
    "product": lambda b: b.mul_(3),
    "one row": lambda b: b[0].zero_(),
    "detached": lambda b: b.detach().add_(1),
}


def _operands() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q = torch.rand(3, 3, generator=generator) + 0.2
    return q.requires_grad_(), torch.rand(3, 3, generator=generator) + 0.1


def _outcome(call: Callable[..., Any], write: Callable[..., Any], kind: str) -> list[Any]:
    q, b = _operands()
    if kind == "not contiguous":
        b = torch.stack([b, b], 2)[:, :, 0]
    if kind == "a parameter":
        b.requires_grad_()
    results = call(q, b)
    with torch.no_grad():
        write(b if kind != "a result" else results[1])
    found = [r.detach().clone() for r in results]
    try:
        results[0].sum().backward()
    except RuntimeError as error:
        assert "inplace" in str(error)
        return [*found, "refused"]
    return [*found, q.grad, b.grad]


def _check(program: Callable[..., Any], kind: str, calls: int = 2) -> None:
    compiled = tatara.compile(program)
    for name, write in WRITES.items():
        expected = _outcome(program, write, kind)
        for _ in range(calls if name == "none" else 1):
            found = _outcome(compiled, write, kind)
            assert (found[-1] == "refused") == (expected[-1] == "refused"), (name, kind)
            same(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", USES)
def test_an_operand_that_is_written_outside(form: str, use: str) -> None:
    for kind in ("plain", "not contiguous", "a parameter"):
        _check(lambda q, b: (USES[use](q, FORMS[form](b)),), kind)
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", USES)
def test_a_result_that_is_written_outside(form: str, use: str) -> None:
    def program(q: Tensor, b: Tensor) -> Any:
        made = b + 1
        return USES[use](q, FORMS[form](made)), made

    _check(program, "a result")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", USES)
def test_an_operand_that_is_written_inside(form: str, use: str) -> None:
    def program(q: Tensor, b: Tensor) -> Any:
        result = USES[use](q, FORMS[form](b))
        b.mul_(3)
        return (result,)

    expected = _outcome(program, WRITES["none"], "plain")
    compiled = tatara.compile(program)
    for _ in range(3):
        same(_outcome(compiled, WRITES["none"], "plain"), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("use", ["relu", "exp", "tanh", "sigmoid", "sin", "sqrt", "softplus", "silu"])
def test_the_result_itself_is_written(use: str) -> None:
    function = getattr(torch, use, None) or getattr(F, use)
    program: Callable[..., Any] = lambda q, b: (function(q * b),)  # noqa: E731
    compiled = tatara.compile(program)
    for write in WRITES.values():
        outcomes = []
        for call in (program, compiled, compiled):
            q, b = _operands()
            (result,) = call(q, b)
            loss = result.sum()
            with torch.no_grad():
                write(result)
            try:
                loss.backward()
            except RuntimeError as error:
                assert "inplace" in str(error)
                outcomes.append("refused")
            else:
                outcomes.append(q.grad)
        same(outcomes[1:], [outcomes[0]] * 2, rtol=1e-3, atol=1e-5)


def test_a_sum_whose_operand_is_written_behind_which_all_is_saved_by_results() -> None:
    _check(lambda q, b: (((q.exp() + b) * 2).relu().sigmoid(),), "plain")


def test_second_derivatives_read_results_of_the_first_call() -> None:
    program: Callable[..., Any] = lambda x: (lambda h: (h, h * 2, (h * x).sum()))(x.sin())  # noqa: E731
    compiled = tatara.compile(program)
    for seed in range(3):
        gradients = []
        for call in (program, compiled):
            x = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
            total = sum((each * each).sum() for each in call(x))
            (first,) = torch.autograd.grad(total, x, create_graph=True)
            gradients.append((first.detach(), *torch.autograd.grad((first * first).sum(), x)))
        same(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
