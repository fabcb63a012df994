"""`make bench-checkpoint`: peak memory of training steps of a 12-layer model whose layers are checkpoints.

plain: eager without checkpoints, eager: with them. "split" compiles the model and leaves backward and optimizer outside,
"whole" compiles the step. Each way runs in a process of its own; peak memory is that of three steps, compiled before, over what
the process holds between them. Losses are compared with eager's from the same weights and seed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import harness

FORMS = ["non-reentrant", "reentrant"]
WAYS = ["plain", "eager", "split", "whole"]
LAYERS, WIDTH, HEADS = 12, 256, 4
WARM = 4  # steps in which everything is compiled


def _model(checkpoints: bool, reentrant: bool, dropout: float) -> Any:
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=dropout, batch_first=True)
                for _ in range(LAYERS)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant) if checkpoints else layer(x)
            return x

    torch.manual_seed(0)
    return Model()


def measure(form: str, way: str, batch: int, length: int, dropout: float) -> dict[str, Any]:
    """Peak bytes and the losses of the steps."""
    import torch

    import tatara

    model = _model(way != "plain", form == "reentrant", dropout)
    forward = tatara.compile(model) if way == "split" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(batch, length, WIDTH).requires_grad_()

    def step() -> torch.Tensor:
        loss = forward(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = tatara.compile(step) if way == "whole" else step

    def run() -> float:
        loss = float(compiled())
        optimizer.zero_grad(set_to_none=True)
        return loss

    torch.manual_seed(1)
    losses = [run() for _ in range(WARM)]
    return {"peak": harness.peak_of(run, 9), "losses": losses, "breaks": tatara.stats()["breaks"]}


def in_processes(form: str, options: list[str]) -> dict[str, Any]:
    """A row of the table."""
    ways = {
        w: harness.in_process(__file__, ["--child", form, "--way", w, *options], **harness.COUNTED_MEMORY) for w in WAYS
    }
    failed = [f"{way}: {found['failed']}" for way, found in ways.items() if "failed" in found]
    if failed:
        return {"failed": "; ".join(failed)}
    row: dict[str, Any] = {f"{way}_mb": found["peak"] / 1e6 for way, found in ways.items()}
    eager = ways["eager"]
    for way in ("split", "whole"):
        row[f"{way}/eager"] = ways[way]["peak"] / eager["peak"]
        errors = [abs(a - b) / abs(b) for a, b in zip(ways[way]["losses"], eager["losses"], strict=True)]
        row[f"{way} loss error"] = max(errors)
        row[f"{way} breaks"] = ways[way]["breaks"]
    return row


COLUMNS = [
    "form",
    *(f"{way}_mb" for way in WAYS),
    *(f"{way}{what}" for what in ("/eager", " loss error", " breaks") for way in ("split", "whole")),
]


def main() -> int:
    parser = harness.parser_of(__doc__, "forms", FORMS, 0)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.1)
    a = parser.parse_args()
    if a.child:
        print(json.dumps(measure(a.child, a.way, a.batch, a.length, a.dropout)))
        return 0
    options = ["--batch", str(a.batch), "--length", str(a.length), "--dropout", str(a.dropout)]
    rows = ({"form": form, **in_processes(form, options)} for form in a.forms or FORMS)
    return 1 if harness.print_rows(rows, "form", COLUMNS, ()) else 0


if __name__ == "__main__":
    sys.exit(main())
