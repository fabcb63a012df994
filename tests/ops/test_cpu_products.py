"""Products that are part of our own kernels on a CPU (pass cpu_products), against eager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
TOLERANCE = {
    torch.complex64: 2e-5,
    torch.complex128: 1e-12,
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
}


def _agree(function: Callable[..., Any], *args: Any, tolerance: float = 2e-5, native: bool = True) -> Any:
    """Three calls are as eager's, and the product is a loop."""
    compiled = tatara.compile(function)
    expected = function(*args)
    for _ in range(3):
        got = compiled(*args)
        for one, other in zip(
            got if isinstance(got, tuple) else (got,),
            expected if isinstance(expected, tuple) else (expected,),
            strict=True,
        ):
            assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
            if other.is_complex():
                one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
            scale = max(other.double().abs().max().item(), 1.0) if other.numel() else 1.0
            torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance * scale)
    with tatara.kernel_history() as history:
        compiled(*args)
    if native:
        assert any("cpu_product" in launch.name for launch in history.launches), [x.name for x in history.launches]
    return compiled


def _operand(r: random.Random, dtype: torch.dtype, *sizes: int) -> Tensor:
    """Contiguous, transposed, a slice with an offset, with steps, or expanded over a batch."""
    kind = r.choice(["plain", "turned", "slice", "steps", "expanded"])
    if kind == "turned":
        return torch.randn(*sizes[:-2], sizes[-1], sizes[-2]).to(dtype).mT
    if kind == "slice":
        return torch.randn(*sizes[:-1], sizes[-1] + 3).to(dtype)[..., 2:-1]
    if kind == "steps":
        return torch.randn(*sizes[:-2], 2 * sizes[-2], sizes[-1]).to(dtype)[..., ::2, :]
    if kind == "expanded" and len(sizes) == 3:
        return torch.randn(1, *sizes[1:]).to(dtype).expand(*sizes)
    return torch.randn(*sizes).to(dtype)


def _length(r: random.Random) -> int:
    return r.choice([1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 48, 64, 65, 100])


FOLLOWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "nothing": lambda y, bias: y,
    "bias_relu": lambda y, bias: torch.relu(y + bias),
    "gelu": lambda y, bias: F.gelu(y),
    "residual": lambda y, bias: y * 0.5 + y.sin(),
    "softmax": lambda y, bias: y.softmax(-1),
    "layer_norm": lambda y, bias: F.layer_norm(y, y.shape[-1:]),
    "sum": lambda y, bias: (y + bias).sum(-1),
    "columns": lambda y, bias: y.sum(-2),
    "turned": lambda y, bias: (y + bias).mT.contiguous(),
    "reshaped": lambda y, bias: (y + 1).reshape(-1),
    "again": lambda y, bias: y @ y.mT,
}


@pytest.mark.parametrize("conjugated", [False, True])
@pytest.mark.parametrize("sizes", [(40, 2, 2, 2), (7, 4, 4, 4), (3, 5, 3, 6), (1, 9, 4, 70), (1, 16, 16, 16)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers(dtype: torch.dtype, sizes: tuple[int, ...], conjugated: bool) -> None:
    batch, m, k, n = sizes
    a, b = torch.randn(batch, m, k, dtype=dtype), torch.randn(batch, n, k, dtype=dtype).mT

    def program(a: Tensor, b: Tensor) -> Tensor:
        return ((a.conj() if conjugated else a) @ (b.conj() if conjugated else b)) * 2

    _agree(program, a, b, tolerance=TOLERANCE[dtype])
    _agree(program, a[0], b[0], tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("seed", range(160))
def test_any_product(seed: int) -> None:
    """Sizes, layouts, types and what follows, drawn."""
    r = random.Random(seed)
    dtype = r.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16])
    m, k, n = _length(r), _length(r), _length(r)
    batch = r.choice([(), (), (r.choice([1, 2, 5, 40]),)])
    a, b = _operand(r, dtype, *batch, m, k), _operand(r, dtype, *batch, k, n)
    bias = torch.randn(n).to(dtype)
    follow = FOLLOWS[r.choice(list(FOLLOWS))]
    added = r.choice([None, None, (1.0, 1.0), (0.5, -2.0), (0.0, 1.0)])

    def program(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        if added is None:
            return follow(a @ b, bias)
        beta, alpha = added
        if a.dim() == 2:
            return follow(torch.addmm(bias, a, b, beta=beta, alpha=alpha), bias)
        return follow(torch.baddbmm(bias.expand(*a.shape[:-1], n), a, b, beta=beta, alpha=alpha), bias)

    _agree(program, a, b, bias, tolerance=4 * TOLERANCE[dtype], native=False)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 10, 13, 17, 30, 197])
@pytest.mark.parametrize("form", ["mm", "linear", "bmm", "mv"])
def test_each_number_of_rows(rows: int, form: str) -> None:
    """The last group of rows may not be full."""
    a, b = torch.randn(rows, 20), torch.randn(20, 24)
    if form == "mm":
        _agree(lambda a, b: torch.tanh(a @ b) * 2, a, b)
    elif form == "linear":
        _agree(lambda a, b: torch.relu(F.linear(a, b)), a, torch.randn(24, 20))
    elif form == "bmm":
        _agree(lambda a, b: torch.relu(a @ b), torch.randn(6, rows, 20), torch.randn(6, 20, 24))
    else:
        _agree(lambda a, b: torch.relu(a @ b), a, torch.randn(20))


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 15, 16, 17, 63, 64, 65, 128, 200, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_each_number_of_columns(columns: int, threads: int) -> None:
    """Columns in chunks, of which the last may be short; threads change no bit."""
    a, b = torch.randn(11, 33), torch.randn(33, columns)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        compiled = _agree(lambda a, b: torch.relu(a @ b), a, b)
        one = compiled(a, b)
        torch.set_num_threads(3 - threads)
        assert torch.equal(one, compiled(a, b))
    finally:
        torch.set_num_threads(before)


def test_rows_that_the_kernel_writes_are_read_before() -> None:
    """A row that is computed twice, for the last group is not full, reads what was there before the kernel."""

    def program(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
        total.addmm_(a, b)
        total += a @ b
        return total * 2

    for rows in (3, 9, 13, 16):
        total, a, b = torch.randn(rows, 24), torch.randn(rows, 20), torch.randn(20, 24)
        compiled, mine, own = tatara.compile(program), total.clone(), total.clone()
        for _ in range(3):
            torch.testing.assert_close(compiled(mine, a, b), program(own, a, b), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(mine, own, rtol=1e-4, atol=1e-4)

    def residual(x: Tensor, w: Tensor) -> Tensor:
        x = x.exp()
        return x + x @ w + x.sum(-1, keepdim=True)

    for rows in (9, 13):
        _agree(residual, torch.randn(rows, 24), torch.randn(24, 24))


def test_nothing_is_multiplied_or_summed() -> None:
    for a, b in (((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0)), ((2, 0, 4), (2, 4, 5)), ((0, 3, 4), (0, 4, 5))):
        _agree(lambda a, b: (a @ b) + 1, torch.randn(*a), torch.randn(*b), native=False)


def test_infinities_and_nan() -> None:
    """Also where beta or a column of zeros meets them."""
    a, b = torch.randn(5, 8), torch.randn(8, 6)
    a[1, 2], a[2, 3], b[4, 5] = float("inf"), float("nan"), float("-inf")
    a[3] = 0
    compiled = tatara.compile(lambda c, a, b: torch.addmm(c, a, b, beta=0))
    for _ in range(3):
        c = torch.full((5, 6), float("nan"))
        torch.testing.assert_close(compiled(c, a, b), torch.addmm(c, a, b, beta=0), equal_nan=True)


@pytest.mark.parametrize("sizes", [[4, 9, 30, 1, 64, 7], [64, 3, 17, 100]])
def test_a_batch_that_varies(sizes: list[int]) -> None:
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 3)).double()
    compiled = tatara.compile(model)
    for size in [*sizes, *sizes]:
        x = torch.randn(size, 12, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_a_small_network_learns(batch: int) -> None:
    """Gradients are products of turned matrices."""
    torch.manual_seed(1)
    models = [
        nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2)).double()
        for _ in "ab"
    ]
    models[1].load_state_dict(models[0].state_dict())
    compiled = tatara.compile(models[1])
    for _ in range(4):
        x = torch.randn(batch, 4, dtype=torch.float64)
        for model, call in zip(models, (models[0], compiled), strict=True):
            model.zero_grad()
            call(x).square().sum().backward()
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
            assert one.grad is not None and other.grad is not None and one.grad.stride() == other.grad.stride()
        for model in models:
            torch.optim.SGD(model.parameters(), 0.01).step()


def test_heads() -> None:
    """What follows has parts of the columns as dims of their own."""

    def attention(x: Tensor, w: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = ((x @ w).reshape(b, t, 3, 4, c // 4) * 0.5).permute(2, 0, 3, 1, 4).contiguous().unbind(0)
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        return (scores @ v).transpose(1, 2).reshape(b, t, c)

    for t in (5, 16, 33):
        _agree(attention, torch.randn(2, t, 64), torch.randn(64, 192))


def test_rotations() -> None:
    """A matrix for each point, made of functions; one for all points."""

    def program(angles: Tensor, points: Tensor) -> Tensor:
        c, s, one, zero = angles.cos(), angles.sin(), torch.ones_like(angles), torch.zeros_like(angles)
        turn = torch.stack([c, -s, zero, s, c, zero, zero, zero, one], -1).reshape(-1, 3, 3)
        return (turn @ points.unsqueeze(-1)).squeeze(-1) @ turn[0] + (turn[:1] @ points.unsqueeze(-1)).squeeze(-1)

    _agree(program, torch.randn(50), torch.randn(50, 3))


def test_the_hosts_calls_are_gone() -> None:
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 3))
    x = torch.randn(16, 12)
    with torch.no_grad():
        compiled = _agree(model, x)
        with tatara.kernel_history() as history:
            compiled(x)
        assert len(history.launches) <= 4 and not history.host_calls
        with tatara.config.patch(disable="cpu_products"):
            other = tatara.compile(model)
            for _ in range(3):
                other(x)
            with tatara.kernel_history() as history:
                other(x)
        assert len(history.host_calls) == 2
    same(compiled(x).detach(), model(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [(2, 12), (3, 7), (5, 3), (2, 3, 5)])
def test_rows_of_several_dims(rows: tuple[int, ...]) -> None:
    """Rows of all dims follow each other, also those of a group that is not full; three products of one operand are one kernel."""
    layers = nn.ModuleList(nn.Linear(32, 32) for _ in "qkv")

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(x) * 2 for layer in layers)

    with torch.no_grad():
        _agree(program, torch.randn(*rows, 32))
