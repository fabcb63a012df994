"""flex_attention and create_block_mask in compiled code: one graph, as eager's, whose functions are traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import tatara
from results import same

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]

MASKS: dict[str, Any] = {
    "causal": lambda b, h, i, j: i >= j,
    "window": lambda b, h, i, j: (i >= j) & (i - j < 20),
    "heads": lambda b, h, i, j: (i + j) % (h + 2) != 0,
    "none of some rows": lambda b, h, i, j: (i % 7 != 0) & (j <= i),
}
SCORES: dict[str, Any] = {
    "alibi": lambda s, b, h, i, j: s + (j - i) * torch.exp2(-(h + 1) * 2.0),
    "soft cap": lambda s, b, h, i, j: torch.tanh(s / 20) * 20,
    "relative": lambda s, b, h, i, j: s + (i - j),
    "by batch": lambda s, b, h, i, j: torch.where(b == 0, s, s * 2),
}


def operands(dtype: torch.dtype = torch.float32, *, heads: int = 4, outside: bool = False) -> list[Tensor]:
    torch.manual_seed(3)
    if outside:
        return [torch.randn(2, 64, n, 16, dtype=dtype).transpose(1, 2) for n in (4, heads, heads)]
    return [torch.randn(2, n, 64, 16, dtype=dtype) for n in (4, heads, heads)]


def check(f: Callable[..., Any], *args: Tensor, rtol: float | None = None, atol: float | None = None) -> None:
    expected = f(*args)
    compiled = tatara.compile(f)
    for _ in range(3):
        same(compiled(*args), expected, rtol=rtol, atol=atol)
    report = tatara.explain(f)(*args)
    assert (len(report.graphs), report.breaks) == (1, [])


@pytest.mark.parametrize("name", [*MASKS, *SCORES])
def test_functions(name: str) -> None:
    mask = create_block_mask(MASKS[name], None, 4, 64, 64, device="cpu") if name in MASKS else None
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES.get(name), block_mask=mask)  # noqa: E731
    check(f, *operands(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes_and_strides(dtype: torch.dtype) -> None:
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"], scale=0.3)  # noqa: E731
    tolerance = 1e-5 if dtype == torch.float64 else 1e-2
    check(f, *operands(dtype, outside=True), rtol=tolerance, atol=tolerance)


def test_heads_that_share_keys() -> None:
    f = lambda q, k, v: flex_attention(q, k, v, enable_gqa=True)  # noqa: E731
    check(f, *operands(heads=2), rtol=1e-5, atol=1e-5)


def test_gradients_are_refused_as_in_eager() -> None:
    q, k, v = (x.requires_grad_() for x in operands())
    compiled = tatara.compile(lambda q, k, v: flex_attention(q, k, v))
    for _ in range(3):
        with pytest.raises(NotImplementedError, match="backward on CPU"):
            compiled(q, k, v)


def test_documents() -> None:
    document = (torch.rand(2, 64) < 0.1).cumsum(1)
    bias = torch.randn(4, 64, 64)
    mask = create_block_mask(lambda b, h, i, j: document[b, i] == document[b, j], 2, None, 64, 64, device="cpu")

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i, j], block_mask=mask)

    check(f, *operands(), rtol=1e-5, atol=1e-5)


def test_log_sums() -> None:
    def f(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    check(f, *operands(), rtol=1e-5, atol=1e-5)


def test_a_mask_made_in_the_program() -> None:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = create_block_mask(MASKS["causal"], None, None, 64, 64, device="cpu")
        return flex_attention(q, k, v, block_mask=mask)

    args = operands()
    compiled = tatara.compile(f)
    for _ in range(3):
        same(compiled(*args), f(*args), rtol=1e-5, atol=1e-5)


def test_errors_are_torchs() -> None:
    q, k, v = operands()
    f = lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2])  # noqa: E731
    with pytest.raises(ValueError) as theirs:
        f(q, k, v)
    compiled = tatara.compile(f)
    for _ in range(3):
        with pytest.raises(ValueError) as ours:
            compiled(q, k, v)
        assert str(ours.value) == str(theirs.value)
