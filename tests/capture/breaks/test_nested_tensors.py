"""Nested tensors run in eager."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh", "no_grad"), pytest.mark.filterwarnings("ignore")]


def _program(linear: Any) -> Any:
    def program(a: Any, b: Any) -> Any:
        ragged = torch.nested.nested_tensor([a, b])
        hidden = torch.relu(linear(ragged))
        return torch.nested.to_padded_tensor(hidden, 0.0).sum(1)

    return program


def test_values() -> None:
    program = _program(torch.nn.Linear(8, 8))
    run = tatara.compile(program)
    for rows in (2, 3, 2):
        operands = torch.randn(rows, 8), torch.randn(5, 8)
        same(run(*operands), program(*operands))


def test_an_encoder_with_padding() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    run = tatara.compile(encoder)
    for _ in range(3):
        x, mask = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False, False, False, True, True]])
        same(run(x, src_key_padding_mask=mask), encoder(x, src_key_padding_mask=mask))
