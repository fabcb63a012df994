"""`make bench-products`: products of matrices by our own kernels beside eager and torch.compile (both the host's library).

    python bench/products.py [--threads N] [--rounds N]       GFLOP/s, medians of interleaved calls, and the ratios

The sizes are those of a transformer's layers with 512 tokens, forward and backward (n: as it lies, t: transposed), and of
their neighbours: few rows, short sums, one big square.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import tatara

LAYERS = [(512, 768, 768), (512, 768, 3072), (512, 3072, 768), (512, 768, 50257)]
OTHERS = [(8, 768, 3072), (32, 768, 3072), (128, 768, 768), (768, 64, 768), (300, 300, 300), (2048, 2048, 2048)]
LEAST_SECONDS = 0.003


def _operands(rows: int, inner: int, columns: int, form: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    left = torch.randn(rows, inner, dtype=dtype) if form[0] == "n" else torch.randn(inner, rows, dtype=dtype).t()
    right = torch.randn(inner, columns, dtype=dtype) if form[1] == "n" else torch.randn(columns, inner, dtype=dtype).t()
    return left, right


def _seconds(call: Callable[..., Any], operands: tuple[torch.Tensor, ...], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call(*operands)
    return (time.perf_counter() - start) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-rival", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tatara.config.matmul = "native"
    rows = [(*sizes, form, torch.float32) for sizes in LAYERS for form in ("nt", "nn", "tn")]
    rows += [(*sizes, "nt", torch.float32) for sizes in OTHERS] + [(512, 768, 3072, "nt", torch.float64)]
    print("sizes | form | dtype | eager | torch.compile | tatara | vs eager | vs torch.compile   (GFLOP/s)")
    gains: list[float] = []
    for rows_, inner, columns, form, dtype in rows:
        left, right = _operands(rows_, inner, columns, form, dtype)
        work = 2e-9 * rows_ * inner * columns

        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

        torch.compiler.reset()
        ways: dict[str, Callable[..., torch.Tensor]] = {"eager": product, "tatara": tatara.compile(product)}
        if not arguments.no_rival:
            ways["rival"] = torch.compile(product)
        for way in ways.values():
            for _ in range(2):
                way(left, right)
        times = max(1, int(LEAST_SECONDS / (work / 100)))
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, way in ways.items():
                samples[name].append(_seconds(way, (left, right), times))
        median = {name: statistics.median(taken) for name, taken in samples.items()}
        speed = {name: f"{work / taken:.0f}" for name, taken in median.items()}
        gains.append(median["eager"] / median["tatara"])
        against = f"{median['rival'] / median['tatara']:.2f}" if "rival" in median else "-"
        print(
            f"{rows_} x {inner} x {columns} | {form} | {str(dtype).removeprefix('torch.')} | {speed['eager']} | "
            f"{speed.get('rival', '-')} | {speed['tatara']} | {gains[-1]:.2f} | {against}",
            flush=True,
        )
    print(f"geomean against eager: {math.exp(statistics.fmean(map(math.log, gains))):.2f}")


if __name__ == "__main__":
    main()
