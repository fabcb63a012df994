"""`make bench-grouped-gpu`: products of groups of rows with a matrix each (mixtures of experts), beside torch's own, in one run.

    python bench/grouped_products.py [--dtype bfloat16|float16] [--rounds N]

Times are those of the GPU: events around replays of a CUDA graph of one call, medians of rounds in which both take turns.
A row: rows x inner x columns, groups, how rows are spread. even: equally; skewed: half of them in one of eight groups, a
quarter in the next ones, and some groups have none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import silu

import harness
from kernels_gpu import beside_eager

LAYERS = [(8, 4096, 14336), (64, 2048, 1408), (128, 2048, 768), (16, 5120, 8192)]
ROWS = [512, 4096, 32768]
COLUMNS = ["program", "eager_tflops", "tatara_tflops", "vs eager"]


def _ends(rows: int, groups: int, skewed: bool) -> Tensor:
    shares = torch.ones(groups)
    if skewed:
        shares = torch.tensor([0.5**i for i in range(8)]).repeat((groups + 7) // 8)[:groups]
        shares[5::8] = 0
    counts = (shares / shares.sum() * rows).long()
    counts[0] += rows - counts.sum()
    return counts.cumsum(0).to(torch.int32).cuda()


def _product(x: Tensor, w: Tensor, offs: Tensor) -> Tensor:
    return torch._grouped_mm(x, w, offs=offs)


def _gated(x: Tensor, w: Tensor, offs: Tensor) -> Tensor:
    return silu(torch._grouped_mm(x, w, offs=offs)) * 0.5


def _turned(x: Tensor, w: Tensor, offs: Tensor) -> Tensor:
    return torch._grouped_mm(x, w.mT, offs=offs)


def _inner(x: Tensor, y: Tensor, offs: Tensor) -> Tensor:
    return torch._grouped_mm(x.T, y, offs=offs)


def _programs(dtype: torch.dtype) -> Iterator[tuple[str, float, Callable[..., Tensor], tuple[Tensor, ...]]]:
    for groups, inner, columns in LAYERS:
        w = torch.randn(groups, inner, columns, device="cuda", dtype=dtype) / inner**0.5
        turned = torch.randn(groups, columns, inner, device="cuda", dtype=dtype) / inner**0.5
        for rows in ROWS:
            x = torch.randn(rows, inner, device="cuda", dtype=dtype)
            y = torch.randn(rows, columns, device="cuda", dtype=dtype)
            for skewed in (False, True):
                offs = _ends(rows, groups, skewed)
                name = f"{rows} x {inner} x {columns}, {groups} {'skewed' if skewed else 'even'}"
                work = 2e-12 * rows * inner * columns
                yield name, work, _product, (x, w, offs)
                yield name + ", w.T", work, _turned, (x, turned, offs)
                yield name + ", inner", work, _inner, (x, y, offs)
                if not skewed:
                    yield name + ", silu", work, _gated, (x, w, offs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float16", "bfloat16"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = (beside_eager(*program, arguments.rounds) for program in _programs(getattr(torch, arguments.dtype)))
    harness.print_rows(rows, "program", COLUMNS, ["eager"])


if __name__ == "__main__":
    main()
