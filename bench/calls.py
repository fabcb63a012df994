"""`make bench-calls`: host time per call, warm start, shapes. Ratios in one run, medians."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

import tatara
import zoo


def _per_call_us(function: Callable[[], Any], calls: int = 2000, rounds: int = 15) -> float:
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        samples.append((time.perf_counter() - start) / calls)
    return statistics.median(samples) * 1e6


Figures = dict[str, float]


def small_call() -> Figures:
    x = torch.randn(16)

    def add_one(value: torch.Tensor) -> torch.Tensor:
        return value + 1

    compiled = tatara.compile(add_one)
    compiled(x)
    eager = _per_call_us(lambda: add_one(x))
    ours = _per_call_us(lambda: compiled(x))
    print(f"x + 1 on 16 elements: eager {eager:.2f} us, tatara {ours:.2f} us, ratio {ours / eager:.2f} (target 0.65)")
    return {"x + 1": ours / eager}


_WARM = """
import sys, time
sys.path.insert(0, {bench!r})
import torch, zoo, tatara
torch.manual_seed(0)
model = zoo.bert().eval()
ids = torch.zeros(4, 128, dtype=torch.long)
with torch.no_grad():
    model(ids)
    start = time.perf_counter()
    compiled = tatara.compile(model)
    compiled(ids)
    first = time.perf_counter() - start
    start = time.perf_counter()
    compiled(ids)
    second = time.perf_counter() - start
print(first - second, any("libllvmlite" in line for line in open("/proc/self/maps")))
"""


def warm_start() -> Figures:
    """The second process must find everything in the disk cache and never load LLVM."""
    script = _WARM.format(bench=os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, TATARA_CACHE_DIR=cache, PATH="", HF_HUB_OFFLINE="1")
        took: dict[str, list[float]] = {}
        for label in ("cold", "warm", "warm"):
            done = subprocess.run(
                [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
            )
            seconds, loaded = done.stdout.split()
            took.setdefault(label, []).append(float(seconds))
            print(f"BERT {label}: {float(seconds):.3f} s, LLVM loaded: {loaded} (target warm 0.15 s, False)")
    return {label: min(seconds) for label, seconds in took.items()}


PAIRS = [(2, 16), (3, 16), (3, 32), (4, 48), (4, 128), (5, 7), (8, 64), (6, 100), (9, 33), (7, 12)]


def shapes() -> Figures:
    """A batch of one is a program of its own (0 and 1 are no symbols): a second line counts it in."""
    torch.manual_seed(0)
    model = zoo.bert().eval()
    for label, pairs in (("", PAIRS), (", then 2 lengths of one row", [(1, 100), (1, 20)])):
        if not label:
            compiled = tatara.compile(model)
            before = tatara.stats()["graphs"]
        with torch.no_grad():
            for batch, length in pairs:
                ids = torch.randint(0, 30522, (batch, length))
                torch.testing.assert_close(
                    zoo.first_tensor(compiled(ids)), zoo.first_tensor(model(ids)), rtol=1e-3, atol=1e-4
                )
        graphs = tatara.stats()["graphs"] - before
        print(f"BERT at {len(PAIRS)} shapes{label}: {graphs} compilations (target at most {2 if not label else 4})")
    return {"compilations": graphs}


def _narrow_bert(layers: int) -> torch.nn.Module:
    """As many modules and parameters as BERT has, with little work in its kernels."""
    config = transformers.BertConfig(
        num_hidden_layers=layers, hidden_size=48, num_attention_heads=12, intermediate_size=64, vocab_size=100
    )
    return transformers.BertModel(config).eval()


def _after_a_change(compiled: Any, ids: torch.Tensor) -> float:
    """Guards beside the parameters. Python 3.11 tells that no dict at all changed, or else asks each that is guarded."""
    scratch: dict[str, object] = {}
    samples = []
    for _ in range(3000):
        scratch["key"] = object()
        samples.append(compiled._compiled_forward._guard_seconds(1, ids)[1])
    return min(samples)


def guards() -> Figures:
    """Guards alone, and all that a call does beside its kernels. The best of many rounds: other load only adds."""
    ids = torch.zeros(2, 16, dtype=torch.long)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds, after_change = {}, {}
    with torch.no_grad():
        for layers in (4, 24):
            model = _narrow_bert(layers)
            compiled = tatara.compile(model)
            compiled(ids)
            rounds = [compiled._compiled_forward._guard_seconds(100, ids) for _ in range(200)]
            whole_guard, beside = min(r[0] for r in rounds), min(r[1] for r in rounds)
            seconds[layers] = whole_guard, beside, len(list(model.parameters()))
            after_change[layers] = _after_a_change(compiled, ids)
            if layers == 4:
                whole = min(
                    _per_call_us(lambda compiled=compiled: compiled(ids), calls=5, rounds=1) for _ in range(200)
                )
                kernels = []
                for _ in range(200):
                    with tatara.kernel_history() as history:
                        compiled(ids)
                    kernels.append(sum(e.microseconds for e in history.events if e.kind in ("launch", "host_call")))
    torch.set_num_threads(threads)
    (few, few_beside, parameters), (many, many_beside, _) = seconds[4], seconds[24]
    print(
        f"BERT's guards: {few * 1e6:.1f} us, {(few - few_beside) * 1e9 / parameters:.0f} ns a parameter of it "
        "(target 10 us)"
    )
    print(
        f"guards of 24 layers: {many * 1e6:.1f} us; beside the parameters {many_beside * 1e6:.2f} us against "
        f"{few_beside * 1e6:.2f} of 4 layers, {many_beside / few_beside:.2f} times (target 1.5)"
    )
    few_after, many_after = after_change[4], after_change[24]
    print(
        f"the same where some dict of the process changed since the last call: {many_after * 1e6:.2f} us against "
        f"{few_after * 1e6:.2f}, {many_after / few_after:.2f} times"
    )
    print(f"BERT's host work beside its kernels: {whole - min(kernels):.1f} us of {whole:.1f} us (target 40)")
    return {"guards": few, "guards of 24 layers": many, "guards after a change": many_after, "narrow BERT": whole}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="all figures once more, as the last line")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # each figure as it is measured, into a file as well
    figures: Figures = {}
    for measure in (small_call, shapes, guards, warm_start):
        figures.update(measure())
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
