"""`make bench-data-sizes`: programs in which data decide sizes, beside eager and torch.compile, in one run; on a GPU where there
is one.

Each row runs in a process of its own with empty caches. Every call has another outcome; results are compared with eager's.
Graphs, breaks and recompiles are counted over 20 outcomes. Times are medians of rounds in which the contenders take turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import harness

Case = tuple[Callable[..., Any], Callable[[], list[Any]]]  # the program, and operands of one more outcome

OUTCOMES = 20


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def experts(training: bool = False) -> Case:
    """A mixture of 16 experts, two for each of 512 tokens; each expert finds its tokens."""
    import torch

    device, width, hidden = _device(), 128, 256
    router = torch.nn.Linear(width, 16, device=device)
    layers = torch.nn.ModuleList(
        torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, width))
        for _ in range(16)
    ).to(device)

    def step(x: Any) -> Any:
        best, chosen = torch.softmax(router(x), -1).topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, layer in enumerate(layers):
            token, place = torch.where(chosen == number)
            out = out.index_add(0, token, layer(x[token]) * best[token, place].unsqueeze(-1))
        return out

    if not training:
        router.requires_grad_(False)
        layers.requires_grad_(False)
    return step, lambda: [torch.randn(512, width, device=device)]


def experts_training() -> Case:
    """The same with gradients."""
    return experts(training=True)


def pruning() -> Case:
    """Tokens of low scores are dropped twice between layers."""
    import torch

    device, width = _device(), 256
    layers = [torch.nn.Linear(width, width, device=device).requires_grad_(False) for _ in range(3)]
    scores = [torch.nn.Linear(width, 1, device=device).requires_grad_(False) for _ in range(2)]

    def step(x: Any) -> Any:
        for layer, score in zip(layers, scores, strict=False):
            x = torch.nn.functional.gelu(layer(x))
            kept = score(x).squeeze(-1) > 0
            x = torch.nn.functional.layer_norm(x[kept], (width,))
        return torch.softmax(layers[-1](x), -1)

    return step, lambda: [torch.randn(1024, width, device=device)]


def graph_network() -> Case:
    """Messages along random edges between the nodes that occur, which unique() numbers."""
    import torch

    device, width = _device(), 64
    layer = torch.nn.Linear(2 * width, width, device=device).requires_grad_(False)

    def step(nodes: Any, edges: Any) -> Any:
        seen, ends = torch.unique(edges, return_inverse=True)
        x = nodes[seen]
        messages = torch.relu(layer(torch.cat([x[ends[0]], x[ends[1]]], -1)))
        summed = torch.zeros_like(x).index_add(0, ends[1], messages)
        return torch.tanh(summed + x)

    return step, lambda: [
        torch.randn(2000, width, device=device),
        torch.randint(0, 2000, (2, 4000), device=device),
    ]


def suppression() -> Case:
    """Boxes above a score, and of these the ones that no better box covers (by one matrix of overlaps)."""
    import torch

    device = _device()

    def step(boxes: Any, scores: Any) -> Any:
        kept = torch.nonzero(scores > 0.5).squeeze(1)
        order = scores[kept].argsort(descending=True)
        b = boxes[kept[order]]
        low, high = torch.maximum(b[:, None, :2], b[None, :, :2]), torch.minimum(b[:, None, 2:], b[None, :, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        areas = (b[:, 2:] - b[:, :2]).prod(-1)
        covers = shared / (areas[:, None] + areas[None, :] - shared) > 0.5
        best = ~covers.triu(1).any(0)
        return b[best] * 2

    def operands() -> list[Any]:
        corners = torch.rand(600, 2, device=device)
        return [
            torch.cat([corners, corners + 0.05 + torch.rand(600, 2, device=device) / 4], 1),
            torch.rand(600, device=device),
        ]

    return step, operands


def ragged() -> Case:
    """Sequences of random lengths in one row: each element gets its sequence's mean."""
    import torch

    device, width = _device(), 64
    layer = torch.nn.Linear(width, width, device=device).requires_grad_(False)

    def step(x: Any, lengths: Any) -> Any:
        owner = torch.repeat_interleave(torch.arange(lengths.shape[0], device=x.device), lengths)
        tokens = torch.nn.functional.gelu(layer(x[: owner.shape[0]]))
        sums = x.new_zeros(lengths.shape[0], width).index_add(0, owner, tokens)
        return tokens - (sums / lengths.clamp(min=1).unsqueeze(-1))[owner]

    return step, lambda: [
        torch.randn(64 * 40, width, device=device),
        torch.randint(0, 40, (64,), device=device),
    ]


CASES: dict[str, Callable[[], Case]] = {
    "experts": experts,
    "experts_training": experts_training,
    "pruning": pruning,
    "graph_network": graph_network,
    "suppression": suppression,
    "ragged": ragged,
}


def measure(name: str, rounds: int, rival: bool) -> dict[str, Any]:
    import torch

    import tatara

    torch.manual_seed(0)
    program, operands = CASES[name]()
    trained = [
        p
        for cell in program.__closure__ or ()
        if isinstance(m := cell.cell_contents, torch.nn.Module)
        for p in m.parameters()
    ]
    given = [operands() for _ in range(OUTCOMES)]

    def run(function: Callable[..., Any], arguments: list[Any]) -> Any:
        result = function(*arguments)
        if result.requires_grad:
            torch.autograd.grad(result.square().sum(), [p for p in trained if p.requires_grad])
        if result.is_cuda:
            torch.cuda.synchronize()
        return result.detach()

    ways: dict[str, Callable[..., Any]] = {"eager": program, "tatara": tatara.compile(program)}
    if rival:
        torch._dynamo.config.capture_dynamic_output_shape_ops = True
        torch._dynamo.config.capture_scalar_outputs = True
        ways["rival"] = torch.compile(program)
    result: dict[str, Any] = {}
    for way, function in list(ways.items()):
        start = time.perf_counter()
        try:
            run(function, given[0])
            result[f"{way}_cold_s"] = time.perf_counter() - start
            found = [run(function, arguments) for arguments in given]
        except Exception as error:  # the rival refuses some of these programs
            if way != "rival":
                raise
            result["rival"] = f"fails: {type(error).__name__}"
            del ways[way]
            continue
        if way == "eager":
            expected = found
        if way == "tatara":
            stats = tatara.stats()
            result |= {key: stats[key] for key in ("graphs", "breaks", "fallbacks", "recompiles")}
            worst = max(float((a - b).abs().max()) if a.numel() else 0.0 for a, b in zip(found, expected, strict=True))
            result["error"] = f"{worst:.0e}"
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for way in harness.in_turns(list(ways), rounds):
        start = time.perf_counter()
        for arguments in given:
            run(ways[way], arguments)
        samples[way].append((time.perf_counter() - start) / OUTCOMES)
    return result | {f"{way}_ms": statistics.median(times) * 1e3 for way, times in samples.items()}


COLUMNS = ["case", *harness.TIMES, "error", "graphs", "breaks", "fallbacks", "recompiles", "rival"]


def main() -> int:
    return harness.run_cases(__file__, __doc__, "case", list(CASES), measure, COLUMNS, ("eager", "rival"), rounds=9)


if __name__ == "__main__":
    raise SystemExit(main())
