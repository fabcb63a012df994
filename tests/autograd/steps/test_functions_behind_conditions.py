"""An autograd.Function of the program's behind a condition that a tensor decides, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * ctx.factor, None


def _result(x: Any) -> Any:
    if (x > 100).any():
        raise ValueError("too large")
    return Scaled.apply(x, 2.0) + 1


def _either(x: Any) -> Any:
    if (x > 50).any():
        return Scaled.apply(x, 3.0) * 2
    return Scaled.apply(x, 2.0) * x


def _step(x: Any) -> Any:
    if not (x > 0).all():
        x = x + 1
    return torch.autograd.grad(Scaled.apply(x, 2.0).pow(2).sum(), x)[0]


def _twice(x: Any) -> Any:
    y = Scaled.apply(x, 2.0)
    if (x > 50).any():
        y = Scaled.apply(y, 0.5)
    return y.sin()


FORMS = [_result, _either, _step, _twice]


def _outcome(f: Callable[..., Any], value: float) -> list[Any]:
    x = torch.arange(4.0).add_(value).requires_grad_()
    try:
        y = f(x)
    except (ValueError, RuntimeError) as error:
        return [type(error)]
    if not y.requires_grad:
        return [y]
    y.sum().backward()
    return [y.detach(), x.grad]


@pytest.mark.parametrize("f", FORMS, ids=lambda f: f.__name__)
def test_as_eager(f: Callable[..., Any]) -> None:
    compiled = tatara.compile(f)
    for value in (1.0, 2.0, 3.0, 60.0, 4.0, 70.0, 101.0, -5.0, 5.0, -6.0, 80.0):
        for a, b in zip(_outcome(compiled, value), _outcome(f, value), strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b)
            else:
                assert a == b


@pytest.mark.parametrize("f", [_result, _step], ids=lambda f: f.__name__)
def test_no_break(f: Callable[..., Any]) -> None:
    compiled = tatara.compile(f)
    with counts() as count:
        for value in (1.0, 2.0, 3.0):
            _outcome(compiled, value)
    assert count["breaks"] == 0
    assert count["graphs"] == 1
