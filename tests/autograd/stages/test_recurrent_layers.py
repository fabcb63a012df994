"""Training of whole recurrent layers: gradients are eager's, and nobody goes through the steps to compile them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import tatara
from tatara.torch import _meta

LAYERS = {
    "lstm": lambda: torch.nn.LSTM(5, 7, 2, bidirectional=True),
    "lstm with projections": lambda: torch.nn.LSTM(5, 7, proj_size=3),
    "gru": lambda: torch.nn.GRU(5, 7, 2, batch_first=True),
    "tanh": lambda: torch.nn.RNN(5, 7, bidirectional=True),
    "relu": lambda: torch.nn.RNN(5, 7, nonlinearity="relu"),
}


class OnSequences(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module, packed: bool) -> None:
        super().__init__()
        self.layer, self.packed = layer, packed

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if not self.packed:
            return self.layer(x)[0] * 2
        given = pack_padded_sequence(x, lengths, batch_first=self.layer.batch_first, enforce_sorted=False)
        return pad_packed_sequence(self.layer(given)[0], batch_first=self.layer.batch_first)[0] * 2


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_eagers(name: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    call = _meta.call

    def noted(function: Any, args: Any, kwargs: Any) -> Any:
        if getattr(function, "__name__", "").split(".")[0] in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            asked.append(min(args[0].shape[:2]))
        return call(function, args, kwargs)

    monkeypatch.setattr(_meta, "call", noted)
    model = OnSequences(LAYERS[name](), packed)
    compiled = tatara.compile(model)
    lengths = torch.tensor([4, 9, 6])  # of three sequences
    for _ in range(3):
        x = torch.randn(*((3, 9) if model.layer.batch_first else (9, 3)), 5, requires_grad=True)
        found = []
        for each in (model, compiled):
            result = each(x, lengths)
            found.append([result, *torch.autograd.grad(result.square().sum(), [x, *model.parameters()])])
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs)
    assert packed or all(steps <= 2 for steps in asked)
