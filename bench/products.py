"""`make bench-products`: products of matrices by our own kernels beside eager and torch.compile (both the host's library).

    python bench/products.py [--threads N] [--rounds N]       GFLOP/s, medians of interleaved calls, and the ratios
    python bench/products.py --small [--follow]               matrices that stay in the cache, batches of them, float16

The sizes are those of a transformer's layers with 512 tokens, forward and backward (n: as it lies, t: transposed), and of
their neighbours: few rows, short sums, one big square. With --follow a bias and ReLU come after each.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import harness
import tatara

LAYERS = [(512, 768, 768), (512, 768, 3072), (512, 3072, 768), (512, 768, 50257)]
OTHERS = [(8, 768, 3072), (32, 768, 3072), (128, 768, 768), (768, 64, 768), (300, 300, 300), (2048, 2048, 2048)]
SMALL = [(10000, 3, 3), (10000, 3, 64), (10000, 8, 8), (1000, 8, 1000), (16, 16, 16), (64, 64, 64), (64, 64, 4)]
SMALL += [(1, 256, 256), (128, 128, 128), (32, 784, 10), (256, 256, 256), (197, 100, 50)]
BATCHES = [(10000, 4, 4, 4), (1024, 3, 3, 1), (1024, 8, 8, 8), (256, 16, 16, 16), (48, 64, 64, 64), (48, 128, 64, 128)]
BATCHES += [(1024, 8, 64, 1), (64, 10, 16, 10)]
LEAST_SECONDS = 0.003
COLUMNS = ["product", "eager_gflops", "rival_gflops", "tatara_gflops", "vs eager", "vs rival"]


def _made(form: str, *sizes: int) -> torch.Tensor:
    return torch.randn(sizes) if form == "n" else torch.randn(*sizes[:-2], sizes[-1], sizes[-2]).mT


def _measure(sizes: tuple[int, ...], form: str, dtype: torch.dtype, arguments: argparse.Namespace) -> dict[str, Any]:
    *batch, rows, inner, columns = sizes
    left, right = _made(form[0], *batch, rows, inner).to(dtype), _made(form[1], *batch, inner, columns).to(dtype)
    bias = torch.randn(columns).to(dtype)
    work = 2e-9 * math.prod(sizes)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a @ b + bias) if arguments.follow else a @ b

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
    name_of = " x ".join(map(str, sizes))
    row: dict[str, Any] = {"product": f"{name_of} {form} {str(dtype).removeprefix('torch.')}"}
    for name, taken in samples.items():
        median = statistics.median(taken)
        row |= {f"{name}_ms": median * 1e3, f"{name}_gflops": work / median}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tatara.config.matmul = "native"

    def small() -> Iterator[dict[str, Any]]:
        for sizes in [*SMALL, *BATCHES]:
            for form in ("nt", "nn"):
                yield _measure(sizes, form, torch.float32, arguments)
        for sizes in SMALL:
            yield _measure(sizes, "nt", torch.float16, arguments)

    def measured() -> Iterator[dict[str, Any]]:
        for sizes in LAYERS:
            for form in ("nt", "nn", "tn"):
                yield _measure(sizes, form, torch.float32, arguments)
        for sizes in OTHERS:
            yield _measure(sizes, "nt", torch.float32, arguments)
        yield _measure((512, 768, 3072), "nt", torch.float64, arguments)

    harness.print_rows(small() if arguments.small else measured(), "product", COLUMNS, ["eager", "rival"])


if __name__ == "__main__":
    main()
