"""Operators that leave out results which the host's meta kernels have: None stays None, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

PADDED = torch.tensor([[False, False, True], [False, False, False]])
CAUSAL = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
MASKS = ["none", "bool", "float"]


def mask_of(kind: str, mask: torch.Tensor) -> torch.Tensor | None:
    if kind == "float":
        return torch.zeros(mask.shape).masked_fill(mask, float("-inf"))
    return mask if kind == "bool" else None


def one_graph() -> None:
    stats = tatara.stats()
    assert (stats["graphs"], stats["breaks"], stats["fallbacks"]) == (1, 0, 0)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("attention", MASKS)
@pytest.mark.parametrize("padding", MASKS)
def test_attention_without_gradients(attention: str, padding: str, weights: bool) -> None:
    module = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 4)
    causal, padded = mask_of(attention, CAUSAL), mask_of(padding, PADDED)

    def attend(x: torch.Tensor) -> Any:
        return module(x, x, x, attn_mask=causal, key_padding_mask=padded, need_weights=weights)

    compiled = tatara.compile(attend)
    with torch.no_grad():
        expected = attend(x)
        for _ in range(3):
            same(compiled(x), expected)
    if "none" in (attention, padding) or attention == padding:  # else the module warns, which breaks the graph
        one_graph()


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_without_gradients(norm_first: bool) -> None:
    module = nn.TransformerDecoderLayer(4, 2, 8, batch_first=True, norm_first=norm_first).eval()
    x, memory = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    compiled = tatara.compile(module)
    with torch.no_grad():
        expected = module(x, memory, tgt_mask=CAUSAL, tgt_key_padding_mask=PADDED)
        for _ in range(3):
            same(compiled(x, memory, tgt_mask=CAUSAL, tgt_key_padding_mask=PADDED), expected, rtol=1e-4, atol=1e-5)
    one_graph()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("padding", MASKS)
def test_encoder_without_gradients(padding: str, norm_first: bool) -> None:
    module = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=norm_first).eval()
    x, padded = torch.randn(2, 3, 4), mask_of(padding, PADDED)
    compiled = tatara.compile(module)
    with torch.no_grad():
        expected = module(x, src_key_padding_mask=padded)
        for _ in range(3):
            same(compiled(x, src_key_padding_mask=padded), expected, rtol=1e-4, atol=1e-5)
    one_graph()


@pytest.fixture
def pair() -> Iterator[Any]:
    """An operator of the user's whose meta kernel gives both results at all times."""
    library = torch.library.Library("left_out", "FRAGMENT")
    library.define("pair(Tensor x, bool both) -> (Tensor, Tensor)")
    library.impl("pair", lambda x, both: (x + 1, x * 2 if both else None), "CPU")
    library.impl("pair", lambda x, both: (torch.empty_like(x), torch.empty_like(x)), "Meta")
    yield torch.ops.left_out.pair
    library._destroy()


@pytest.mark.parametrize("write", ["", "to its own", "from outside"])
def test_an_operator_of_the_user(pair: Any, write: str) -> None:
    def program(x: torch.Tensor, given: torch.Tensor) -> Any:
        y = x.sin()
        if write == "to its own":
            y.mul_(2)
        first, second = pair(y, False)
        if write == "from outside":
            given.add_(1)
        return first * 2, second, second is None

    x, seen = torch.ones(2), []
    compiled = tatara.compile(program)
    with counts() as grown:
        for run in (compiled, program):
            given = torch.zeros(2)
            seen.append([*(run(x, given) for _ in range(3)), given])
    same(*seen)
    assert grown["breaks"] == 1
    assert "meta kernel of left_out::pair" in str(tatara.explain(program)(x, torch.zeros(2)))


def test_the_whole_graph_is_wanted(pair: Any) -> None:
    compiled = tatara.compile(lambda x: pair(x * 1, False), fullgraph=True)
    with pytest.raises(tatara.Error, match="meta kernel of left_out::pair"):
        compiled(torch.ones(2))
