"""`make bench-products`: products of matrices by our own kernels beside eager and torch.compile (both the host's library).

    python bench/products.py [--threads N] [--rounds N]       GFLOP/s, medians of interleaved calls, and the ratios

The sizes are those of a transformer's layers with 512 tokens, forward and backward (n: as it lies, t: transposed), and of
their neighbours: few rows, short sums, one big square.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import harness
import tatara

LAYERS = [(512, 768, 768), (512, 768, 3072), (512, 3072, 768), (512, 768, 50257)]
OTHERS = [(8, 768, 3072), (32, 768, 3072), (128, 768, 768), (768, 64, 768), (300, 300, 300), (2048, 2048, 2048)]
LEAST_SECONDS = 0.003
COLUMNS = ["product", "eager_gflops", "rival_gflops", "tatara_gflops", "vs eager", "vs rival"]


def _operands(rows: int, inner: int, columns: int, form: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    left = torch.randn(rows, inner, dtype=dtype) if form[0] == "n" else torch.randn(inner, rows, dtype=dtype).t()
    right = torch.randn(inner, columns, dtype=dtype) if form[1] == "n" else torch.randn(columns, inner, dtype=dtype).t()
    return left, right


def _measure(
    rows: int, inner: int, columns: int, form: str, dtype: torch.dtype, arguments: argparse.Namespace
) -> dict[str, Any]:
    left, right = _operands(rows, inner, columns, form, dtype)
    work = 2e-9 * rows * inner * columns

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
    for name in harness.in_turns(list(ways), arguments.rounds):
        start = time.perf_counter()
        for _ in range(times):
            ways[name](left, right)
        samples[name].append((time.perf_counter() - start) / times)
    row: dict[str, Any] = {"product": f"{rows} x {inner} x {columns} {form} {str(dtype).removeprefix('torch.')}"}
    for name, taken in samples.items():
        median = statistics.median(taken)
        row |= {f"{name}_ms": median * 1e3, f"{name}_gflops": work / median}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tatara.config.matmul = "native"

    def measured() -> Iterator[dict[str, Any]]:
        for sizes in LAYERS:
            for form in ("nt", "nn", "tn"):
                yield _measure(*sizes, form, torch.float32, arguments)
        for sizes in OTHERS:
            yield _measure(*sizes, "nt", torch.float32, arguments)
        yield _measure(512, 768, 3072, "nt", torch.float64, arguments)

    harness.print_rows(measured(), "product", COLUMNS, ["eager", "rival"])


if __name__ == "__main__":
    main()
