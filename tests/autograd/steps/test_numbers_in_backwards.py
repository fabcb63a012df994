"""Functions with a backward of the user's that computes with Python's numbers, which vary; and lengths of CTC as tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return -ctx.by * g, None


class Blend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        by = ctx.by * 2 if ctx.by > 0.25 else ctx.by / 3 + 1
        return g * by + x * (1 - by**2), None


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * g


class Measured(torch.autograd.Function):
    """A number of a tensor's in the backward: no arithmetic that could come before the function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        size = ctx.saved_tensors[0].abs().max().item() * 2 + ctx.by
        return g * size, None


def _reversed(h: Tensor, by: float) -> Tensor:
    return Reverse.apply(h, by).sin()


def _reversed_result(h: Tensor, by: float) -> Tensor:
    return Reverse.apply(Square.apply(h), by).sin()


def _twice(h: Tensor, by: float) -> Tensor:
    return Reverse.apply(Reverse.apply(h, by), by + 0.5).cos()


def _blended(h: Tensor, by: float) -> Tensor:
    return Blend.apply(h, by)


def _squared_view(h: Tensor, by: float) -> Tensor:
    return Square.apply(Reverse.apply(h, by)) * by


def _measured(h: Tensor, by: float) -> Tensor:
    return Measured.apply(h, by)


def _run(program: Callable[..., Tensor], whole: bool, compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)

    def forward(x: Tensor, by: float) -> Tensor:
        return program(model(x), by).mean()

    def step(x: Tensor, by: float) -> Tensor:
        model.zero_grad()
        loss = forward(x, by)
        loss.backward()
        return loss.detach()

    function = tatara.compile(step if whole else forward) if compiled else (step if whole else forward)
    found = []
    for i in range(7):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(i))
        loss = function(x, 0.1 * i)
        if not whole:
            model.zero_grad()
            loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    return found


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("program", [_reversed, _reversed_result, _twice, _blended, _squared_view, _measured])
def test_as_eager(program: Callable[..., Tensor], whole: bool) -> None:
    same(_run(program, whole, True), _run(program, whole, False), rtol=1e-5, atol=1e-6)
    if program is _measured:
        return
    # The comparison falls in two ways; the first float is a constant.
    assert tatara.stats()["breaks"] == 0 and tatara.stats()["graphs"] <= 4


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("lengths", [torch.tensor, list, tuple])
@pytest.mark.parametrize("batched", [True, False])
def test_ctc(reduction: str, lengths: Any, batched: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 6)

    def step(x: Tensor, y: Tensor, given: Any, wanted: Any) -> Any:
        model.zero_grad()
        logits = model(x).log_softmax(-1)
        loss = torch.nn.functional.ctc_loss(logits, y, given, wanted, reduction=reduction, zero_infinity=True)
        loss.sum().backward()
        return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    compiled = tatara.compile(step)
    for i in range(4):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(9, 3, 5, generator=generator) if batched else torch.randn(9, 5, generator=generator)
        y = torch.randint(1, 6, (3, 4) if batched else (4,), generator=generator)
        given, wanted = ([9, 8, 7], [4, 2, 1 + i % 3]) if batched else ([9 - i], [4])
        if not batched and lengths is torch.tensor:
            operands = (x, y, torch.tensor(given[0]), torch.tensor(wanted[0]))
        else:
            operands = (x, y, lengths(given), lengths(wanted))
        same(compiled(*operands), step(*operands), rtol=1e-4, atol=1e-5)
    assert lengths is not torch.tensor or tatara.stats()["breaks"] == 0
