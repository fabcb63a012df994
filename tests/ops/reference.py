"""Runs operator definitions through tests/ops/reference_eval.cpp (a shared library, see TATARA_REFERENCE_LIB)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import torch

DTYPES = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


def library() -> str | None:
    """The newest reference evaluator that was built, or what TATARA_REFERENCE_LIB names."""
    if "TATARA_REFERENCE_LIB" in os.environ:
        return os.environ["TATARA_REFERENCE_LIB"]
    build = Path(__file__).parents[2] / "build"
    found = sorted(build.glob("*/tests/ops/libtatara_reference.so"), key=lambda p: p.stat().st_mtime)
    return str(found[-1]) if found else None


class Result:
    """One output: its declared layout and its values."""

    def __init__(self, line: str) -> None:
        dtype, sizes, strides, values = line.split("|")
        self.dtype = BY_NAME[dtype.strip()]
        self.sizes = tuple(int(s) for s in sizes.split())
        self.strides = tuple(int(s) for s in strides.split())
        self.values = torch.empty(0)
        if not values.strip() and 0 not in self.sizes:
            return  # types only
        raw: list[Any] = []
        for word in values.split():
            if "," in word:
                re, im = word.split(",")
                raw.append(complex(float(re), float(im)))
            else:
                raw.append(float(word) if self.dtype.is_floating_point else int(word))
        wide = self.dtype
        if wide.is_floating_point:
            wide = torch.float64
        elif wide.is_complex:
            wide = torch.complex128
        self.values = torch.tensor(raw, dtype=wide).reshape(self.sizes).to(self.dtype)


class Reference:
    def __init__(self, path: str | None = None) -> None:
        lib = ctypes.CDLL(path or library() or "libtatara_reference.so")
        self._run = lib.tatara_reference_run
        self._run.argtypes = [ctypes.c_char_p]
        self._run.restype = ctypes.c_char_p

    def __call__(self, op: str, *args: Any, types_only: bool = False) -> list[Result]:
        lines: list[str] = []
        inputs: list[torch.Tensor] = []

        def tensor(t: torch.Tensor) -> int:
            inputs.append(t)
            sizes = ",".join(map(str, t.size()))
            strides = ",".join(map(str, t.stride()))
            lines.append(f"in {DTYPES[t.dtype]} [{sizes} [{strides} {t.data_ptr()}")
            return len(inputs) - 1

        tail: list[str] = [f"op {op}"] + (["meta"] if types_only else [])
        for arg in args:
            if arg is None:
                tail.append("arg n -")
            elif isinstance(arg, torch.Tensor):
                tail.append(f"arg t {tensor(arg)}")
            elif isinstance(arg, bool):
                tail.append(f"arg b {int(arg)}")
            elif isinstance(arg, int):
                tail.append(f"arg i {arg}")
            elif isinstance(arg, float):
                tail.append(f"arg f {arg!r}")
            elif isinstance(arg, str):
                tail.append(f"arg s {arg}")
            elif isinstance(arg, torch.dtype):
                tail.append(f"arg d {DTYPES[arg]}")
            elif isinstance(arg, (list, tuple)) and any(isinstance(a, torch.Tensor) for a in arg):
                tail.append("arg T " + ",".join(str(-1 if a is None else tensor(a)) for a in arg))
            elif isinstance(arg, (list, tuple)) and any(isinstance(a, float) for a in arg):
                tail.append("arg F " + ",".join(repr(float(a)) for a in arg))
            elif isinstance(arg, (list, tuple)):
                tail.append("arg l " + (",".join(map(str, arg)) or ","))
            else:
                raise TypeError(type(arg))
        answer = self._run("\n".join(lines + tail).encode()).decode()
        if not answer.startswith("ok"):
            _, kind, message = answer.split(" ", 2)
            raise RuntimeError(f"{kind}: {message}")
        return [Result(line) for line in answer.split("\n")[1:] if line]
