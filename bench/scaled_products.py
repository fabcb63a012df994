"""`make bench-scaled-gpu`: products of 8-bit floats with scales (`torch._scaled_mm`), beside torch's own, in one run.

    python bench/scaled_products.py [--rounds N]

Times are those of the GPU: events around replays of a CUDA graph of one call, medians of rounds in which both take turns.
A row: rows x inner x columns, and its scales. tensor: one of each operand; rows: of each row and column; blocks: of each
row and 128 elements of the inner dimension, and of 128 x 128 of the weight. fast: sums of the tensor cores alone, else
those of 128 elements are added in float32. relu: something follows, element by element.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import relu

import harness
from kernels_gpu import beside_eager

SHAPES = [
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (4096, 4096, 14336),
    (4096, 14336, 4096),
    (16384, 1024, 4096),
    (3000, 4096, 4096),
    (1024, 4096, 4096),
    (512, 4096, 14336),
    (128, 4096, 4096),
    (16, 4096, 4096),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
]
COLUMNS = ["program", "eager_tflops", "tatara_tflops", "vs eager"]
Program = tuple[str, float, Callable[..., Tensor], tuple[Tensor, ...]]


def _plain(fast: bool) -> Callable[..., Tensor]:
    def program(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch._scaled_mm(x, w.t(), a, b, out_dtype=torch.bfloat16, use_fast_accum=fast)

    return program


def _followed(fast: bool) -> Callable[..., Tensor]:
    def program(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return relu(torch._scaled_mm(x, w.t(), a, b, out_dtype=torch.bfloat16, use_fast_accum=fast)) * 0.5

    return program


def _scales(kind: str, rows: int, inner: int, columns: int) -> tuple[Tensor, Tensor]:
    def some(*sizes: int) -> Tensor:
        return torch.rand(sizes, device="cuda") + 0.5

    if kind == "tensor":
        return some(), some()
    if kind == "rows":
        return some(rows, 1), some(1, columns)
    return some(inner // 128, rows).t(), some(columns // 128, inner // 128).t()


def _programs() -> Iterator[Program]:
    for rows, inner, columns in SHAPES:
        x = torch.randn(rows, inner, device="cuda").to(torch.float8_e4m3fn)
        w = torch.randn(columns, inner, device="cuda").to(torch.float8_e4m3fn)
        work = 2e-12 * rows * inner * columns
        for kind in ("tensor", "rows", "blocks"):
            operands = (x, w, *_scales(kind, rows, inner, columns))
            for fast in (False, True) if kind != "blocks" else (False,):
                name = f"{rows} x {inner} x {columns} {kind}{' fast' if fast else ''}"
                yield name, work, _plain(fast), operands
                yield name + ", relu", work, _followed(fast), operands


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = (beside_eager(*program, arguments.rounds) for program in _programs())
    harness.print_rows(rows, "program", COLUMNS, ["eager"])


if __name__ == "__main__":
    main()
