"""On a GPU: two products with a softmax between them in one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import tatara

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
    ),
]

HALVES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(7)
    yield


def operands(
    rows: int,
    keys: int,
    width: int,
    dtype: torch.dtype,
    *,
    batch: int = 2,
    heads: int = 4,
    kv_heads: int = 4,
    outside: bool = True,
) -> list[Tensor]:
    """Queries, keys and values; `outside`: rows lie outside of heads, as a projection leaves them."""
    made = []
    for count, length in ((heads, rows), (kv_heads, keys), (kv_heads, keys)):
        if outside:
            made.append(torch.randn(batch, length, count, width, device="cuda", dtype=dtype).transpose(1, 2))
        else:
            made.append(torch.randn(batch, count, length, width, device="cuda", dtype=dtype))
    return made


def check(f: Callable[..., Tensor], *args: Tensor, ours: int = 1) -> None:
    """As near to the same in float64 as eager is, and in one kernel."""
    exact = f(*(x.double() if x.is_floating_point() else x for x in args))
    eager = f(*args)
    compiled = tatara.compile(f)
    compiled(*args)
    compiled(*args)
    with tatara.kernel_history() as history:
        found = compiled(*args)
    assert sum("attention" in event.name for event in history.launches) == ours, [e.name for e in history.launches]
    assert (found.dtype, found.shape, found.stride()) == (eager.dtype, eager.shape, eager.stride())
    assert torch.equal(found.isnan(), eager.isnan())
    there = ~eager.isnan()
    wrong, known = ((x.double() - exact)[there].abs().max() for x in (found, eager))
    assert wrong <= 1.5 * known + 1e-6, (float(wrong), float(known))


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return torch.softmax(scores, -1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype) @ v


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("width", [16, 32, 64, 72, 96, 128, 160, 256])
def test_widths(width: int, dtype: torch.dtype) -> None:
    check(plain, *operands(256, 384, width, dtype))


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("rows, keys", [(128, 128), (32, 64), (100, 77), (513, 1001), (1000, 66), (2048, 2048)])
def test_lengths(rows: int, keys: int, outside: bool) -> None:
    check(plain, *operands(rows, keys, 64, torch.float16, outside=outside))
    tatara.reset()
    check(plain, *operands(rows, keys, 128, torch.bfloat16, outside=outside))


def test_what_programs_do_with_the_result() -> None:
    def joined(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(q, k, v).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)

    def behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(q, k, v).transpose(1, 2).contiguous()

    def gated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(q, k, v) * q.abs()

    for f in (joined, behind, gated):
        check(f, *operands(200, 300, 64, torch.float16))


def test_heads_that_share_keys() -> None:
    def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, h, s, d = k.shape
        k = k[:, :, None].expand(b, h, 4, s, d).reshape(b, 4 * h, s, d)
        v = v[:, :, None].expand(b, h, 4, s, d).reshape(b, 4 * h, s, d)
        return plain(q, k, v).transpose(1, 2).contiguous()

    def interleaved(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))

    for f in (repeated, interleaved):
        check(f, *operands(256, 320, 64, torch.bfloat16, heads=8, kv_heads=2))


def test_three_dimensions() -> None:
    q, k, v = (x.flatten(0, 1) for x in operands(256, 320, 64, torch.float16, outside=False))
    check(lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 8, -1), v), q, k, v)


def test_scores_of_all_kinds() -> None:
    q, k, v = operands(300, 300, 64, torch.float16)
    bias = torch.randn(4, 300, 300, device="cuda", dtype=torch.float16)
    keep = torch.rand(2, 1, 300, 300, device="cuda") > 0.5
    padding = torch.arange(300, device="cuda") < torch.tensor([200, 300], device="cuda")[:, None]
    slopes = torch.rand(4, device="cuda", dtype=torch.float16)
    buckets = torch.randint(0, 32, (300, 300), device="cuda")
    table = torch.randn(32, 4, device="cuda", dtype=torch.float16)

    def attend(f: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        def run(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
            scores = f(q @ k.mT * 0.125, *others)
            return torch.softmax(scores.float() if q.dtype != torch.float64 else scores, -1).to(q.dtype) @ v

        return run

    def causal(x: Tensor) -> Tensor:
        return x.masked_fill(torch.ones(300, 300, device="cuda").triu(1).bool(), -math.inf)

    def positions(x: Tensor) -> Tensor:
        i = torch.arange(300, device="cuda")
        return torch.where((i[:, None] - i).abs() < 50, x, torch.finfo(torch.float16).min)

    check(attend(lambda x, bias: x + bias), q, k, v, bias)
    check(attend(lambda x, keep: x.masked_fill(~keep, -math.inf)), q, k, v, keep)
    check(attend(lambda x, padding: torch.where(padding[:, None, None], x, -1e4)), q, k, v, padding)
    check(attend(lambda x: torch.tanh(x / 5) * 5), q, k, v)
    check(attend(causal), q, k, v)
    check(attend(positions), q, k, v)
    check(attend(lambda x, s: x - s[:, None, None] * torch.arange(300, device="cuda")), q, k, v, slopes)
    check(attend(lambda x, table, buckets: x + table[buckets].permute(2, 0, 1)), q, k, v, table, buckets)


def test_rows_without_keys() -> None:
    q, k, v = operands(256, 256, 64, torch.float16)
    keep = torch.ones(256, 256, dtype=torch.bool, device="cuda").tril()
    keep[7] = keep[200] = False

    def masked(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        return torch.softmax((q @ k.mT).masked_fill(~keep, -math.inf), -1) @ v

    check(masked, q, k, v, keep)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number(odd: float) -> None:
    q, k, v = operands(256, 256, 64, torch.bfloat16)
    q[0, 1, 17, 3] = odd
    k[1, 2, 99, 5] = odd
    check(plain, q, k, v)


def test_scores_that_are_read_elsewhere_lie_in_memory() -> None:
    def both(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.softmax(q @ k.mT, -1)
        return (scores @ v) + scores.amax(-1, keepdim=True)

    check(both, *operands(256, 256, 64, torch.float16), ours=0)


MASKS: dict[str, Any] = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 100),
    "prefix": lambda b, h, i, j: (j < 90) | (i >= j),
    "heads": lambda b, h, i, j: (i + j) % (h + 2) != 0,
    "none of some rows": lambda b, h, i, j: (i % 7 != 0) & (j <= i),
}
SCORES: dict[str, Any] = {
    "alibi": lambda s, b, h, i, j: s + (j - i) * torch.exp2(-(h + 1) * 2.0),
    "soft cap": lambda s, b, h, i, j: torch.tanh(s / 20) * 20,
    "relative": lambda s, b, h, i, j: s + (i - j),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", [*MASKS, *SCORES])
def test_by_functions(name: str, dtype: torch.dtype) -> None:
    length = 640
    q, k, v = operands(length, length, 64, dtype, outside=name in SCORES)
    mask = None
    if name in MASKS:
        mask = create_block_mask(MASKS[name], None, 4, length, length, device="cuda")
    check(lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES.get(name), block_mask=mask), q, k, v)


def test_documents() -> None:
    length = 1024
    document = (torch.rand(2, length, device="cuda") < 0.01).cumsum(1)
    q, k, v = operands(length, length, 128, torch.bfloat16, heads=8, kv_heads=2)
    mask = create_block_mask(
        lambda b, h, i, j: (document[b, i] == document[b, j]) & (i >= j), 2, None, length, length, device="cuda"
    )
    check(lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True), q, k, v)


def test_gradients_of_functions() -> None:
    length = 256
    bias = torch.randn(4, length, length, device="cuda", requires_grad=True)
    document = (torch.rand(2, length, device="cuda") < 0.1).cumsum(1)
    mask = create_block_mask(
        lambda b, h, i, j: document[b, i] == document[b, j], 2, None, length, length, device="cuda"
    )

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i, j], block_mask=mask)

    given = [x.float() for x in operands(length, length, 64, torch.float16)]
    compiled = tatara.compile(f)
    found = []
    for each in (f, compiled, compiled, compiled):
        leaves = [x.clone().requires_grad_() for x in given]
        bias.grad = None
        each(*leaves).sin().sum().backward()
        found.append([*(x.grad for x in leaves), bias.grad])
    for got in found[1:]:
        for mine, theirs in zip(got, found[0], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=2e-4)


def test_memory_is_linear_in_the_length() -> None:
    q, k, v = operands(8192, 8192, 64, torch.float16)
    compiled = tatara.compile(plain)
    for _ in range(3):
        compiled(q, k, v)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compiled(q, k, v)
    assert torch.cuda.max_memory_allocated() - before < 4 * q.nbytes
