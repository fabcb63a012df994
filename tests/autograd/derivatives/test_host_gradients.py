"""Gradients by the host's own backward kernels: convolutions and attention, of first and second order, beside eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


def gradients(function: Callable[..., Any], operands: list[torch.Tensor], order: int, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in operands]
    result = function(*leaves)
    wanted = [t for t in leaves if t.requires_grad]
    first = torch.autograd.grad(result, wanted, torch.cos(result.detach()), create_graph=order > 1)
    if order == 1:
        return [result.detach(), *first]
    roots = [g.sin() for g in first if g.requires_grad]
    second = torch.autograd.grad(roots, wanted, [torch.ones_like(g) for g in roots], allow_unused=True)
    return [result.detach(), *(g.detach() for g in first), *second]


def check(
    function: Callable[..., Any], *operands: torch.Tensor, orders: tuple[int, ...] = (1, 2), reference: Any = None
) -> None:
    compiled = tatara.compile(function)
    for order in orders:
        for seed in range(3):
            ours = gradients(compiled, list(operands), order, seed)
            theirs = gradients(reference or function, list(operands), order, seed)
            same(ours, theirs, strides=False, rtol=1e-9, atol=1e-9)
    assert tatara.stats()["fallbacks"] == 0
    assert tatara.stats()["breaks"] == 0


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("options", "channels"),
    [
        ({}, 4),
        ({"stride": 2, "padding": 1}, 4),
        ({"dilation": 2, "padding": (2, 1)}, 4),
        ({"groups": 2}, 2),
        ({"padding": "same"}, 4),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_conv2d(options: dict[str, Any], channels: int, bias: bool) -> None:
    operands = [leaf(2, 4, 7, 6), leaf(6, channels, 3, 3), *([leaf(6)] if bias else [])]
    check(lambda *a: F.conv2d(*a, **options), *operands)


def test_conv1d_and_conv3d() -> None:
    check(lambda x, w, b: F.conv1d(x, w, b, stride=2), leaf(2, 3, 9), leaf(4, 3, 3), leaf(4))
    check(lambda x, w, b: F.conv3d(x, w, b, padding=1), leaf(1, 2, 4, 4, 3), leaf(3, 2, 2, 2, 2), leaf(3))


def test_conv_transpose2d() -> None:
    def step(x: Any, w: Any, b: Any) -> Any:
        return F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)

    check(step, leaf(2, 3, 4, 5), leaf(3, 2, 3, 3), leaf(2))


def test_convolution_of_some_operands() -> None:
    check(lambda x, w: F.conv2d(x, w), leaf(1, 2, 5, 5).detach(), leaf(3, 2, 3, 3))
    check(lambda x, w: F.conv2d(x, w), leaf(1, 2, 5, 5), leaf(3, 2, 3, 3).detach())


def test_channels_last_convolution() -> None:
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64).contiguous(memory_format=torch.channels_last).requires_grad_()
    check(lambda x, w: F.conv2d(x, w, padding=1).relu(), x, leaf(5, 4, 3, 3))


def test_gradients_of_parameters_keep_their_layout() -> None:
    model = torch.nn.Conv2d(3, 5, 3, dtype=torch.float64)
    step = tatara.compile(lambda x: model(x).square().sum())
    for _ in range(2):
        step(torch.randn(2, 3, 8, 8, dtype=torch.float64)).backward()
    weight = model.weight
    assert weight.grad is not None
    assert weight.grad.stride() == weight.stride()


def attention(**options: Any) -> Callable[..., Any]:
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **options)


def plain(causal: bool = False) -> Callable[..., Any]:
    """Attention by products and a softmax: eager's own flash kernel has no second derivative."""

    def function(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        return scores.softmax(-1) @ v

    return function


def heads(batch: int, length: int, count: int, size: int = 8) -> torch.Tensor:
    """As models make them: heads inside of positions."""
    flat = torch.randn(batch, length, count, size, dtype=torch.float64)
    return flat.transpose(1, 2).requires_grad_()


def test_attention() -> None:
    check(attention(), heads(2, 5, 3), heads(2, 7, 3), heads(2, 7, 3), reference=plain())
    check(attention(is_causal=True), heads(2, 6, 3), heads(2, 6, 3), heads(2, 6, 3), reference=plain(True))


@pytest.mark.parametrize("kind", ["bool", "float", "learned"])
@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (2, 1, 5, 7), (1, 3, 5, 7), (5, 7), (1, 7)])
def test_attention_with_mask(kind: str, sizes: tuple[int, ...]) -> None:
    mask = torch.randn(*sizes, dtype=torch.float64)
    if kind == "bool":
        mask = mask > -1
        mask[..., 0] = True
    mask.requires_grad_(kind == "learned")
    check(attention(), heads(2, 5, 3), heads(2, 7, 3), heads(2, 7, 3), mask, reference=plain())


def test_grouped_attention() -> None:
    check(attention(enable_gqa=True), heads(2, 5, 4), heads(2, 5, 2), heads(2, 5, 2), reference=plain())


def test_attention_first_derivative_is_the_flash_kernels() -> None:
    q, k, v = heads(2, 5, 3), heads(2, 5, 3), heads(2, 5, 3)
    compiled = tatara.compile(attention(is_causal=True))
    for _ in range(2):
        result = compiled(q, k, v)
    with tatara.kernel_history() as history:
        result.sum().backward()
    names = [event.name for event in history.events]
    assert any("flash_attention_for_cpu_backward" in name for name in names), names


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"enable_gqa": True}])
def test_attention_with_dropout_draws_eagers_numbers(options: dict[str, Any]) -> None:
    count = 2 if options.get("enable_gqa") else 4
    check(attention(dropout_p=0.3, **options), heads(2, 5, 4), heads(2, 5, count), heads(2, 5, count))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_with_dropout_in_smaller_dtypes(dtype: torch.dtype) -> None:
    operands = [torch.randn(2, 3, 5, 8).to(dtype).requires_grad_() for _ in range(3)]
    function = attention(dropout_p=0.25)
    compiled = tatara.compile(function)
    for seed in range(3):
        ours = gradients(compiled, operands, 1, seed)
        for a, b in zip(ours, gradients(function, operands, 1, seed), strict=True):
            torch.testing.assert_close(a, b)
    assert tatara.stats()["fallbacks"] == 0


def test_attention_with_dropout_without_gradients() -> None:
    operands = [torch.randn(2, 3, 5, 8) for _ in range(3)]
    function = attention(dropout_p=0.25)
    compiled = tatara.compile(function)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            ours, state = compiled(*operands), torch.get_rng_state()
            torch.manual_seed(seed)
            torch.testing.assert_close(ours, function(*operands))
            assert torch.equal(state, torch.get_rng_state())
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("mask_of", ["bool", "float"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_queries_that_see_no_key_have_gradients_of_zero(mask_of: str, dropout: float) -> None:
    seen = torch.rand(5, 7) > 0.4
    seen[2] = False
    mask = seen if mask_of == "bool" else torch.zeros(5, 7, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    function = attention(dropout_p=dropout)
    operands = [heads(2, 5, 3), heads(2, 7, 3), heads(2, 7, 3)]
    compiled = tatara.compile(function)
    for seed in range(3):
        ours = gradients(compiled, [*operands, mask], 1, seed)
        for a, b in zip(ours, gradients(function, [*operands, mask], 1, seed), strict=True):
            torch.testing.assert_close(a, b)
            assert a.isfinite().all()
    assert tatara.stats()["fallbacks"] == 0
