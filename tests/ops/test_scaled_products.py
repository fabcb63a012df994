"""`torch._scaled_mm` on CPUs: eager's own kernel, in a graph, under gradients and under vmap."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tatara


def small(rows: int, columns: int, dtype: torch.dtype = torch.float8_e4m3fn) -> Tensor:
    return torch.randn(rows, columns).to(dtype)


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    try:
        return f(*args)
    except Exception as error:
        return type(error), str(error).split("\n")[0]


def same(f: Callable[..., Any], *args: Any) -> None:
    compiled = tatara.compile(f)
    for _ in range(3):
        ours, eager = outcome(compiled, *args), outcome(f, *args)
        assert type(ours) is type(eager), (ours, eager)
        if isinstance(eager, Tensor):
            assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride())
            torch.testing.assert_close(ours.float(), eager.float(), rtol=0, atol=0)
        else:
            assert ours == eager


@pytest.mark.parametrize("out", [None, torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_results(out: torch.dtype | None, bias: bool) -> None:
    torch.manual_seed(1)
    added = torch.randn(96).to(out or torch.bfloat16) if bias else None

    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch._scaled_mm(x, w.t(), a, b, bias=added, out_dtype=out)

    same(f, small(64, 128), small(96, 128), torch.tensor(0.5), torch.tensor(2.0))


def test_other_scales_and_operands_say_what_eager_says() -> None:
    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch._scaled_mm(x, w, a, b, out_dtype=torch.bfloat16)

    one = torch.tensor(1.0)
    same(f, small(64, 128), small(96, 128).t(), torch.rand(64, 1), torch.rand(1, 96))
    same(f, small(64, 128), small(96, 64).t(), one, one)
    same(f, small(64, 128), small(96, 128).t(), torch.ones(2), one)
    same(f, torch.randn(64, 128), torch.randn(128, 96), one, one)


def test_gradients_say_what_eager_says() -> None:
    x, w = small(64, 128), small(96, 128)

    def f(a: Tensor) -> Tensor:
        y = torch._scaled_mm(x, w.t(), a, torch.tensor(1.0), out_dtype=torch.bfloat16)
        return torch.autograd.grad(y.float().sum(), a)[0]

    same(f, torch.tensor(0.5, requires_grad=True))


def test_under_vmap() -> None:
    w = small(96, 128)

    def f(scales: Tensor, x: Tensor) -> Tensor:
        return torch.vmap(lambda a: torch._scaled_mm(x, w.t(), a, torch.ones(()), out_dtype=torch.bfloat16))(scales)

    same(f, torch.rand(3), small(64, 128))


def test_the_newer_function() -> None:
    kinds = torch.nn.functional.ScalingType

    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.scaled_mm(x, w.t(), a, kinds.TensorWise, b, kinds.TensorWise) * 2

    def g(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.scaled_mm(x, w.t(), a, kinds.RowWise, b, kinds.RowWise) * 2

    same(f, small(64, 128), small(96, 128), torch.tensor(0.5), torch.tensor(2.0))
    same(g, small(64, 128), small(96, 128), torch.rand(64, 1), torch.rand(1, 96))
