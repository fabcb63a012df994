"""Products of few rows with a dequantised weight: one kernel of ours, whose error against float64 is at most eager's."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tatara

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

DEVICE = "cuda"
GROUP = 32


def int8(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w.to(x.dtype) * s[:, :1]))


def int4(x: Tensor, p: Tensor, s: Tensor) -> Tensor:
    w = torch.stack([p & 15, p >> 4], -1).reshape(p.shape[0], -1, GROUP).to(x.dtype)
    return F.linear(x, ((w - 8) * s[:, :, None]).reshape(p.shape[0], -1))


def nf4(x: Tensor, p: Tensor, s: Tensor) -> Tensor:
    table = torch.linspace(-1, 1, 16, device=x.device, dtype=x.dtype)
    places = torch.stack([p >> 4, p & 15], -1).reshape(p.shape[0], -1).long()
    return F.linear(x, (table[places].reshape(p.shape[0], -1, GROUP) * s[:, :, None]).reshape(p.shape[0], -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", [(4096, 4096), (1000, 1056), (257, 512)], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("function", [int8, int4, nf4])
def test_errors_are_at_most_eagers(
    function: Callable[..., Tensor], rows: int, sizes: tuple[int, int], dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    outer, inner = sizes
    words = inner if function is int8 else inner // 2
    kind, low = (torch.int8, -127) if function is int8 else (torch.uint8, 0)
    weight = torch.randint(low, 128, (outer, words), device=DEVICE, dtype=kind)
    scale = (torch.rand(outer, inner // GROUP, device=DEVICE) * 0.02 + 0.01).to(dtype)
    x = torch.randn(rows, inner, device=DEVICE, dtype=dtype)
    compiled = tatara.compile(function)
    compiled(x, weight, scale)
    with tatara.kernel_history() as history:
        ours = compiled(x, weight, scale)
    name = "thin_product" if dtype is torch.float32 else "weighed_product"  # where there are tensor cores
    assert sum(name in event.name or "thin_product" in event.name for event in history.launches) == 1
    assert len(history.launches) <= (3 if function is nf4 else 2)  # a copy of the activations, and NF4's table
    eager, exact = function(x, weight, scale), function(x.double(), weight, scale.double())
    assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride())
    error, known = (float((y.double() - exact).abs().max() / exact.abs().max()) for y in (ours, eager))
    assert error <= max(1.1 * known, torch.finfo(dtype).eps), (error, known)
