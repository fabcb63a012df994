"""Elementary functions: ours beside eager and beside the C library called for each element, on one thread.

    python bench/elementary.py [NAME ...]       nanoseconds per element, medians of interleaved runs, and the ratios

Needs a C compiler for the C library's column.
"""

from __future__ import annotations

import ctypes
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import tatara

COUNT = 1 << 16
ROUNDS = 15

# Name, function, bounds of its first argument, C name ("" where C has none), operands.
Row = tuple[str, Callable[..., Any], float, float, str, int]
ROWS: list[Row] = [
    ("exp", torch.exp, -10, 10, "exp", 1),
    ("exp2", torch.exp2, -10, 10, "exp2", 1),
    ("expm1", torch.expm1, -5, 5, "expm1", 1),
    ("log", torch.log, 0.01, 100, "log", 1),
    ("log2", torch.log2, 0.01, 100, "log2", 1),
    ("log10", torch.log10, 0.01, 100, "log10", 1),
    ("log1p", torch.log1p, -0.9, 100, "log1p", 1),
    ("sin", torch.sin, -100, 100, "sin", 1),
    ("sin, all sizes", torch.sin, -1e30, 1e30, "sin", 1),
    ("cos", torch.cos, -100, 100, "cos", 1),
    ("tan", torch.tan, -100, 100, "tan", 1),
    ("asin", torch.asin, -1, 1, "asin", 1),
    ("acos", torch.acos, -1, 1, "acos", 1),
    ("atan", torch.atan, -10, 10, "atan", 1),
    ("sinh", torch.sinh, -10, 10, "sinh", 1),
    ("cosh", torch.cosh, -10, 10, "cosh", 1),
    ("tanh", torch.tanh, -5, 5, "tanh", 1),
    ("asinh", torch.asinh, -10, 10, "asinh", 1),
    ("acosh", torch.acosh, 1, 10, "acosh", 1),
    ("atanh", torch.atanh, -1, 1, "atanh", 1),
    ("sigmoid", torch.sigmoid, -10, 10, "", 1),
    ("erf", torch.erf, -3, 3, "erf", 1),
    ("erfc", torch.erfc, -3, 5, "erfc", 1),
    ("erfinv", torch.erfinv, -1, 1, "", 1),
    ("lgamma", torch.lgamma, -5, 20, "lgamma", 1),
    ("digamma", torch.digamma, -5, 20, "", 1),
    ("i0", torch.i0, -20, 20, "", 1),
    ("ndtri", torch.special.ndtri, 0, 1, "", 1),
    ("pow", torch.pow, 0.01, 10, "pow", 2),
    ("atan2", torch.atan2, -10, 10, "atan2", 2),
    ("hypot", torch.hypot, -10, 10, "hypot", 2),
    ("fmod", torch.fmod, -100, 100, "fmod", 2),
]


def library() -> ctypes.CDLL:
    """A loop over each C function, which the compiler must not vectorise."""
    lines = ["#include <math.h>"]
    for name, operands in sorted({(row[4], row[5]) for row in ROWS if row[4]}):
        for kind, letter in (("float", "f"), ("double", "")):
            second = ", y[i]" if operands == 2 else ""
            lines.append(
                f"void {name}_{kind}({kind}* z, const {kind}* x, const {kind}* y, long n) "
                f"{{ for (long i = 0; i < n; ++i) z[i] = {name}{letter}(x[i]{second}); }}"
            )
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tatara-math-"))
    (folder / "m.c").write_text("\n".join(lines))
    command = ["cc", "-O2", "-fno-tree-vectorize", "-shared", "-fPIC", "-w", "-o", "m.so", "m.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "m.so"))


def nanoseconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - start) / COUNT


def measure(row: Row, dtype: torch.dtype, c: ctypes.CDLL) -> list[float]:
    """Ours, eager and C (0 where there is none)."""
    _, function, low, high, c_name, operands = row
    args = [torch.empty(COUNT, dtype=dtype).uniform_(low, high)]
    if operands == 2:
        args.append(torch.empty(COUNT, dtype=dtype).uniform_(0.5, 5))
    compiled = tatara.compile(lambda *a: function(*a))
    runs: list[Callable[[], Any]] = [lambda: compiled(*args), lambda: function(*args)]
    if c_name:
        loop = getattr(c, f"{c_name}_{'float' if dtype == torch.float32 else 'double'}")
        out = torch.empty_like(args[0])
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (out, args[0], args[-1])]
        runs.append(lambda: loop(*pointers, ctypes.c_long(COUNT)))
    for run in runs:
        run()
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, list_of in zip(runs, times, strict=True):
            list_of.append(nanoseconds(run))
    return [statistics.median(t) for t in times] + [0.0] * (3 - len(runs))


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:]
    c = library()
    print(f"{'ns per element':16} {'f32 ours':>9} {'eager':>7} {'C':>7} {'x eager':>8} {'x C':>6}", end="")
    print(f" | {'f64 ours':>9} {'eager':>7} {'C':>7} {'x eager':>8} {'x C':>6}")
    for row in ROWS:
        if names and row[0] not in names:
            continue
        parts = []
        for dtype in (torch.float32, torch.float64):
            ours, eager, libm = measure(row, dtype, c)
            ratio = f"{libm / ours:6.1f}" if libm else "     -"
            parts.append(f"{ours:9.2f} {eager:7.2f} {libm:7.2f} {eager / ours:8.2f} {ratio}")
        print(f"{row[0]:16} " + " | ".join(parts), flush=True)


if __name__ == "__main__":
    main()
