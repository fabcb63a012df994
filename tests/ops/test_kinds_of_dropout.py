"""Dropout of channels and of SELU's inputs, and of tensors that lie in any order: numbers, state and layout as eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tatara

F = nn.functional
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout1d": lambda x: F.dropout1d(x.flatten(2), 0.3),
    "dropout2d": lambda x: F.dropout2d(x, 0.4),
    "dropout3d": lambda x: F.dropout3d(x.unsqueeze(2), 0.4),
    "alpha": lambda x: F.alpha_dropout(x.contiguous(), 0.2),
    "feature_alpha": lambda x: F.feature_alpha_dropout(x, 0.2),
    "in place": lambda x: F.dropout2d(x * 2, 0.4, inplace=True),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 1),
    "sliced": lambda x: x[:, :, 1:],
    "expanded": lambda x: x[:, :1].expand(-1, 5, -1, -1),
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_as_eager(kind: str, layout: str, device: str, fresh: None) -> None:
    def f(x: Tensor) -> Tensor:
        return KINDS[kind](LAYOUTS[layout](x).sin()) * 2 + torch.rand(1, device=x.device)

    compiled = tatara.compile(f)
    for needs in (False, True):
        x = torch.randn(6, 5, 4, 8, device=device)
        for seed in range(4):
            results = []
            for run in (f, compiled):
                leaf = x.clone().requires_grad_(needs)
                torch.manual_seed(seed)
                y = run(leaf)
                if needs:
                    y.square().sum().backward()
                results.append((y.detach(), leaf.grad, torch.rand(3, device=device)))
            for a, b in zip(*results, strict=True):
                if a is None:
                    assert b is None
                    continue
                torch.testing.assert_close(b, a)
                assert b.stride() == a.stride()


@pytest.mark.parametrize("kind", ["dropout2d", "alpha", "feature_alpha"])
def test_steps_are_one_graph(kind: str, fresh: None) -> None:
    layer = nn.Conv2d(3, 5, 3)

    def step(x: Tensor) -> list[Tensor]:
        layer.zero_grad()
        loss = KINDS[kind](layer(x)).square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]

    compiled = tatara.compile(step)
    x = torch.randn(2, 3, 8, 8)
    for seed in range(4):
        torch.manual_seed(seed)
        expected = step(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected)
    report = tatara.explain(compiled)(x)
    assert not report.breaks and not any(graph.fallback for graph in report.graphs)


@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("kind", [F.dropout2d, F.alpha_dropout, F.feature_alpha_dropout])
def test_ends(kind: Callable[..., Tensor], p: float, fresh: None) -> None:
    compiled = tatara.compile(lambda x: kind(x, p))
    x = torch.randn(2, 3, 4, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), kind(x, p))
