"""Programs in which torch.compile has been used, too: it patches torch.nn.Module for its own book-keeping."""

from __future__ import annotations

import torch

import tatara


class Sliced(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:2]:  # makes a ModuleList
            x = layer(x).relu()
        return x


def test_modules_made_inside() -> None:
    model = Sliced().eval()
    x = torch.randn(3, 4)
    with torch.no_grad():
        expected = torch.compile(model, backend="eager")(x)
        assert not torch.nn.Module.___needs_generation_tag_patch  # type: ignore[attr-defined]
        report = tatara.explain(model)(x)
        assert len(report.graphs) == 1 and not report.breaks
        compiled = tatara.compile(model, fullgraph=True)
        before = tatara.stats()
        for _ in range(4):
            torch.testing.assert_close(compiled(x), expected)
        assert tatara.stats()["recompiles"] == before["recompiles"]
        assert tatara.stats()["graphs"] == before["graphs"] + 1


class PutBack(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer = self.layer.to(torch.float32)
        return self.layer(x).relu()


def test_a_module_is_put_where_it_is() -> None:
    """torch.compile holds modules by weak references with a callback: putting back what is there ends none."""
    x = torch.randn(3, 4)
    with torch.no_grad():
        torch.compile(Sliced().eval(), backend="eager")(x)
        model = PutBack()
        report = tatara.explain(model)(x)
        assert len(report.graphs) == 1 and not report.breaks
        torch.testing.assert_close(report.result, model(x))
