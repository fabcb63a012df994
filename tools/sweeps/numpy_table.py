"""Every public function of NumPy's namespaces x element types x layouts, compiled, against NumPy.

usage: numpy_table.py [--torch] [--dtypes a,b] [--layouts a,b] [--out table.csv] [name ...]
Names as numpy.linalg.inv; a prefix is enough.

Compared in three calls, and in two with other elements: result types, element types, values, shapes, strides, flags, memory that is shared with the arguments, and what
was written to these, warnings. A case is native where the later calls are entries that make none of NumPy's calls (what comes of Python's
numbers alone is a constant: such an entry has no graph); a function is what the worst of its cases in rows are, with element types of at least 32 bits.
"""

from __future__ import annotations

import argparse
import collections
import csv
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

DTYPES = ["bool", "uint8", "int32", "int64", "float32", "float64", "complex128"]
LAYOUTS = ["rows", "columns", "steps", "reversed", "empty"]
NAMESPACES = [
    "numpy",
    "numpy.linalg",
    "numpy.fft",
    "numpy.polynomial.polynomial",
    "numpy.polynomial.chebyshev",
    "numpy.polynomial.legendre",
    "numpy.polynomial.hermite",
    "numpy.polynomial.laguerre",
    "numpy.random",
]
# They make no arrays of arrays, do input and output, or change how NumPy works.
LEFT_OUT = set(
    "asmatrix bmat busday_count busday_offset is_busday datetime_as_string datetime_data errstate fromfile fromfunction "
    "frompyfunc fromregex fromstring genfromtxt get_include info load loadtxt save savetxt savez savez_compressed "
    "seterr seterrcall geterr geterrcall setbufsize getbufsize show_config show_runtime test printoptions get_printoptions "
    "set_printoptions array2string array_repr array_str format_float_positional format_float_scientific "
    "base_repr binary_repr typename mintypecode iterable isdtype require nested_iters frombuffer from_dlpack "
    "issubdtype can_cast common_type min_scalar_type result_type promote_types isfortran isscalar iscomplexobj isrealobj "
    "shares_memory may_share_memory broadcast_shapes ndim shape size einsum_path get_state set_state "
    "get_bit_generator set_bit_generator bytes default_rng seed memmap vectorize piecewise apply_along_axis "
    "apply_over_axes block fromiter isnat empty empty_like".split()
)


# Added to each seed: other elements of the same shapes.
OTHER = [0]


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    seen = set()
    for namespace in NAMESPACES:
        module = sys.modules.get(namespace) or __import__(namespace, fromlist=["_"])
        for name in getattr(module, "__all__", dir(module)):
            function = getattr(module, name, None)
            plain = callable(function) and not inspect.isclass(function) and not name.startswith("_")
            if plain and name not in LEFT_OUT and id(function) not in seen:
                seen.add(id(function))
                yield f"{namespace}.{name}", function


def sample(dtype: str, layout: str, seed: int, square: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed + OTHER[0])
    shape = (0, 4) if layout == "empty" else (8, 8) if layout == "steps" else (4, 4)
    t = np.dtype(dtype)
    if t.kind == "b":
        x = rng.random(shape) < 0.5
    elif t.kind in "iu":
        x = rng.integers(1, 4, shape).astype(t)
    elif t.kind == "c":
        x = (rng.uniform(0.1, 0.9, shape) + 1j * rng.uniform(0.1, 0.9, shape)).astype(t)
    else:
        x = rng.uniform(0.1, 0.9, shape).astype(t)
    if layout == "columns":
        x = np.asfortranarray(x)
    elif layout == "steps":
        x = x[::2, ::2]
    elif layout == "reversed":
        x = x[::-1]
    return x if square else x[0] if len(x) else x.reshape(-1)


def patterns(dtype: str, layout: str) -> Iterator[Callable[[], tuple[Any, ...]]]:
    def m(seed: int) -> np.ndarray:
        return sample(dtype, layout, seed)

    def v(seed: int) -> np.ndarray:
        return sample(dtype, layout, seed, square=False)

    yield lambda: (m(1),)
    yield lambda: (m(1), m(2))
    yield lambda: (v(1),)
    yield lambda: (v(1), v(2))
    yield lambda: (m(1), 1)
    yield lambda: (m(1), 0.5)
    yield lambda: ([m(1), m(2)],)
    yield lambda: ((m(1), m(2)),)
    yield lambda: (m(1), 1, 0)
    yield lambda: (m(1), 0, 1)
    yield lambda: (m(1), (2, -1))
    yield lambda: (m(1) > m(2), m(3))
    yield lambda: (m(1) > m(2), m(3), m(4))
    yield lambda: (v(1), v(2), v(3))
    yield lambda: (m(1), m(2), 1)
    yield lambda: (v(1), np.sort(v(2)))
    yield lambda: (4,)
    yield lambda: (4, 4)
    yield lambda: ((4, 3),)
    yield lambda: (0.5, 2.0, 4)
    yield lambda: ((4, 3), 2.0)
    yield lambda: (m(1), np.array([0, 2]), 0)
    yield lambda: (m(1), np.array([0, 2]), m(1)[:1].reshape(-1)[:1], 0)
    yield lambda: ([m(1) > 1, m(2) > 1], [m(3), m(4)])
    yield lambda: ("ij,jk->ik", m(1), m(2))


def bounds(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, np.ndarray) or value.size == 0:
        return None
    return np.lib.array_utils.byte_bounds(value)


def shared(result: Any, args: tuple[Any, ...]) -> list[bool]:
    """Of each array of the result: whether it has memory of the first argument."""
    out = []
    for each in result if isinstance(result, tuple | list) else (result,):
        a, b = bounds(each), bounds(args[0])
        out.append(a is not None and b is not None and a[0] < b[1] and b[0] < a[1])
    return out


def differs(want: Any, got: Any) -> str:
    if type(want) is not type(got):
        return f"type {type(got).__name__} for {type(want).__name__}"
    if isinstance(want, tuple | list):
        if len(want) != len(got):
            return "another number of results"
        return next((why for w, g in zip(want, got, strict=True) if (why := differs(w, g))), "")
    if isinstance(want, np.ndarray | np.generic):
        if want.dtype != got.dtype or want.shape != got.shape:
            return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
        if isinstance(want, np.ndarray) and (
            want.strides != got.strides or want.flags.writeable != got.flags.writeable
        ):
            return f"strides {got.strides} for {want.strides}"
        tolerance = {"f": 2e-5, "F": 2e-5, "e": 1e-2}.get(want.dtype.char, 1e-10)
        if want.dtype.kind in "fc":
            return "" if np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True) else "values"
        return "" if np.array_equal(want, got) else "values"
    return "" if want is got or want == got or (want != want and got != got) else "values"


def attempt(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, list[str]]:
    np.random.seed(5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = function(*args)
    return result, sorted({str(each.message) for each in said})


def check(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> tuple[str, str]:
    """(native, host, break or wrong; why)"""
    import tatara

    tatara.reset()
    compiled = tatara.compile(lambda *args: function(*args))
    hosts, served = 0, False
    for call in range(3):
        args, twin = make(), make()
        want, said = attempt(function, args)
        before, hits = tatara.stats()["host_calls"], tatara.stats()["guard_hits"]
        try:
            got, heard = attempt(compiled, twin)
        except Exception as error:
            return "wrong", f"raises {type(error).__name__}: {error}"[:120]
        hosts = tatara.stats()["host_calls"] - before
        served = tatara.stats()["guard_hits"] > hits
        why = differs(want, got) or differs(list(args), list(twin))
        if not why and args and shared(want, args) != shared(got, twin):
            why = "memory is shared otherwise"
        if not why and said != heard:
            why = f"warns {heard} for {said}, in call {call}"
        if why:
            return "wrong", why
    kind = "break" if tatara.stats()["breaks"] or not served else "host" if hosts else "native"
    for seed in (100, 200):
        OTHER[0] = seed
        try:
            why = other_data(function, compiled, make(), make())
        finally:
            OTHER[0] = 0
        if why:
            return "wrong", f"with other elements: {why}"
    return kind, ""


def other_data(function: Callable[..., Any], compiled: Any, args: tuple[Any, ...], twin: tuple[Any, ...]) -> str:
    try:
        want, said = attempt(function, args)
    except Exception as error:
        try:
            attempt(compiled, twin)
        except Exception as own:
            return "" if type(own) is type(error) and str(own) == str(error) else f"raises {own} for {error}"
        return f"does not raise {error}"
    try:
        got, heard = attempt(compiled, twin)
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"[:120]
    why = differs(want, got) or differs(list(args), list(twin))
    return why or ("" if said == heard else f"warns {heard} for {said}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--out")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.torch:
        import torch  # noqa: F401
    rows, wrong = [], []
    for name, function in functions():
        if options.names and not any(name.startswith(each) for each in options.names):
            continue
        kinds: collections.Counter[str] = collections.Counter()
        common: collections.Counter[str] = collections.Counter()
        for dtype in options.dtypes.split(","):
            for layout in options.layouts.split(","):
                taken = 0
                for make in patterns(dtype, layout):
                    try:
                        result, _ = attempt(function, make())
                    except Exception:
                        continue
                    if taken == 2 or result is None and not isinstance(make()[0], np.ndarray):
                        break
                    taken += 1
                    kind, why = check(function, make)
                    kinds[kind] += 1
                    if layout == "rows" and dtype not in ("bool", "uint8"):
                        common[kind] += 1
                    if kind == "wrong":
                        wrong.append((name, dtype, layout, why))
        order = ("break", "host", "native")
        worst = "wrong" if kinds["wrong"] else next((k for k in order if common[k]), "untried")
        rows.append((name, worst, kinds["native"], kinds["host"], kinds["break"], kinds["wrong"]))
        print(*rows[-1], flush=True)
    if options.out:
        with open(options.out, "w", newline="") as file:
            csv.writer(file).writerows([("function", "is", "native", "host", "break", "wrong"), *rows])
    for each in wrong:
        print("wrong:", *each)
    total = collections.Counter(row[1] for row in rows)
    cases = [sum(row[i] for row in rows) for i in range(2, 6)]
    print(dict(total), dict(zip(("native", "host", "break", "wrong"), cases, strict=True)))


if __name__ == "__main__":
    main()
