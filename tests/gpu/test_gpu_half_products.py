"""Products of half types in kernels of ours: values, every layout of the operands, and what is done with their elements."""

from collections.abc import Callable, Iterator

import pytest
import torch
from test_gpu_products import products, run
from torch import Tensor

import tatara

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
)

DEVICE = "cuda"
HALVES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(7)
    yield


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.float16, turned: bool = False) -> Tensor:
    made = (
        torch.randn(columns, rows, device=DEVICE, dtype=dtype).T
        if turned
        else torch.randn(rows, columns, device=DEVICE, dtype=dtype)
    )
    return made / columns**0.5


def check(f: Callable[..., Tensor], *args: Tensor, ours: int = 1) -> None:
    """The largest error is at most eager's, beside one rounding."""
    result, eager = run(f, *args, ours=ours), f(*args)
    exact = f(*(x.double() for x in args))
    assert (result.dtype, result.shape, result.stride()) == (eager.dtype, eager.shape, eager.stride())
    scale = exact.abs().max()
    error, known = ((x.double() - exact).abs().max() / scale for x in (result, eager))
    assert error <= known + torch.finfo(result.dtype).eps, (float(error), float(known))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "shape", [(4096, 1024, 4096), (2048, 512, 8192), (16384, 768, 3072), (4000, 520, 4096), (4097, 1000, 4096)], ids=str
)
def test_rows_times_rows(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = shape
    check(lambda a, b: torch.relu(a @ b.T), matrix(rows, inner, dtype), matrix(columns, inner, dtype))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_every_layout(left: bool, right: bool) -> None:
    x, w = matrix(8192, 1536, turned=left), matrix(1536, 8192, turned=right)
    check(lambda a, b: torch.relu(a @ b), x, w)
    # Parts of larger matrices, which begin on 16 bytes.
    big, wide = matrix(8400, 1600, turned=left), matrix(1600, 8400, turned=right)
    check(lambda a, b: torch.relu(a[16 : 16 + 8192, 8 : 8 + 1536] @ b[8 : 8 + 1536, 16 : 16 + 8192]), big, wide)


def test_what_the_copy_engine_does_not_take_is_the_hosts() -> None:
    x, w = matrix(4096, 1024), matrix(4096, 1024)
    check(lambda a, b: torch.relu(a[:, 1:1017] @ b[:, 1:1017].T), x, w, ours=0)
    check(lambda a, b: torch.relu(a[:, :1003] @ b[:, :1003].T), x, w, ours=0)


def test_batches() -> None:
    x, w = torch.randn(8, 2048, 1024, device=DEVICE).half() / 32, torch.randn(8, 2048, 1024, device=DEVICE).half() / 32
    check(lambda a, b: torch.relu(torch.bmm(a, b.mT)), x, w)
    check(lambda a, b: torch.relu(torch.bmm(a, b[:1].mT.expand(8, -1, -1))), x, w)


def test_sums_and_residuals_are_part_of_the_kernel() -> None:
    x, w = matrix(4096, 1024), matrix(4096, 1024)
    bias, residual = torch.randn(4096, device=DEVICE).half(), matrix(4096, 4096)

    def layer(x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, w, bias) + residual

    check(layer, x, w, bias, residual)
    compiled = tatara.compile(layer)
    compiled(x, w, bias, residual)
    with tatara.kernel_history() as history:
        compiled(x, w, bias, residual)
    assert (products(history), len(history.launches)) == (1, 1)


def test_infinities_and_nan_are_eagers() -> None:
    x, w = matrix(4096, 1024), matrix(4096, 1024)
    x[5, 7], x[9, 3], w[100, 50] = torch.inf, -torch.inf, torch.nan
    x[20], w[30] = 6e4, 6e4
    f = lambda a, b: torch.relu(a @ b.T)  # noqa: E731
    result, eager = run(f, x, w), f(x, w)
    assert torch.equal(torch.isfinite(result), torch.isfinite(eager))
    odd = ~torch.isfinite(eager)
    assert torch.equal(result[odd].nan_to_num(7), eager[odd].nan_to_num(7))


def test_the_same_bits_each_time_and_operands_that_move() -> None:
    compiled = tatara.compile(lambda a, b: torch.relu(a @ b.T))
    for _ in range(6):
        x, w = matrix(4096, 1024), matrix(4096, 1024)
        first = compiled(x, w)
        for _ in range(5):
            assert torch.equal(compiled(x, w), first)
        exact = torch.relu(x.double() @ w.double().T)
        assert (first.double() - exact).abs().max() <= 1e-3 * exact.abs().max()


def test_training() -> None:
    layer = (
        torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).to(DEVICE).half()
    )
    x = matrix(8192, 1024).requires_grad_()
    results = []
    for f in (layer, tatara.compile(layer)):
        layer.zero_grad()
        x.grad = None
        f(x).square().mean().mul(1000).backward()
        results.append([p.grad.clone() for p in (x, *layer.parameters())])
    for eager, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2 * float(eager.abs().max()))
