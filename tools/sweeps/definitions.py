"""Samples of the host's own operator suite through the reference evaluator: python definitions.py [NAME ...]

Prints, for each entry and dtype, what differs from eager; no code generation takes part.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "ops"))

import torch
from reference import Reference, library
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = [torch.float32, torch.bool, torch.int64, torch.bfloat16, torch.complex64]
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-4, torch.complex64: 1e-4, torch.float64: 1e-8}
MAX_ELEMENTS = 4000
warnings.simplefilter("ignore")
REF = Reference()


class NoMatch(Exception):
    pass


def split_schema(text: str) -> list[tuple[str, str, bool, Any]]:
    inside = text[1 : text.rindex("->")].strip()[:-1]
    args, depth, part, quote = [], 0, "", ""
    for c in inside + ",":
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        if c == "," and depth == 0 and not quote:
            args.append(part.strip())
            part = ""
        else:
            part += c
    result, keyword = [], False
    for a in args:
        if a == "*":
            keyword = True
            continue
        if not a:
            continue
        decl, _, default = a.partition("=")
        kind, name = decl.strip().rsplit(" ", 1)
        result.append((kind, name, keyword, default if "=" in a else NoMatch))
    return result


def default_value(text: str) -> Any:
    known = {"None": None, "True": True, "False": False, "contiguous_format": "contiguous_format"}
    if text in known:
        return known[text]
    if text[0] in "\"'":
        return text[1:-1]
    if text[0] == "[":
        return [int(v) for v in text[1:-1].split(",") if v.strip()]
    try:
        return int(text)
    except ValueError:
        return float(text)


def convert(kind: str, value: Any) -> Any:
    optional = "?" in kind
    base = re.sub(r"\(.*?\)", "", kind)
    if value is None:
        if optional or kind.endswith("?") or base == "Operand":
            return None
        raise NoMatch
    if "Tensor" in base and "[" in base:
        if not isinstance(value, (list, tuple)) or not all(v is None or isinstance(v, torch.Tensor) for v in value):
            raise NoMatch
        return list(value)
    if base.startswith("Tensor"):
        if not isinstance(value, torch.Tensor):
            raise NoMatch
        return value
    if base.startswith("Operand"):
        return value
    if base.startswith(("int[", "SymInt[")):
        if isinstance(value, int) and not isinstance(value, bool) and re.search(r"\[\d", base):
            return [value]
        if isinstance(value, (list, tuple)) and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            return list(value)
        raise NoMatch
    if base.startswith("float["):
        return [float(v) for v in value]
    if base.startswith(("int", "SymInt")):
        if isinstance(value, bool) or not isinstance(value, int):
            raise NoMatch
        return value
    if base.startswith("bool"):
        if not isinstance(value, bool):
            raise NoMatch
        return value
    if base.startswith("float"):
        if isinstance(value, (bool, torch.Tensor, str)):
            raise NoMatch
        return float(value)
    if base.startswith("str"):
        if not isinstance(value, str):
            raise NoMatch
        return value
    if base.startswith("ScalarType"):
        if not isinstance(value, torch.dtype):
            raise NoMatch
        return value
    if base.startswith("Scalar"):
        if isinstance(value, (torch.Tensor, str, list, tuple, complex)):
            raise NoMatch
        return value
    raise NoMatch


def bind(schema: list[tuple[str, str, bool, Any]], args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    positional = [a for a in schema if not a[2]]
    values, used = [], set()
    if len(args) > len(positional):
        first = positional and re.search(r"^(Sym)?[iI]nt\[", positional[-1][0])
        if not first or not all(isinstance(a, int) for a in args[len(positional) - 1 :]):
            raise NoMatch
        args = [*args[: len(positional) - 1], list(args[len(positional) - 1 :])]
    position = 0
    for kind, name, keyword, default in schema:
        alias = {"self": "input", "dim": "axis", "keepdim": "keepdims"}.get(name, "")
        if not keyword and position < len(args):
            values.append(convert(kind, args[position]))
            position += 1
        elif name in kwargs or alias in kwargs:
            key = name if name in kwargs else alias
            used.add(key)
            values.append(convert(kind, kwargs[key]))
        elif default is NoMatch:
            raise NoMatch
        else:
            values.append(default_value(default))
    if set(kwargs) - used:
        raise NoMatch
    return values


def table() -> dict[int, list[tuple[str, list[Any], bool]]]:
    import ctypes

    lib = ctypes.CDLL(library() or "libtatara_reference.so")
    lib.tatara_reference_ops.restype = ctypes.c_char_p
    by_object: dict[int, list[tuple[str, list[Any], bool]]] = {}
    for line in lib.tatara_reference_ops().decode().splitlines():
        name, schema, names, defined = line.split("\t")
        parsed = split_schema(schema)
        for dotted in names.split():
            if not dotted.startswith("torch"):
                continue
            target: Any = torch
            try:
                for part in dotted.split(".")[1:]:
                    target = getattr(target, part)
            except AttributeError:
                continue
            entry = (name, parsed, defined == "1")
            if entry not in by_object.setdefault(id(target), []):
                by_object[id(target)].append(entry)
    return by_object


def compare(have: Any, want: torch.Tensor) -> str:
    if have.dtype != want.dtype:
        return f"dtype {have.dtype}, eager {want.dtype}"
    if have.sizes != tuple(want.shape):
        return f"sizes {have.sizes}, eager {tuple(want.shape)}"
    if have.strides != want.stride():
        return f"strides {have.strides}, eager {want.stride()} of sizes {have.sizes}"
    want = want.detach().resolve_conj().resolve_neg()
    if want.dtype in TOLERANCE:
        tol = TOLERANCE[want.dtype]
        close = torch.isclose(have.values, want, rtol=tol, atol=tol, equal_nan=True)
        if want.dtype.is_complex:
            close |= ~torch.isfinite(torch.view_as_real(want.contiguous())).all(-1)
    else:
        close = have.values == want
    return "" if bool(close.all()) else f"values: {have.values[~close][:3].tolist()}, eager {want[~close][:3].tolist()}"


def main(names: list[str]) -> None:
    objects = table()
    outcome: Counter[str] = Counter()
    for info in op_db:
        full = info.name + ("." + info.variant_test_name if info.variant_test_name else "")
        if names and info.name not in names and full not in names:
            continue
        candidates = objects.get(id(info.op)) or (objects.get(id(info.method_variant)) if info.method_variant else None)
        if not candidates:
            outcome["no definition"] += 1
            continue
        if not any(d for _, _, d in candidates):
            outcome["host"] += 1
            continue
        for dtype in DTYPES:
            if dtype not in info.supported_dtypes("cpu"):
                continue
            problems: Counter[str] = Counter()
            count = good = 0
            for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
                count += 1
                args = [sample.input, *sample.args]
                try:
                    want = info.op(sample.input, *sample.args, **sample.kwargs)
                except Exception:
                    continue
                outs = list(want) if isinstance(want, (tuple, list)) else [want]
                if not all(isinstance(o, torch.Tensor) for o in outs) or sum(o.numel() for o in outs) > MAX_ELEMENTS:
                    continue
                problem = "does not bind"
                for name, schema, _ in candidates:
                    try:
                        bound = bind(schema, args, sample.kwargs)
                    except NoMatch:
                        continue
                    try:
                        got = REF(name, *bound)
                        if len(got) != len(outs):
                            problem = f"{len(got)} results, eager {len(outs)}"
                        else:
                            problem = next((p for p in map(compare, got, outs) if p), "")
                    except Exception as error:
                        problem = str(error)[:150]
                    break
                if problem:
                    problems[problem] += 1
                else:
                    good += 1
            outcome["good" if not problems else "bad"] += 1
            for problem, n in problems.most_common(3):
                print(f"{full:34} {str(dtype)[6:]:9} {n}/{count} {problem}", flush=True)
    print(dict(outcome))


if __name__ == "__main__":
    main(sys.argv[1:])
