"""Products of 8-bit floats: scales of operands, of rows and of blocks, sums by blocks, and what is done with their elements."""

from collections.abc import Callable, Iterator

import pytest
import torch
from test_gpu_products import run
from torch import Tensor
from torch.nn.functional import relu

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
)

DEVICE = "cuda"
# Such that kernels of ours are chosen.
SHAPES = [(4000, 1056, 4096), (4097, 1040, 4112), (16384, 768, 3072), (4096, 4096, 4096)]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(7)
    yield


def small(rows: int, columns: int, dtype: torch.dtype = torch.float8_e4m3fn) -> Tensor:
    return torch.randn(rows, columns, device=DEVICE).to(dtype)


def near_eager(f: Callable[..., Tensor], *args: Tensor, ours: int = 1) -> None:
    """Eager's kernels sum blocks of 128 in float32, too; what is left is the order of scales and one rounding of the result."""
    result, eager = run(f, *args, ours=ours), f(*args)
    assert (result.dtype, result.shape, result.stride()) == (eager.dtype, eager.shape, eager.stride())
    eps = 2**-7 if eager.dtype == torch.bfloat16 else 2**-10
    torch.testing.assert_close(result.float(), eager.float(), rtol=eps, atol=float(eager.float().abs().max()) * 1e-3)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_scale_of_each_operand(shape: tuple[int, int, int], fast: bool) -> None:
    rows, inner, columns = shape
    bias = torch.randn(columns, device=DEVICE).bfloat16()

    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        y = torch._scaled_mm(x, w.t(), a, b, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=fast)
        return relu(y) * 0.5 + y

    a, b = torch.tensor(0.25, device=DEVICE), torch.tensor([[3.0]], device=DEVICE)
    near_eager(f, small(rows, inner), small(columns, inner), a, b, bias)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scales_of_rows_and_columns(shape: tuple[int, int, int], fast: bool) -> None:
    rows, inner, columns = shape

    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return relu(torch._scaled_mm(x, w.t(), a, b, out_dtype=torch.bfloat16, use_fast_accum=fast)) * 0.5

    a, b = torch.rand(rows, 1, device=DEVICE) + 0.5, torch.rand(1, columns, device=DEVICE) + 0.5
    near_eager(f, small(rows, inner), small(columns, inner), a, b)


@pytest.mark.parametrize("types", ["e4m3fn e5m2", "e5m2 e4m3fn"])
@pytest.mark.parametrize("out", [torch.float16, torch.float32], ids=str)
def test_both_types(types: str, out: torch.dtype) -> None:
    left, right = (getattr(torch, "float8_" + name) for name in types.split())

    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return relu(torch._scaled_mm(x, w.t(), a, b, out_dtype=out)) * 0.5

    one = torch.ones((), device=DEVICE)
    near_eager(f, small(4096, 1024, left), small(4096, 1024, right), one, one)


def test_quantised_inside() -> None:
    """The scale and the 8-bit operand are computed in the same program, and stored before the copy engine reads them."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        scale = 448 / x.abs().amax().float().clamp(min=1e-12)
        small = (x.float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        one = torch.ones((), device=x.device)
        return relu(torch._scaled_mm(small, w.t(), scale.reciprocal(), one, out_dtype=torch.bfloat16)) * 0.5

    near_eager(f, torch.randn(4096, 1024, device=DEVICE).bfloat16(), small(4096, 1024))


def block_scales(rows: int, inner: int, columns: int) -> tuple[Tensor, Tensor]:
    left = (torch.rand(inner // 128, rows, device=DEVICE) + 0.5).t()
    return left, (torch.rand(columns // 128, inner // 128, device=DEVICE) + 0.5).t()


@pytest.mark.parametrize("shape", [(16384, 512, 4096), (4000, 512, 8192)], ids=str)
def test_scales_of_blocks(shape: tuple[int, int, int]) -> None:
    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return relu(torch._scaled_mm(x, w.t(), a, b, out_dtype=torch.bfloat16)) * 0.5

    rows, inner, columns = shape
    try:
        f(small(rows, inner), small(columns, inner), *block_scales(*shape))
    except RuntimeError as error:
        pytest.skip(f"this torch has no scales of blocks: {error}")
    near_eager(f, small(rows, inner), small(columns, inner), *block_scales(*shape))


def test_what_is_not_taken_is_the_hosts() -> None:
    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch._scaled_mm(x, w.t(), a, b, out_dtype=torch.float8_e4m3fn).float() * 0.5

    one = torch.ones((), device=DEVICE)
    near_eager(f, small(1024, 1024), small(1024, 1024), one * 0.01, one, ours=0)


@pytest.mark.parametrize("rows", [False, True])
def test_the_newer_function(rows: bool) -> None:
    if not hasattr(torch.nn.functional, "scaled_mm"):
        pytest.skip("this torch has no scaled_mm")
    kind = torch.nn.functional.ScalingType.RowWise if rows else torch.nn.functional.ScalingType.TensorWise

    def f(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return relu(torch.nn.functional.scaled_mm(x, w.t(), a, kind, b, kind)) * 0.5

    a, b = (torch.rand(4096, 1), torch.rand(1, 4096)) if rows else (torch.rand(()), torch.rand(()))
    near_eager(f, small(4096, 1024), small(4096, 1024), a.to(DEVICE), b.to(DEVICE))
