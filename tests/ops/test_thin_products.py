"""Products with few rows, of weights that are computed (dequantised): reductions of ours, whose error against float64 is at most eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("host_products")

GROUP = 32
Case = tuple[Callable[..., Any], Callable[[int, int, torch.dtype], list[torch.Tensor]]]


def _bytes(*sizes: int) -> torch.Tensor:
    return torch.randint(0, 256, sizes, dtype=torch.uint8)


def _ints(*sizes: int) -> torch.Tensor:
    return torch.randint(-127, 128, sizes, dtype=torch.int8)


def _scale(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.rand(sizes) * 0.02 + 0.01).to(dtype)


def _int8(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype) * s[:, None])


def _grouped(w: torch.Tensor, s: torch.Tensor, zero: torch.Tensor | float, x: torch.Tensor) -> torch.Tensor:
    w = w.reshape(w.shape[0], -1, w.shape[1] // s.shape[1]).to(x.dtype)
    return ((w - zero) * s[:, :, None]).reshape(w.shape[0], -1)


def _interleaved(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    w = torch.stack([p & 15, p >> 4], -1).reshape(p.shape[0], -1)
    return F.linear(x, _grouped(w, s, z[:, :, None], x))


def _halves(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return F.linear(x, _grouped(torch.cat([p & 15, p >> 4], 1), s, z[:, :, None], x))


def _shifted(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    shifts = torch.arange(0, 8, 4, dtype=torch.uint8)
    w = ((p.unsqueeze(-1) >> shifts) & 15).reshape(p.shape[0], -1)
    return F.linear(x, _grouped(w, s, z[:, :, None], x))


def _words(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    w = ((p.unsqueeze(-1) >> shifts) & 15).reshape(p.shape[0], -1)
    return F.linear(x, _grouped(w, s, z[:, :, None], x))


def _written(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    w = torch.empty(p.shape[0], 2 * p.shape[1], dtype=x.dtype)
    w[:, ::2] = (p & 15).to(x.dtype)
    w[:, 1::2] = p >> 4
    return F.linear(x, _grouped(w, s, z[:, :, None], x))


def _written_halves(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    w = torch.empty(p.shape[0], 2 * p.shape[1], dtype=torch.uint8)
    w[:, : p.shape[1]] = p & 15
    w[:, p.shape[1] :] = p >> 4
    return F.linear(x, _grouped(w, s, z[:, :, None], x))


def _rows_packed(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    w = torch.cat([p & 15, p >> 4], 0)
    return F.linear(x, (w.to(x.dtype) - 8) * s[:, None])


def _two_bits(x: torch.Tensor, p: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    w = torch.stack([(p >> i) & 3 for i in (0, 2, 4, 6)], -1).reshape(p.shape[0], -1)
    return F.linear(x, (w.to(x.dtype) - 1.5) * s[:, None])


def _nf4(x: torch.Tensor, p: torch.Tensor, table: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    places = torch.stack([p >> 4, p & 15], -1).reshape(p.shape[0], -1).long()
    return F.linear(x, (table[places].reshape(p.shape[0], -1, GROUP) * s[:, :, None]).reshape(p.shape[0], -1))


def _int4_weight(n: int, k: int, t: torch.dtype) -> list[torch.Tensor]:
    zero = torch.randint(0, 16, (n, k // GROUP)).to(t)
    return [_bytes(n, k // 2), _scale(n, k // GROUP, dtype=t), zero]


def _int8_weight(n: int, k: int, t: torch.dtype) -> list[torch.Tensor]:
    return [_ints(n, k), _scale(n, dtype=t)]


CASES: dict[str, Case] = {
    "int8": (_int8, _int8_weight),
    "int8_left": (lambda x, w, s: (w.to(x.dtype) * s[:, None]) @ x.t(), _int8_weight),
    "int8_vector": (lambda x, w, s: (w.to(x.dtype) * s[:, None]) @ x[0], _int8_weight),
    "int8_inputs_scaled": (
        lambda x, w, s: x @ (w.to(x.dtype) * s).t(),
        lambda n, k, t: [_ints(n, k), _scale(k, dtype=t)],
    ),
    "uint8_zero": (
        lambda x, w, s, z: F.linear(x, (w.to(x.dtype) - z[:, None]) * s[:, None]),
        lambda n, k, t: [_bytes(n, k), _scale(n, dtype=t), torch.full((n,), 128.0, dtype=t)],
    ),
    "int8_groups": (
        lambda x, w, s: F.linear(x, _grouped(w, s, 0, x)),
        lambda n, k, t: [_ints(n, k), _scale(n, k // GROUP, dtype=t)],
    ),
    "int4_interleaved": (_interleaved, _int4_weight),
    "int4_halves": (_halves, _int4_weight),
    "int4_shifts": (_shifted, _int4_weight),
    "int4_words": (
        _words,
        lambda n, k, t: [
            torch.randint(-(2**31), 2**31 - 1, (n, k // 8), dtype=torch.int32),
            *_int4_weight(n, k, t)[1:],
        ],
    ),
    "int4_rows": (_rows_packed, lambda n, k, t: [_bytes(n // 2, k), _scale(n // 2 * 2, dtype=t)]),
    "int4_written": (_written, _int4_weight),
    "int4_written_halves": (_written_halves, _int4_weight),
    "int8_across": (lambda x, w, s: (x @ w.to(x.dtype)) * s, lambda n, k, t: [_ints(k, n), _scale(n, dtype=t)]),
    "int8_across_added": (
        lambda x, w, s: torch.addmm(s, x, w.to(x.dtype) * s, alpha=2),
        lambda n, k, t: [_ints(k, n), _scale(n, dtype=t)],
    ),
    "int2": (_two_bits, lambda n, k, t: [_bytes(n, k // 4), _scale(n, dtype=t)]),
    "nf4": (
        _nf4,
        lambda n, k, t: [_bytes(n, k // 2), torch.linspace(-1, 1, 16).to(t), _scale(n, k // GROUP, dtype=t)],
    ),
    "fp8": (
        lambda x, w, s: F.linear(x, w.to(x.dtype) * s[:, None]),
        lambda n, k, t: [torch.randn(n, k).to(torch.float8_e4m3fn), _scale(n, dtype=t)],
    ),
    "fp8_e5m2": (
        lambda x, w, s: F.linear(x, w.to(x.dtype) * s[:, None]),
        lambda n, k, t: [torch.randn(n, k).to(torch.float8_e5m2), _scale(n, dtype=t)],
    ),
    "half": (lambda x, w: F.linear(x, w.to(x.dtype)), lambda n, k, t: [torch.randn(n, k).to(torch.float8_e4m3fn)]),
    "addmm": (
        lambda x, w, s: torch.addmm(s, x, (w.to(x.dtype) * s[:, None]).t(), beta=0.5, alpha=-2),
        _int8_weight,
    ),
    "addmm_nothing": (
        lambda x, w, s: torch.addmm(s / 0, x, (w.to(x.dtype) * s[:, None]).t(), beta=0),
        _int8_weight,
    ),
    "bias_gelu_residual": (lambda x, w, s: F.gelu(_int8(x, w, s) + s) + s * 2, _int8_weight),
    "linear_bias": (lambda x, w, s: F.relu(F.linear(x, w.to(x.dtype) * s[:, None], s)), _int8_weight),
    "gated": (
        lambda x, w, s, v, r: F.silu(_int8(x, w, s)) * _int8(x, v, r),
        lambda n, k, t: [*_int8_weight(n, k, t), *_int8_weight(n, k, t)],
    ),
    "three_dims": (lambda x, w, s: _int8(x[None], w, s), _int8_weight),
    "normed_rows": (
        lambda x, w, s: _int8(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), w, s),
        _int8_weight,
    ),
    "row_sums": (lambda x, w, s: _int8(x, w, s).sum(-1), _int8_weight),
}


def _truth(function: Callable[..., Any], args: list[torch.Tensor]) -> torch.Tensor:
    """In float64: what is stored in one byte is converted by the function."""
    return function(*(a.double() if a.is_floating_point() and a.element_size() > 1 else a for a in args))


def _check(function: Callable[..., Any], args: list[torch.Tensor], thin: bool = True) -> None:
    report = tatara.explain(function)(*args)
    text = "\n".join(kernel.loops for kernel in report.kernels)
    products = [call for call in report.host_calls if "mm" in str(call) or "mv" in str(call)]
    assert (not products) == thin, report
    assert not thin or "fma(" in text
    ours, eager, exact = tatara.compile(function)(*args), function(*args), _truth(function, args)
    same(ours, eager, atol=float("inf"), rtol=0.0, equal_nan=True)
    scale = exact.abs().max()
    error, known = (float((x.double() - exact).abs().max() / scale) for x in (ours, eager))
    least = {torch.float64: 1e-15, torch.float32: 3e-7, torch.bfloat16: 4e-3, torch.float16: 5e-4}[ours.dtype]
    assert error <= max(1.1 * known, least), (error, known)


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("name", CASES)
def test_errors_are_at_most_eagers(name: str, rows: int) -> None:
    torch.manual_seed(3)
    function, weight = CASES[name]
    _check(function, [torch.randn(rows, 192), *weight(96, 192, torch.float32)])


@pytest.mark.parametrize("rows", [10, 12, 16, 21, 32])
@pytest.mark.parametrize("name", CASES)
def test_blocks_of_rows(name: str, rows: int) -> None:
    torch.manual_seed(10)
    function, weight = CASES[name]
    _check(function, [torch.randn(rows, 192), *weight(96, 192, torch.float32)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_other_types(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    function, weight = CASES[name]
    _check(function, [torch.randn(4, 160, dtype=dtype), *weight(64, 160, dtype)])


@pytest.mark.parametrize("sizes", [(5, 17, 241), (7, 250, 33), (2, 1000, 64), (8, 33, 4099), (6, 64, 1024)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_odd_sizes(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, outer, inner = sizes
    torch.manual_seed(5)
    _check(_int8, [torch.randn(rows, inner, dtype=dtype), *_int8_weight(outer, inner, dtype)])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2],
        lambda x: x.flip(0),
        lambda x: x.t().contiguous().t(),
        lambda x: x.repeat(1, 2)[:, ::2],
        lambda x: x[:1].expand(4, -1),
        lambda x: x[:, None].squeeze(1),
    ],
)
def test_strides_of_rows(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(6)
    _check(_int8, [view(torch.randn(6, 128)), *_int8_weight(64, 128, torch.float32)])
    _check(_interleaved, [view(torch.randn(6, 128)), *_int4_weight(64, 128, torch.float32)])


def test_weights_with_offsets_and_strides() -> None:
    torch.manual_seed(7)
    x, w, s = torch.randn(3, 128), _ints(80, 160), _scale(160, dtype=torch.float32)
    _check(_int8, [x, w[8:72, 5:133], s[::2][:64]])
    _check(lambda x, w, s: x @ (w.t().to(x.dtype) * s[None]), [x, w[8:72, 5:133], s[:64]])
    _check(lambda x, w, s: x @ (w.to(x.dtype) * s[None]), [x, _ints(128, 64), s[:64]])
    _check(lambda x, w, s: (x @ w.to(x.dtype)) * s, [x, _ints(136, 192)[8:, 5:69], s[:64]])


def test_what_is_not_for_it() -> None:
    torch.manual_seed(8)
    weight = _int8_weight(64, 128, torch.float32)
    for rows in (9, 33, 64):
        _check(_int8, [torch.randn(rows, 128), *weight], thin=False)
    _check(F.linear, [torch.randn(4, 128), torch.randn(64, 128)], thin=False)

    def returned(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense = w.to(x.dtype) * s[:, None]
        return F.linear(x, dense), dense

    x = torch.randn(4, 128)
    same(tatara.compile(returned)(x, *weight), returned(x, *weight))


def test_infinities_and_nan() -> None:
    x, w, s = torch.randn(4, 128), _ints(64, 128), _scale(64, dtype=torch.float32)
    x[0, 3], x[1, 5], s[2] = float("inf"), float("nan"), float("inf")
    ours, eager = tatara.compile(_int8)(x, w, s), _int8(x, w, s)
    torch.testing.assert_close(ours, eager, equal_nan=True)


def test_result_into_the_residual() -> None:
    def step(h: torch.Tensor, x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        h += _int8(x, w, s)
        return h * 2

    x, weight = torch.randn(4, 128), _int8_weight(64, 128, torch.float32)
    mine, theirs = torch.ones(4, 64), torch.ones(4, 64)
    compiled = tatara.compile(step)
    for _ in range(3):
        same(compiled(mine, x, *weight), step(theirs, x, *weight), rtol=1e-4, atol=1e-3)
        same(mine, theirs, rtol=1e-4, atol=1e-3)


def test_gradients_are_eagers() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return F.gelu(_int8(x, w, s)).sum()

    weight = _int8_weight(64, 128, torch.float32)
    x = torch.randn(4, 128, requires_grad=True)
    scale = weight[1].requires_grad_()
    theirs = torch.autograd.grad(loss(x, weight[0], scale), (x, scale))
    ours = torch.autograd.grad(tatara.compile(loss)(x, weight[0], scale), (x, scale))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_numbers_of_rows_that_change() -> None:
    weight = _int8_weight(64, 128, torch.float32)
    compiled = tatara.compile(_int8)
    for rows in (3, 5, 64, 2, 1, 8, 9, 5, 100, 3):
        x = torch.randn(rows, 128)
        torch.testing.assert_close(compiled(x, *weight), _int8(x, *weight), rtol=1e-4, atol=1e-4)
    with tatara.kernel_history() as history:
        compiled(torch.randn(5, 128), *weight)
        compiled(torch.randn(50, 128), *weight)
    assert sum("thin_product" in launch.name for launch in history.launches) == 1


def test_bits_do_not_depend_on_threads() -> None:
    x, weight = torch.randn(3, 512), _int4_weight(40, 512, torch.float32)
    results = []
    for threads in (1, 2):
        with tatara.config.patch(num_threads=threads):
            results.append(tatara.compile(lambda *args: _interleaved(*args))(x, *weight))
    assert torch.equal(*results)


def test_many_random_products() -> None:
    random = torch.Generator().manual_seed(9)

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    names = list(CASES)
    for _ in range(40):
        function, weight = CASES[names[number(0, len(names) - 1)]]
        inner = GROUP * number(1, 12)
        outer = 2 * number(64, 90)
        dtype = [torch.float32, torch.bfloat16][number(0, 1)]
        _check(function, [torch.randn(number(1, 8), inner).to(dtype), *weight(outer, inner, dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 16, 50])
def test_packed_int8(rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    x, (w, s) = torch.randn(rows, 192, dtype=dtype), _int8_weight(96, 192, dtype)
    compiled = tatara.compile(torch.ops.aten._weight_int8pack_mm, fullgraph=True)
    exact = x.double() @ w.double().t() * s.double()
    for _ in range(3):
        ours, eager = compiled(x, w, s), torch._weight_int8pack_mm(x, w, s)
        assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride())
        error, known = (float((y.double() - exact).abs().max() / exact.abs().max()) for y in (ours, eager))
        assert error <= max(1.1 * known, 1e-6), (error, known)
    with pytest.raises(RuntimeError, match="contiguous"):
        compiled(x.repeat(1, 2)[:, ::2], w, s)
    y = compiled(x.clone().requires_grad_(), w, s)
    with pytest.raises(RuntimeError, match="derivative for aten::_weight_int8pack_mm is not implemented"):
        y.sum().backward()


@pytest.mark.parametrize("rows", [1, 5, 8, 32, 70])
def test_products_of_int8_are_exact(rows: int) -> None:
    torch.manual_seed(12)
    x, w = _ints(rows, 1200), _ints(64, 1200)
    x[0], w[0] = -128, -128
    compiled = tatara.compile(lambda x, w: torch._int_mm(x, w.t()) * 2, fullgraph=True)
    for _ in range(3):
        same(compiled(x, w), torch._int_mm(x, w.t()) * 2)
    assert tatara.explain(lambda x, w: torch._int_mm(x, w.t()))(x, w).breaks == []


def test_parts_that_do_not_make_up_a_weight() -> None:
    torch.manual_seed(13)

    def gap(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        w = torch.zeros(p.shape[0], 2 * p.shape[1], dtype=x.dtype)
        w[:, ::2] = p & 15
        w[:, ::2] = p >> 4
        return F.linear(x, w)

    def over(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        w = torch.zeros(p.shape[0], 2 * p.shape[1], dtype=x.dtype)
        w[:, ::2] = p & 15
        w[:, 1::2] = p >> 4
        w[:, ::2] = p & 3
        return F.linear(x, w)

    def across(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        w = torch.ones(p.shape[0], 2 * p.shape[1], dtype=x.dtype)
        w[:, 3 : 3 + p.shape[1]] = p & 15
        w[:, : p.shape[1]] = p >> 4
        return F.linear(x, w)

    x, p = torch.randn(4, 128), _bytes(64, 64)
    for function in (gap, over, across):
        compiled = tatara.compile(function)
        for _ in range(3):
            torch.testing.assert_close(compiled(x, p), function(x, p), rtol=1e-5, atol=1e-3)
