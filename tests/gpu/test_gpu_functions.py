"""Functions on an NVIDIA GPU against eager: values, dtype, shape, stride, device; counts of kernels. Skipped without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the ecosystem's name

import tatara

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
    torch.complex128: 1e-13,
    torch.float64: 1e-13,
}


def randn(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def check(
    function: Callable[..., Any], *inputs: Any, kernels: int | None = None, loose: float = 1.0, least: float = 0.0
) -> None:
    """Two calls of the compiled function give what eager gives, from compiled code. `least`: what errors are relative to, where all
    results may be small against what they are summed from.
    """
    expected = function(*inputs)
    compiled = tatara.compile(function)
    compiled(*inputs)
    before = tatara.stats()
    actual = compiled(*inputs)
    after = tatara.stats()
    launched = after["kernels_launched"] - before["kernels_launched"]
    assert after["fallbacks"] == before["fallbacks"]
    assert launched + after["host_calls"] - before["host_calls"] > 0
    if kernels is not None:
        assert launched == kernels
    compare(actual, expected, loose, least)


def compare(actual: Any, expected: Any, loose: float, least: float = 0.0) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            compare(a, e, loose, least)
        return
    assert (actual.dtype, actual.shape, actual.device) == (expected.dtype, expected.shape, expected.device)
    assert actual.stride() == expected.stride()
    tolerance = TOLERANCE.get(expected.dtype, 0.0) * loose
    scale = max(expected.abs().max().item(), least) if expected.numel() and tolerance else 0.0
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def test_one_kernel() -> None:
    check(lambda x: torch.softmax(x * 2 + 1, -1), randn(4096, 1024), kernels=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("sizes", [(1,), (1000003,), (37, 1001), (512, 768), (3, 5, 7)])
def test_pointwise(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    check(lambda x: torch.tanh(x) * 2 + x, randn(*sizes, dtype=dtype), kernels=1)


@pytest.mark.parametrize("columns", [1, 2, 7, 31, 32, 64, 100, 768, 1001, 2048, 4096, 5000, 32768])
@pytest.mark.parametrize("rows", [1, 37, 1000])
def test_rows(columns: int, rows: int) -> None:
    x = randn(rows, columns)
    check(lambda v: torch.softmax(v, -1), x)
    check(lambda v: F.layer_norm(v, (v.shape[-1],)), x, loose=20)
    check(lambda v: v.sum(-1), x, loose=10, least=x.abs().sum(-1).max().item() / 10)
    check(lambda v: v.argmax(-1), x)
    if columns > 1:
        check(lambda v: v.var(-1), x, loose=10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.int64])
@pytest.mark.parametrize("columns", [1, 7, 100, 500, 1001, 4096, 32768])
@pytest.mark.parametrize("rows", [1, 37, 1000])
def test_rows_of_wide_numbers(columns: int, rows: int, dtype: torch.dtype) -> None:
    x = (randn(rows, columns, dtype=torch.float64) * 1000).to(dtype)
    check(lambda v: v.sum(-1), x, loose=20)
    check(lambda v: v.sum(), x, loose=20)
    check(lambda v: v.cumsum(-1), x, loose=20)
    if dtype != torch.complex128:
        check(lambda v: (v * 2).amax(-1), x)
    if dtype != torch.int64:
        check(lambda v: v.mean(-1), x, loose=20)
        check(lambda v: (v / 1000).prod(-1), x[:, :20], loose=100)
    if dtype == torch.float64 and columns > 1:
        check(lambda v: v.var(-1), x, loose=100)
        check(lambda v: torch.exp(v / 1000).sum(-1).log(), x, loose=20)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_rows(dtype: torch.dtype) -> None:
    x, w = randn(300, 1024, dtype=dtype), randn(1024, dtype=dtype)
    check(lambda v: torch.softmax(v, -1), x, kernels=1)
    check(lambda v, weight: F.layer_norm(v, (1024,), weight, weight), x, w, kernels=1, loose=2)
    check(lambda v: torch.native_layer_norm(v, (1024,), None, None, 1e-5), x, loose=2)


def test_reductions_over_other_dims() -> None:
    check(lambda x: x.sum(), randn(1 << 20), loose=20)
    check(lambda x: (x * x).mean(), randn(1000, 777), loose=20)
    check(lambda x: x.sum(0), randn(3000, 1000), loose=20)
    check(lambda x: x.sum(1), randn(30, 100, 50), loose=20)
    check(lambda x: x.sum((0, 2)), randn(30, 100, 50), loose=20)
    check(lambda x: torch.max(x, 0), randn(500, 300))
    check(lambda x: x.any(), randn(1000) > 4)
    check(lambda x: x.prod(1), randn(100, 20), loose=20)


def test_layouts() -> None:
    check(lambda x, y: x.t() * y, randn(1024, 512), randn(512, 1024))
    check(lambda x: x[::2, 1:] + 1, randn(64, 65))
    check(lambda x: x.flip(0) * 2, randn(100, 3))
    check(lambda x, y: torch.cat([x, y], 1) * 2, randn(100, 30), randn(100, 64))
    check(lambda x: F.pad(x, (1, 2)) + 1, randn(10, 10))
    check(lambda x: x.transpose(1, 2).reshape(8, -1) * 2, randn(8, 16, 32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("sizes", [(64, 64), (1000, 2000), (33, 17), (3, 100, 77)])
def test_transposed(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    x, y = randn(*sizes, dtype=dtype), randn(*sizes, dtype=dtype).transpose(-1, -2).contiguous()
    check(lambda a, b: (a.transpose(-1, -2) + b).contiguous(), x, y, kernels=1)
    check(lambda a: torch.exp(a.transpose(-1, -2)).contiguous(), x)


SIDES = [1, 31, 33, 63, 65, 127, 129, 256]


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.bool, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
)
@pytest.mark.parametrize(
    "sizes", [(3, 127, 129), (2, 260, 8), (2, 9, 513), (5000, 12), (4096, 4096), *zip(SIDES, SIDES[::-1])]
)
def test_transposed_tiles(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    def make() -> torch.Tensor:
        return randn(*sizes).mul(20).to(dtype) if dtype != torch.bool else randn(*sizes) > 0

    x, y, z = make(), make(), make().mT.contiguous()
    check(lambda a: (~a if a.dtype == torch.bool else -a + 1).mT.contiguous(), x, kernels=1)
    check(lambda a: (a.mT.to(torch.float32) * 2 if not a.is_complex() else -a.mT).contiguous(), x)
    check(lambda a, b, c: ((a == b).mT | (c != b.mT)).contiguous(), x, y, z)


@pytest.mark.parametrize("inputs", [2, 3, 5, 11])
def test_several_are_transposed(inputs: int) -> None:
    def total(first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        for other in others:
            first = first + other.t()
        return first

    for sizes in ((513, 260), (64, 1000), (300, 17)):
        check(total, randn(*sizes), *(randn(*sizes[::-1]) for _ in range(inputs)), kernels=1)
    widths = [torch.float32, torch.bfloat16, torch.float64, torch.int8]
    check(total, randn(260, 200), *(randn(200, 260).to(widths[i % 4]) for i in range(inputs)))


def test_transposed_parts() -> None:
    """Tiles that begin anywhere, and whose rows lie anyhow."""
    x = randn(300, 400)
    check(lambda a: a[1:, 3:].t() * 2, x)
    check(lambda a: a[:, 4:].t().contiguous(), x)
    check(lambda a: (a[::2].t() + 1).contiguous(), x)
    check(lambda a: a.flip(0).t().contiguous(), x)
    check(lambda a: a.view(2, 150, 16, 25).permute(0, 3, 2, 1).contiguous() + 1, x)
    check(lambda a, b: a.t().exp() + b, x[:, :300], randn(300))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
@pytest.mark.parametrize("columns", [1, 3, 31, 64, 1000, 1024, 4096, 99999])
def test_scans(dtype: torch.dtype, columns: int) -> None:
    x = randn(7, columns).mul(10).to(dtype)
    check(lambda v: torch.cumsum(v, -1), x, loose=100)
    check(lambda v: torch.cumsum(v, 0), x, loose=10)
    check(lambda v: torch.cummax(v, -1), x)
    check(lambda v: torch.logcumsumexp(v.double() / 50, -1), x, loose=100)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [3, 300])
def test_halves_that_meet_are_rounded_once(dtype: torch.dtype, rows: int) -> None:
    index = torch.randint(0, rows, (5000,), device="cuda")
    base, added = randn(rows, 8).to(dtype), (randn(5000, 8) + 1).to(dtype)
    positions = index[:, None].expand(5000, 8)
    programs: list[Callable[..., torch.Tensor]] = [
        lambda x, i, s: x.index_add(0, i, s),
        lambda x, i, s: x.scatter_add(0, positions, s),
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        lambda x, i, s: x.scatter_reduce(0, positions, s, "sum"),
        lambda x, i, s: torch.autograd.grad(torch.nn.functional.embedding(i, x), x, s)[0] + x.detach(),
    ]
    exact = base.double().index_add(0, index, added.double())
    for program in programs:
        x = base.clone().requires_grad_()
        actual = tatara.compile(program)(x, index, added)
        assert actual.dtype == dtype
        torch.testing.assert_close(actual.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-2)


def test_narrow_integers_that_meet() -> None:
    index = torch.randint(0, 50, (4000,), device="cuda")
    for dtype in (torch.int8, torch.uint8, torch.int16):
        added = torch.randint(0, 99, (4000,), device="cuda", dtype=dtype)
        check(lambda x, i, s: x.index_add(0, i, s), torch.ones(50, device="cuda", dtype=dtype), index, added)


def test_scatters() -> None:
    index = torch.randint(0, 50, (4000,), device="cuda")
    check(lambda x, i, s: x.index_add(0, i, s), randn(50, 33), index, randn(4000, 33), loose=50)
    check(lambda x, i, s: x.scatter_add(0, i, s), randn(50), index, randn(4000), loose=50)
    whole = torch.randint(-9, 9, (4000,), device="cuda")
    check(lambda x, i, s: x.scatter_add(0, i, s), torch.zeros(50, device="cuda", dtype=torch.int64), index, whole)
    check(
        lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
        torch.zeros(50, device="cuda", dtype=torch.int64),
        index,
        whole,
    )
    once = torch.randperm(4000, device="cuda")
    check(lambda x, i, s: x.index_copy(0, i, s), randn(4000, 5), once, randn(4000, 5))


def test_odd_vocabulary() -> None:
    x, w = randn(512, 256, dtype=torch.float16), randn(30001, 256, dtype=torch.float16)
    check(lambda a, b: F.linear(a, b).float() * 2, x, w, loose=100)
    check(lambda a, b, c: F.linear(a, b, c), x, w, randn(30001, dtype=torch.float16), loose=4)


def test_unaligned_inputs_run_as_in_eager() -> None:
    base = randn(1001)
    compiled = tatara.compile(lambda x: x * 2 + 1)
    for start in range(5):
        x = base[start : start + 512]
        torch.testing.assert_close(compiled(x), x * 2 + 1)


def test_lookups() -> None:
    ids = torch.randint(0, 1000, (8, 64), device="cuda")
    check(lambda w, i: F.embedding(i, w) + 1, randn(1000, 96), ids, kernels=1)
    check(lambda x, i: torch.gather(x, 1, i), randn(8, 1000), ids)
    check(lambda x, i, s: x.index_add(0, i, s), randn(1000, 64), ids[0], randn(64, 64))
    check(lambda x: x.cumsum(1), randn(100, 1000), loose=20)


def test_index_out_of_bounds_is_reported_by_the_next_call() -> None:
    weight = randn(50, 8)
    compiled = tatara.compile(lambda w, i: torch.index_select(w, 0, i) * 2)
    good = torch.tensor([1, 2], device="cuda")
    compiled(weight, good)
    before = tatara.stats()["kernels_launched"]
    compiled(weight, torch.tensor([1, 60], device="cuda"))
    assert tatara.stats()["kernels_launched"] > before
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match="index 60 is out of bounds for dimension with size 50"):
        compiled(weight, good)
    torch.testing.assert_close(compiled(weight, good), weight[good] * 2)


def test_host_operators() -> None:
    check(lambda x, y: torch.relu(x @ y) + 1, randn(512, 256), randn(256, 512), loose=50)
    check(F.linear, randn(64, 256), randn(128, 256), randn(128), loose=50)
    check(lambda x, w: torch.relu(F.conv2d(x, w)), randn(2, 8, 32, 32), randn(16, 8, 3, 3), loose=500)
    check(lambda x, y: torch.bmm(x, y) * 2, randn(4, 32, 64), randn(4, 64, 16), loose=50)


def test_scalars_and_dtypes() -> None:
    check(lambda x: x + torch.arange(x.shape[0], device=x.device), randn(1000))
    check(lambda x: torch.where(x > 0, x, torch.zeros((), device="cuda")), randn(1000))
    check(lambda x: (x + 3) % 7, torch.randint(-100, 100, (1000,), device="cuda"))
    check(lambda x: x * x + 1, randn(1000, dtype=torch.complex64), loose=5)
    check(lambda x: x.to(torch.float16), randn(1000))
    check(lambda x: torch.full((8,), 3.0, device="cuda") + x, randn(8))


def test_numbers_of_the_host() -> None:
    x = randn(100)
    check(lambda a, s: a * s + 1, x, torch.tensor(3.0), kernels=1)
    check(lambda a, s: a * s, x, torch.tensor(2 + 1j))
    check(lambda a, s: a + s, x.long(), torch.tensor(7))
    check(lambda a: a * torch.tensor(2.5) + torch.tensor(1), x)
    compiled = tatara.compile(lambda a, s: torch.tanh(a) * s)
    for number in (1.5, 2.5, 3.5, -1.0):
        torch.testing.assert_close(compiled(x, number), torch.tanh(x) * number)
        torch.testing.assert_close(compiled(x, torch.tensor(number)), torch.tanh(x) * number)


def test_writes_to_inputs() -> None:
    def step(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        p.sub_(g, alpha=0.1)
        return p * 2

    ours, theirs, gradient = randn(300, 7), torch.empty(0), randn(300, 7)
    theirs = ours.clone()
    compiled = tatara.compile(step)
    for _ in range(3):
        torch.testing.assert_close(compiled(ours, gradient), step(theirs, gradient))
        torch.testing.assert_close(ours, theirs)


def test_sizes_change() -> None:
    compiled = tatara.compile(lambda x: torch.softmax(x * 2, -1))
    for rows, columns in [(4, 100), (5, 100), (6, 128), (7, 333), (1, 1), (70, 4096)]:
        x = randn(rows, columns)
        torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1))


def test_streams() -> None:
    compiled = tatara.compile(lambda x: torch.tanh(x).sum(0) + 1)
    x = randn(4096, 4096)
    expected = torch.tanh(x).sum(0) + 1
    compiled(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        results = [compiled(x) for _ in range(5)]
    torch.cuda.current_stream().wait_stream(side)
    for result in results:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)


def test_inside_a_cuda_graph() -> None:
    compiled = tatara.compile(lambda x: torch.softmax(x, -1) * 3)
    x = randn(128, 256)
    compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    x.copy_(randn(128, 256))
    graph.replay()
    torch.testing.assert_close(y, torch.softmax(x, -1) * 3)


def test_a_model() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 10)
    ).cuda()
    with torch.no_grad():
        check(model, randn(32, 64), kernels=1, loose=100)  # the last bias is part of the product


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dropout_draws_what_eager_draws(dtype: torch.dtype) -> None:
    x = randn(100, 33, dtype=dtype).requires_grad_()

    def f(v: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.tanh(F.dropout(v, 0.3)), 0.5) * 2

    torch.manual_seed(3)
    expected = f(x)
    (wanted,) = torch.autograd.grad(expected.float().sum(), x)
    compiled = tatara.compile(f)
    for _ in range(3):
        torch.manual_seed(3)
        actual = compiled(x)
        (gradient,) = torch.autograd.grad(actual.float().sum(), x)
        compare(actual, expected, 2)
        compare(gradient, wanted, 2)


def test_unaligned_reads_beside_aligned_writes() -> None:
    check(lambda x: 0.2 * (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]), randn(130, 258))
    check(lambda x: (x[:, 1:] - x[:, :-1]).contiguous() * 2, randn(64, 1025, dtype=torch.float16))
    check(lambda x, y: x[:, 3:-1] + y, randn(64, 132), randn(64, 128))


@pytest.mark.parametrize("columns", [4, 64, 66, 1024])
def test_rows_that_meet_are_added(columns: int) -> None:
    index = torch.randint(0, 40, (3000,), device="cuda")
    check(lambda x, i, s: x.index_add(0, i, s), randn(40, columns), index, randn(3000, columns), loose=50)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_attention_with_a_permuted_bias(dtype: torch.dtype) -> None:
    q, k, v = (randn(2, 4, 64, 32, dtype=dtype) for _ in range(3))
    bias = randn(64, 64, 4, dtype=dtype)

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        scores = bias.permute(2, 0, 1).unsqueeze(0)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=scores) * 2

    compiled = tatara.compile(f)
    with torch.no_grad():
        for _ in range(2):
            ours = compiled(q, k, v, bias)
            exact = f(*(t.double() for t in (q, k, v, bias)))
            error = (ours.double() - exact).abs().max().item()
            assert error <= 2 * (f(q, k, v, bias).double() - exact).abs().max().item() + 1e-6


def test_training() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)).cuda()
    x = randn(32, 64)
    model(x).square().mean().backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    tatara.compile(model)(x).square().mean().backward()
    for parameter, gradient in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("warm", [0, 3])
def test_generators_after_an_error(warm: int) -> None:
    def drawn(x: torch.Tensor, fine: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(F.dropout(x, 0.5, True) * 0 + torch.rand(3, 3, device="cuda") * fine)

    states = []
    for run in (drawn, tatara.compile(drawn)):
        torch.manual_seed(0)
        for _ in range(warm):
            run(torch.ones(3, 3, device="cuda"), torch.ones((), device="cuda"))
        with pytest.raises(RuntimeError, match="singular"):
            run(torch.ones(3, 3, device="cuda"), torch.zeros((), device="cuda"))
        states.append((torch.get_rng_state(), torch.cuda.get_rng_state()))
    for ours, theirs in zip(*states, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ["pixel_shuffle", "pixel_unshuffle", "channel_shuffle"])
def test_shuffles_lie_as_in_eager(name: str, channels_last: bool) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(2, 8, 4, 4, device="cuda").to(memory_format=layout)
    compiled = tatara.compile(lambda x: getattr(torch.nn.functional, name)(x * 2, 2))
    got, expected = compiled(x), getattr(torch.nn.functional, name)(x * 2, 2)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_counts_of_every_type(dtype: torch.dtype) -> None:
    """Which expert each token goes to is counted by histc: integers and half types on a GPU alone."""

    def counted(x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x + 1, bins=4, min=0, max=3) * 2

    x = torch.randint(0, 3, (64,), device="cuda").to(dtype)
    try:
        expected = counted(x)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match="(?s)" + str(error)[:20]):
            tatara.compile(counted)(x)
        return
    before = tatara.stats()["breaks"]
    compiled = tatara.compile(counted)
    for _ in range(3):
        got = compiled(x)
        assert got.dtype == expected.dtype
        assert torch.equal(got, expected)
    assert tatara.stats()["breaks"] == before
