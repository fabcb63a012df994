"""Float32 products by the tensor cores: at most eager's error against float64, and its infinities and NaN."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import tatara

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
)

DEVICE = "cuda"
SHAPES = [(512, 4096, 4096), (1000, 4000, 1601), (2049, 515, 2050), (8191, 333, 1112), (2048, 2048, 2048)]


def scaled(x: Tensor, dim: int) -> Tensor:
    sizes = [x.shape[0], 1] if dim == 0 else [1, x.shape[1]]
    return x * torch.exp2(torch.randint(-20, 20, sizes, device=DEVICE).float())


FAMILIES: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "positive": torch.abs,
    "rows scaled": lambda x: scaled(x, 0),
    "columns scaled": lambda x: scaled(x, 1),
    "large and small": lambda x: torch.where(torch.rand_like(x) < 0.01, x * 1e6, x),
    "cancelling": lambda x: torch.cat([x[:, ::2], -x[:, ::2].flip(1)], 1) if x.shape[1] % 2 == 0 else x,
}


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(7)
    yield


def products(history: tatara.History) -> int:
    names = ("matrix_product", "scaled_product")
    return sum(any(name in event.name for name in names) for event in history.launches)


def run(f: Callable[..., Tensor], *args: Tensor, ours: int = 1) -> Tensor:
    compiled = tatara.compile(f)
    compiled(*args)
    with tatara.kernel_history() as history:
        result = compiled(*args)
    assert products(history) == ours
    return result


def check(f: Callable[..., Tensor], *args: Tensor, ours: int = 1) -> None:
    """The largest error is at most eager's, or what float32 itself can tell."""
    result, eager = run(f, *args, ours=ours), f(*args)
    exact = f(*(x.double() for x in args))
    assert (result.dtype, result.shape, result.stride()) == (eager.dtype, eager.shape, eager.stride())
    scale = exact.abs().max()
    error, known = ((x.double() - exact).abs().max() / scale for x in (result, eager))
    assert error <= max(1.5 * known, 2e-7), (float(error), float(known))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_errors_are_at_most_eagers(shape: tuple[int, int, int], family: str) -> None:
    rows, inner, columns = shape
    make = FAMILIES[family]
    x, w = make(torch.randn(rows, inner, device=DEVICE)), make(torch.randn(columns, inner, device=DEVICE))
    check(lambda a, b: a @ b.T, x, w)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_every_layout(left: bool, right: bool) -> None:
    x, w = torch.randn(1100, 1200, device=DEVICE), torch.randn(1200, 1400, device=DEVICE)
    x = x.T.contiguous().T if left else x
    w = w.T.contiguous().T if right else w
    check(torch.mm, x, w)
    check(
        lambda a, b: a[::2, 5:] @ b[5:], torch.randn(4000, 1000, device=DEVICE), torch.randn(1000, 2000, device=DEVICE)
    )


def test_batches() -> None:
    check(torch.bmm, torch.randn(8, 500, 700, device=DEVICE), torch.randn(8, 700, 900, device=DEVICE))
    x, w = torch.randn(8, 512, 1024, device=DEVICE), torch.randn(2048, 1024, device=DEVICE)
    check(torch.nn.functional.linear, x, w)


@pytest.mark.parametrize(
    ("activation", "kernels"),
    [(torch.relu, 3), (torch.nn.functional.gelu, 4)],  # a function has a kernel of its own
    ids=["relu", "gelu"],
)
def test_what_follows_is_one_kernel(activation: Callable[[Tensor], Tensor], kernels: int) -> None:
    x, w = torch.randn(1024, 2048, device=DEVICE), torch.randn(2048, 2048, device=DEVICE)
    bias, residual = torch.randn(2048, device=DEVICE), torch.randn(1024, 2048, device=DEVICE)

    def layer(x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return activation(torch.nn.functional.linear(x, w, bias)) + residual

    check(layer, x, w, bias, residual)
    compiled = tatara.compile(layer)
    compiled(x, w, bias, residual)
    with tatara.kernel_history() as history:
        compiled(x, w, bias, residual)
    assert (products(history), len(history.launches)) == (1, kernels)  # and the parts of both operands


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (0.5, 2), (1, 0), (3, 1)])
def test_sums_with_factors(alpha: float, beta: float) -> None:
    x, w = torch.randn(1024, 2048, device=DEVICE), torch.randn(2048, 2048, device=DEVICE)
    given = torch.randn(1024, 2048, device=DEVICE)
    if beta == 0:
        given[3] = torch.nan
        assert not run(lambda c, a, b: torch.addmm(c, a, b, alpha=alpha, beta=0), given, x, w).isnan().any()
        return
    check(lambda c, a, b: torch.addmm(c, a, b, alpha=alpha, beta=beta), given, x, w)


def test_infinities_and_nan_are_eagers() -> None:
    x, w = torch.randn(1024, 2048, device=DEVICE), torch.randn(2048, 2048, device=DEVICE)
    x[5, 7], x[9, 3], w[100, 50], w[7, 60] = torch.inf, -torch.inf, torch.nan, 0
    x[20, 20], w[20, 70] = 3.4e38, 2.0
    x[30], w[:, 80], w[:, 81] = 1e35, 1e5, 0.5
    result, eager = run(torch.mm, x, w), torch.mm(x, w)
    odd = ~torch.isfinite(eager)
    assert odd.any()
    assert torch.equal(torch.isfinite(result), ~odd)
    assert torch.equal(result[odd].nan_to_num(7), eager[odd].nan_to_num(7))
    rest = ~odd
    rest[[20, 30]] = rest[:, 80:82] = False  # sums of large numbers that cancel
    torch.testing.assert_close(result[rest], eager[rest], rtol=1e-4, atol=1e-3)


def test_largest_and_smallest_numbers() -> None:
    largest = torch.finfo(torch.float32).max
    x = torch.eye(1024, device=DEVICE) * largest
    w = torch.rand(1024, 1024, device=DEVICE)
    big = torch.zeros(1024, 2048, device=DEVICE)
    big[:, :1024] = x
    tall = torch.cat([w, torch.randn(1024, 1024, device=DEVICE)])
    torch.testing.assert_close(run(torch.mm, big, tall), torch.mm(big, tall))
    check(torch.mm, torch.randn(1024, 2048, device=DEVICE) * 1e-30, torch.randn(2048, 2048, device=DEVICE) * 1e28)


def test_gradients() -> None:
    layer = torch.nn.Linear(2048, 2048, device=DEVICE)
    x = torch.randn(2048, 2048, device=DEVICE, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        return torch.tanh(layer(x)).square().mean()

    results = []
    for f in (loss, tatara.compile(loss)):
        layer.zero_grad()
        x.grad = None
        f(x).backward()
        results.append([p.grad for p in (x, *layer.parameters())])
    for eager, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-8)


def test_less_precision_is_the_hosts() -> None:
    x, w = torch.randn(2048, 2048, device=DEVICE), torch.randn(2048, 2048, device=DEVICE)
    torch.set_float32_matmul_precision("high")
    try:
        result = run(torch.mm, x, w, ours=0)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert (result - x @ w).abs().max() < 1


def test_the_same_bits_each_time() -> None:
    x, w = torch.randn(1500, 3000, device=DEVICE), torch.randn(3000, 1500, device=DEVICE)
    compiled = tatara.compile(torch.mm)
    compiled(x, w)
    first = compiled(x, w)
    for _ in range(20):
        assert torch.equal(compiled(x, w), first)


def test_operands_move_between_calls() -> None:
    compiled = tatara.compile(lambda a, b: torch.relu(a @ b) @ b)
    for _ in range(6):
        x, w = torch.randn(2048, 2048, device=DEVICE), torch.randn(2048, 2048, device=DEVICE)
        exact = torch.relu(x.double() @ w.double()) @ w.double()
        assert (compiled(x, w).double() - exact).abs().max() <= 1e-5 * exact.abs().max()


def test_sizes_as_symbols() -> None:
    compiled = tatara.compile(lambda a, b: a @ b)
    w = torch.randn(2048, 2048, device=DEVICE)
    for rows in (1024, 1025, 1100, 2000, 3000, 64, 1):
        x = torch.randn(rows, 2048, device=DEVICE)
        exact = x.double() @ w.double()
        assert (compiled(x, w).double() - exact).abs().max() <= 2e-6 * exact.abs().max()
