"""`make bench-products-gpu`: products on a GPU beside eager and torch.compile, in one run, with their errors.

    python bench/products_gpu.py [--dtype float32|float16|bfloat16] [--rounds N] [--no-rival]

Times are those of the GPU: events around replays of a CUDA graph of one call, medians of rounds in which all take turns.
Errors are the largest ones against float64, as parts of the largest element. n: as it lies, t: transposed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, relu

import harness
import tatara
from kernels_gpu import product_times

SIZES = [(n, n, n) for n in (1024, 2048, 4096, 8192)]
LAYERS = [(512, 4096, 4096), (1024, 1024, 4096), (2048, 768, 3072), (4096, 3072, 768), (8192, 8192, 512)]
OTHERS = [(16384, 1024, 4096), (1000, 4000, 1601), (8191, 333, 1112), (256, 8192, 8192)]
COLUMNS = ["program", "eager_tflops", "tatara_tflops", "vs eager", "vs rival", "eager_error", "tatara_error"]

Program = Callable[..., Tensor]


def _product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def _layer(x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return gelu(linear(x, w.T, bias)) + residual


def _residual(x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return relu(linear(x, w.T, bias)) + residual


def _random(*sizes: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def _operands(rows: int, inner: int, columns: int, form: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    def make(m: int, n: int, way: str) -> Tensor:
        return _random(m, n, dtype=dtype) if way == "n" else _random(n, m, dtype=dtype).T

    return make(rows, inner, form[0]), make(inner, columns, form[1])


def _programs(dtype: torch.dtype) -> Iterator[tuple[str, float, Program, tuple[Tensor, ...]]]:
    def named(sizes: tuple[int, int, int], what: str) -> tuple[str, float]:
        rows, inner, columns = sizes
        return f"{rows} x {inner} x {columns} {what}", 2e-12 * rows * inner * columns

    for form in ("nt", "nn", "tn"):
        for sizes in SIZES + LAYERS:
            yield *named(sizes, form), _product, _operands(*sizes, form, dtype)
    for sizes in OTHERS:
        yield *named(sizes, "nt"), _product, _operands(*sizes, "nt", dtype)
    for sizes in SIZES + LAYERS + OTHERS:
        x, w = _operands(*sizes, "nt", dtype)
        rest = (_random(sizes[2], dtype=dtype), _random(sizes[0], sizes[2], dtype=dtype))
        yield *named(sizes, "bias gelu add"), _layer, (x, w, *rest)
        yield *named(sizes, "bias relu add"), _residual, (x, w, *rest)
    x, w = _random(16, 1024, 512, dtype=dtype), _random(16, 512, 1024, dtype=dtype)
    yield "16 x 1024 x 512 x 1024 batches", 2e-12 * 16 * 1024 * 512 * 1024, torch.bmm, (x, w)


def _measure(
    name: str, work: float, program: Program, operands: tuple[Tensor, ...], arguments: argparse.Namespace
) -> dict[str, Any]:
    torch.compiler.reset()
    ways: dict[str, Program] = {"eager": program, "tatara": tatara.compile(program)}
    if not arguments.no_rival:
        ways["rival"] = torch.compile(program)
    exact = program(*(x.double() for x in operands))
    row: dict[str, Any] = {"program": name}
    for way, function in ways.items():
        function(*operands)
        error = (function(*operands).double() - exact).abs().max() / exact.abs().max()
        row[f"{way}_error"] = f"{error:.1e}"
    del exact
    return row | product_times(ways, operands, work, arguments.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    rows = (_measure(*program, arguments) for program in _programs(getattr(torch, arguments.dtype)))
    harness.print_rows(rows, "program", COLUMNS, ["eager", "rival"])


if __name__ == "__main__":
    main()
