"""On a GPU: gradients of attention, whose kernels compute scores again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_gpu_attention import HALVES, MASKS, SCORES, operands, plain
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import tatara

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
    ),
]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(7)
    yield


def gradients(f: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    """The result and the gradients of a sum of it with unequal weights."""
    leaves = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in given]
    out = f(*leaves)
    weights = torch.cos(torch.arange(out.numel(), device="cuda") * 0.7).reshape(out.shape)
    (out * weights.to(out.dtype)).sum().backward()
    return [out, *(x.grad for x in leaves)]


def check(f: Callable[..., Tensor], *given: Tensor) -> None:
    """As near to the same in float64 as eager is, with no other products than in kernels of attention."""
    exact = gradients(f, [x.double() for x in given])
    eager = gradients(f, list(given))
    compiled = tatara.compile(f)
    gradients(compiled, list(given))
    gradients(compiled, list(given))
    with tatara.kernel_history() as history:
        found = gradients(compiled, list(given))
    names = [e.name for e in history.launches]
    together = given[1].shape[-1] + given[2].shape[-1] <= 128  # gradients of keys and values
    assert sum("attention" in name for name in names) == (3 if together else 4), names
    for true, theirs, ours in zip(exact, eager, found, strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        assert torch.equal(ours.isnan(), theirs.isnan())
        there = ~theirs.isnan()
        wrong, known = ((x.double() - true)[there].abs().max() for x in (ours, theirs))
        size = true[there].abs().max()
        assert wrong <= 2 * known + 2e-3 * size, (float(wrong), float(known), float(size))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("width", [16, 64, 72, 96, 128, 160, 256])
def test_widths(width: int, dtype: torch.dtype) -> None:
    check(plain, *operands(256, 384, width, dtype))


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("rows, keys", [(128, 128), (64, 64), (104, 80), (520, 1000), (1000, 72), (1001, 513)])
def test_lengths(rows: int, keys: int, outside: bool) -> None:
    check(plain, *operands(rows, keys, 64, torch.float16, outside=outside))
    tatara.reset()
    check(plain, *operands(rows, keys, 128, torch.bfloat16, outside=outside))


def test_values_of_another_width() -> None:
    q, k, _ = operands(256, 320, 64, torch.bfloat16)
    v = operands(256, 320, 128, torch.bfloat16)[2]
    check(plain, q, k, v)


def test_heads_that_share_keys() -> None:
    def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, h, s, d = k.shape
        k = k[:, :, None].expand(b, h, 4, s, d).reshape(b, 4 * h, s, d)
        v = v[:, :, None].expand(b, h, 4, s, d).reshape(b, 4 * h, s, d)
        return plain(q, k, v).transpose(1, 2).contiguous()

    check(repeated, *operands(256, 320, 64, torch.bfloat16, heads=8, kv_heads=2))


def test_three_dimensions() -> None:
    q, k, v = (x.flatten(0, 1) for x in operands(256, 320, 64, torch.float16, outside=False))
    check(lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 8, -1), v), q, k, v)


def test_rows_without_keys() -> None:
    q, k, v = operands(256, 256, 64, torch.float16)
    keep = torch.ones(256, 256, dtype=torch.bool, device="cuda").tril()
    keep[7] = keep[200] = False

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch._safe_softmax((q @ k.mT).masked_fill(~keep, -math.inf), -1) @ v

    check(masked, q, k, v)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_no_finite_number(odd: float) -> None:
    q, k, v = operands(256, 256, 64, torch.bfloat16)
    q[0, 1, 17, 3] = odd
    found = gradients(plain, [q, k, v])
    compiled = tatara.compile(plain)
    for _ in range(3):
        again = gradients(compiled, [q, k, v])
    for theirs, ours in zip(found, again, strict=True):
        assert torch.equal(ours.isnan(), theirs.isnan())


def test_a_checkpoint_around_it() -> None:
    def kept(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = checkpoint(plain, q, k, v, use_reentrant=False)
        return out

    q, k, v = operands(256, 256, 64, torch.bfloat16)
    eager = gradients(kept, [q, k, v])
    compiled = tatara.compile(kept)
    for _ in range(3):
        found = gradients(compiled, [q, k, v])
    for theirs, ours in zip(eager, found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_gradients_of_gradients() -> None:
    def penalty(f: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
        leaves = [x.detach().clone().requires_grad_() for x in given]
        first = torch.autograd.grad(f(*leaves).float().sin().sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(g.float().square().sum() for g in first), leaves))

    given = operands(128, 128, 64, torch.bfloat16)
    eager = penalty(plain, given)
    compiled = tatara.compile(plain)
    for _ in range(3):
        found = penalty(compiled, given)
    for theirs, ours in zip(eager, found, strict=True):
        scale = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=5e-2, atol=2e-2 * scale)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", [*MASKS, *SCORES])
def test_by_functions(name: str, dtype: torch.dtype) -> None:
    length = 640
    given = operands(length, length, 64, dtype, outside=name in SCORES)
    mask = None
    if name in MASKS:
        mask = create_block_mask(MASKS[name], None, 4, length, length, device="cuda")
    check(lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES.get(name), block_mask=mask), *given)


def test_documents_and_shared_heads() -> None:
    length = 1024
    document = (torch.rand(2, length, device="cuda") < 0.01).cumsum(1)
    mask = create_block_mask(
        lambda b, h, i, j: (document[b, i] == document[b, j]) & (i >= j), 2, None, length, length, device="cuda"
    )
    given = operands(length, length, 128, torch.bfloat16, heads=8, kv_heads=2)
    check(lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True), *given)


def test_a_bias_with_gradients_is_right() -> None:
    length = 256
    given: list[Any] = operands(length, length, 64, torch.bfloat16)
    given.append(torch.randn(4, length, length, device="cuda", dtype=torch.bfloat16))

    def f(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return torch.softmax(q @ k.mT * 0.125 + bias, -1) @ v

    eager = gradients(f, given)
    compiled = tatara.compile(f)
    for _ in range(3):
        found = gradients(compiled, given)
    for theirs, ours in zip(eager, found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=3e-2, atol=3e-2)


def test_memory_is_linear_in_the_length() -> None:
    leaves = [x.requires_grad_() for x in operands(8192, 8192, 64, torch.float16)]
    compiled = tatara.compile(plain)
    for _ in range(3):
        compiled(*leaves).sum().backward()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compiled(*leaves).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 16 * leaves[0].nbytes
