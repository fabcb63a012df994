"""`make bench-thin`: products with few rows, of weights as they are and quantised, beside eager and torch.compile.

    python bench/thin_products.py [--device cuda] [--rows 1 2 ...] [--kinds int8 ...] [--rounds N] [--no-rival]

Medians of interleaved calls in microseconds. "vs float" is the eager product of a float weight of the rows' type, which is what a
quantised weight is to beat; "GB/s" counts the bytes of the weight alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.functional import linear

import harness
import tatara

SIZES = [(4096, 4096), (11008, 4096), (1024, 1024)]  # results, and what each sums over
GROUP = 32
LEAST_SECONDS = 0.002
COLUMNS = ["product", "eager_us", "rival_us", "float_us", "tatara_us", "GB/s", "vs eager", "vs rival", "vs float"]


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return linear(x, w)


def int8(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return linear(x, w.to(x.dtype) * scale[:, None])


def int4(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    w = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1, GROUP).to(x.dtype)
    return linear(x, ((w - zero[:, :, None]) * scale[:, :, None]).reshape(packed.shape[0], -1))


def nf4(x: torch.Tensor, packed: torch.Tensor, table: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    places = torch.stack([packed >> 4, packed & 15], -1).reshape(packed.shape[0], -1).long()
    w = table[places].reshape(packed.shape[0], -1, 2 * GROUP) * scale[:, :, None]
    return linear(x, w.reshape(packed.shape[0], -1))


def fp8(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return linear(x, w.to(x.dtype) * scale)


def half(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return linear(x, w.to(x.dtype))


def _weight(kind: str, outer: int, inner: int, dtype: torch.dtype, device: str) -> tuple[Callable[..., Any], list[Any]]:
    def scales(count: int) -> torch.Tensor:
        return (torch.rand(outer, inner // count, device=device) * 0.02 + 0.01).to(dtype)

    if kind == "plain":
        return plain, [torch.randn(outer, inner, device=device, dtype=dtype)]
    if kind == "int8":
        return int8, [torch.randint(-127, 128, (outer, inner), dtype=torch.int8, device=device), scales(inner)[:, 0]]
    packed = torch.randint(0, 256, (outer, inner // 2), dtype=torch.uint8, device=device)
    if kind == "int4":
        return int4, [packed, scales(GROUP), torch.full((outer, inner // GROUP), 8.0, device=device, dtype=dtype)]
    if kind == "nf4":
        return nf4, [packed, torch.linspace(-1, 1, 16, device=device).to(dtype), scales(2 * GROUP)]
    if kind == "fp8":
        return fp8, [torch.randn(outer, inner, device=device).to(torch.float8_e4m3fn), scales(inner)[:1, 0]]
    if kind == "half":
        return half, [torch.randn(outer, inner, device=device, dtype=torch.bfloat16)]
    raise ValueError(kind)


def _measure(
    kind: str, rows: int, sizes: tuple[int, int], dtype: torch.dtype, arguments: argparse.Namespace
) -> dict[str, Any]:
    device = arguments.device
    function, weight = _weight(kind, *sizes, dtype, device)
    x = torch.randn(rows, sizes[1], device=device, dtype=dtype)
    dense = torch.randn(*sizes, device=device, dtype=dtype)
    torch.compiler.reset()
    ways: dict[str, tuple[Callable[..., torch.Tensor], list[Any]]] = {
        "eager": (function, weight),
        "tatara": (tatara.compile(function), weight),
        "float": (plain, [dense]),
    }
    if not arguments.no_rival:
        ways["rival"] = (torch.compile(function), weight)
    synchronise = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def seconds(name: str, times: int) -> float:
        call, operands = ways[name]
        synchronise()
        start = time.perf_counter()
        for _ in range(times):
            call(x, *operands)
        synchronise()
        return (time.perf_counter() - start) / times

    times = {}
    for name in ways:
        seconds(name, 2)
        times[name] = max(1, min(200, int(LEAST_SECONDS / seconds(name, 1))))
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for name in harness.in_turns(list(ways), arguments.rounds):
        samples[name].append(seconds(name, times[name]))
    row: dict[str, Any] = {"product": f"{kind} {rows} x {sizes[1]} x {sizes[0]} {str(dtype).removeprefix('torch.')}"}
    for name, taken in samples.items():
        row[f"{name}_us"] = statistics.median(taken) * 1e6
    row["GB/s"] = sum(w.numel() * w.element_size() for w in weight) / row["tatara_us"] * 1e-3
    row["vs float"] = row["float_us"] / row["tatara_us"]
    return {**row, **{f"{name}_ms": row[f"{name}_us"] * 1e-3 for name in samples}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--kinds", nargs="*", default=["plain", "int8", "int4", "nf4", "fp8", "half"])
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="results and what each sums over, in pairs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    sizes = list(zip(arguments.sizes[::2], arguments.sizes[1::2], strict=True)) or SIZES

    def measured() -> Iterator[dict[str, Any]]:
        for dtype in arguments.dtypes:
            for kind in arguments.kinds:
                for size in sizes:
                    for rows in arguments.rows:
                        yield _measure(kind, rows, size, getattr(torch, dtype), arguments)

    harness.print_rows(measured(), "product", COLUMNS, ["eager", "rival"])


if __name__ == "__main__":
    main()
