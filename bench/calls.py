"""`make bench-calls`: host time per call, warm start, shapes. Ratios in one run, medians."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

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


def small_call() -> None:
    x = torch.randn(16)

    def add_one(value: torch.Tensor) -> torch.Tensor:
        return value + 1

    compiled = tatara.compile(add_one)
    compiled(x)
    eager = _per_call_us(lambda: add_one(x))
    ours = _per_call_us(lambda: compiled(x))
    print(f"x + 1 on 16 elements: eager {eager:.2f} us, tatara {ours:.2f} us, ratio {ours / eager:.2f} (target 0.65)")


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


def warm_start() -> None:
    """The second process must find everything in the disk cache and never load LLVM."""
    script = _WARM.format(bench=os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, TATARA_CACHE_DIR=cache, PATH="", HF_HUB_OFFLINE="1")
        for label in ("cold", "warm", "warm"):
            done = subprocess.run(
                [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
            )
            seconds, loaded = done.stdout.split()
            print(f"BERT {label}: {float(seconds):.3f} s, LLVM loaded: {loaded} (target warm 0.15 s, False)")


def shapes() -> None:
    torch.manual_seed(0)
    model = zoo.bert().eval()
    compiled = tatara.compile(model)
    before = tatara.stats()
    with torch.no_grad():
        for batch, length in [
            (1, 16),
            (2, 16),
            (2, 32),
            (3, 48),
            (4, 128),
            (5, 7),
            (8, 64),
            (1, 100),
            (6, 33),
            (7, 12),
        ]:
            ids = torch.randint(0, 30522, (batch, length))
            torch.testing.assert_close(
                zoo.first_tensor(compiled(ids)), zoo.first_tensor(model(ids)), rtol=1e-3, atol=1e-4
            )
    graphs = tatara.stats()["graphs"] - before["graphs"]
    print(f"BERT at 10 shapes: {graphs} compilations (target at most 2)")


if __name__ == "__main__":
    small_call()
    shapes()
    warm_start()
