"""`make bench-attention-gpu`: attention by functions of scores and masks on a GPU beside eager and torch.compile, in one run.

    python bench/attention_gpu.py [--dtype float16|bfloat16] [--length N] [--rounds N] [--backward] [--no-rival]

Times are those of the GPU: events around a call, medians of rounds in which all take turns.
Errors are the largest ones against eager, which keeps scores in float32. Memory is what one call takes beside its result.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import harness
import tatara

COLUMNS = ["program", "eager_ms", "tatara_ms", "rival_ms", "vs eager", "vs rival", "tatara_error", "tatara_mb"]
WINDOW, PREFIX, CAP = 512, 512, 20.0

Program = Callable[..., Tensor]


def _causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def _window(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (i - j < WINDOW)


def _prefix(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (j < PREFIX) | (i >= j)


def _alibi(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + (j - i) * torch.exp2(-(h + 1) * 0.5)


def _cap(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return torch.tanh(score / CAP) * CAP


def _relative(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + (i - j)


def _programs(length: int) -> Iterator[tuple[str, int, int, Any, Any]]:
    """Name, heads of keys, width, function of scores, mask."""
    documents = (torch.rand(4, length, device="cuda") < 0.003).cumsum(1)

    def document(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (documents[b, i] == documents[b, j]) & (i >= j)

    for width in (64, 128):
        yield f"full, {width}", 16, width, None, None
        yield f"causal, {width}", 16, width, None, _causal
    yield "causal, heads share keys, 128", 4, 128, None, _causal
    yield "window, 64", 16, 64, None, _window
    yield "prefix, 64", 16, 64, None, _prefix
    yield "documents, 64", 16, 64, None, document
    yield "alibi, 64", 16, 64, _alibi, _causal
    yield "soft cap, 64", 16, 64, _cap, None
    yield "relative, 64", 16, 64, _relative, None


def _milliseconds(function: Program, *args: Tensor) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    function(*args)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def _results(function: Program, *args: Tensor) -> list[Tensor]:
    """With gradients, where there are some."""
    return [function(*args).detach(), *(each.grad.clone() for each in args if each.grad is not None)]


def _with_gradients(function: Program) -> Program:
    """The result, and a backward pass by it."""

    def run(*args: Tensor) -> Tensor:
        for each in args:
            each.grad = None
        out = function(*args)
        out.backward(out.detach())
        return out

    return run


def _measure(
    name: str, kv_heads: int, width: int, score: Any, mask: Any, arguments: argparse.Namespace
) -> dict[str, Any]:
    torch.compiler.reset()
    length, dtype = arguments.length, getattr(torch, arguments.dtype)
    q = torch.randn(4, 16, length, width, device="cuda", dtype=dtype)
    k, v = (torch.randn(4, kv_heads, length, width, device="cuda", dtype=dtype) for _ in range(2))
    batch = 4 if name.startswith("documents") else None
    blocks = create_block_mask(mask, batch, None, length, length, device="cuda") if mask is not None else None

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=kv_heads != 16)

    ways: dict[str, Program] = {"eager": program, "tatara": tatara.compile(program)}
    if not arguments.no_rival:
        ways["rival"] = torch.compile(program)
    if arguments.backward:
        for each in (q, k, v):
            each.requires_grad_()
        ways = {way: _with_gradients(function) for way, function in ways.items()}
    row: dict[str, Any] = {"program": name}
    expected = _results(ways["eager"], q, k, v)
    for way, function in ways.items():
        for _ in range(3):
            results = _results(function, q, k, v)
        errors = [(mine - theirs).abs().max() for mine, theirs in zip(results, expected, strict=True)]
        row[f"{way}_error"] = f"{max(errors):.1e}"
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        function(q, k, v)
        row[f"{way}_mb"] = round((torch.cuda.max_memory_allocated() - before - results[0].nbytes) / 1e6)
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for way in harness.in_turns(list(ways), arguments.rounds):
        samples[way].append(_milliseconds(ways[way], q, k, v))
    return row | {f"{way}_ms": statistics.median(taken) for way, taken in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float16", "bfloat16"], default="bfloat16")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--backward", action="store_true", help="a forward and a backward pass")
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    rows = (_measure(*program, arguments) for program in _programs(arguments.length))
    harness.print_rows(rows, "program", COLUMNS, ["eager", "rival"])


if __name__ == "__main__":
    main()
