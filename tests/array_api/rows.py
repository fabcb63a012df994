"""Calls of the standard's functions: every function at least once, with operands by letter."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

import tatara.array_api as xp


class Row(NamedTuple):
    """A call, without the namespace. Letters are operands from `operand`; a tuple of letters is a tuple of operands."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any] = {}
    extension: str = ""

    def function(self, namespace: Any) -> Any:
        found = getattr(namespace, self.extension) if self.extension else namespace
        return getattr(found, self.name)

    @property
    def title(self) -> str:
        options = [f"{name}={value}" for name, value in self.options.items()]
        return (
            ".".join([*([self.extension] if self.extension else []), self.name])
            + f"({', '.join([*map(str, self.args), *options])})"
        )


class Of(str):
    """The letter of an operand."""

    __slots__ = ()


_SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, float("inf"), float("-inf"), float("nan"), 0.5, -3.0, 7.0]


def operand(letter: str) -> torch.Tensor:
    """The same values at each call."""
    generator = torch.Generator().manual_seed(sum(map(ord, letter)))

    def ints(low: int, high: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator).to(dtype)

    def floats(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    wide = torch.tensor([2**63 - 1, -1, -(2**63), 5], dtype=torch.int64)
    made = {
        "f": lambda: floats((3, 4), torch.float32),
        "f2": lambda: floats((3, 4), torch.float32),
        "frow": lambda: floats((4,), torch.float32),
        "d": lambda: floats((3, 4), torch.float64),
        "fx": lambda: torch.tensor(_SPECIAL),
        "fy": lambda: torch.tensor(_SPECIAL).reshape(12, 1),
        "pos": lambda: floats((3, 4), torch.float32).abs() + 1,
        "unit": lambda: floats((3, 4), torch.float32).tanh(),
        "c": lambda: floats((3, 4), torch.complex64),
        "z": lambda: floats((3, 4), torch.complex128),
        "i": lambda: ints(-9, 9, (3, 4), torch.int64),
        "j": lambda: ints(1, 9, (3, 4), torch.int64),
        "n": lambda: -ints(1, 9, (3, 4), torch.int64),
        "s": lambda: ints(-100, 100, (3, 4), torch.int8),
        "b": lambda: ints(0, 2, (3, 4), torch.bool),
        "b2": lambda: ints(0, 2, (3, 4), torch.bool),
        "u8": lambda: ints(0, 200, (3, 4), torch.uint8),
        "u16": lambda: ints(0, 60000, (3, 4), torch.uint16),
        "u32": lambda: ints(0, 2**32 - 1, (3, 4), torch.uint32),
        "u64": lambda: (ints(0, 2**62, (3, 4), torch.int64) * wide).to(torch.uint64),
        "v64": lambda: wide.to(torch.uint64),
        "j4": lambda: ints(0, 3, (4,), torch.int64),
        "i4": lambda: ints(-9, 9, (4, 4), torch.int64),
        "u16sq": lambda: ints(0, 60000, (3, 3), torch.uint16),
        "x0": lambda: ints(0, 3, (3, 4), torch.int64),
        "x1": lambda: ints(0, 3, (2,), torch.int64),
        "xn": lambda: ints(-3, 3, (2,), torch.int32),
        "up": lambda: floats((9,), torch.float32).sort().values,
        "empty": lambda: torch.empty(0, 4),
        "one": lambda: floats((1, 4), torch.float32),
        "m": lambda: _definite(floats((2, 3, 3), torch.float64)),
        "sq": lambda: floats((2, 3, 3), torch.float64),
        "tall": lambda: floats((4, 3), torch.float64),
        "v3": lambda: floats((2, 3), torch.float64),
        "w3": lambda: floats((3,), torch.float64),
    }
    return made[letter]()


def _definite(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + torch.eye(3, dtype=x.dtype)


def given(value: Any) -> Any:
    if isinstance(value, Of):
        return operand(value)
    return type(value)([given(each) for each in value]) if type(value) in (tuple, list) else value


def _of(names: str, *letters: Any, **options: Any) -> list[Row]:
    """One row for each name."""
    args = tuple(Of(each) if isinstance(each, str) else each for each in letters)
    return [Row(name, args, options) for name in names.split()]


def _in(extension: str, names: str, *letters: Any, **options: Any) -> list[Row]:
    return [Row(each.name, each.args, each.options, extension) for each in _of(names, *letters, **options)]


_FLOAT_UNARY = "asinh atan cos cosh exp expm1 sin sinh tan tanh reciprocal"
_ANY_UNARY = "abs sign square negative positive isfinite isinf isnan floor ceil trunc round real"
_ARITHMETIC = "add subtract multiply"
_ORDER = "less less_equal greater greater_equal maximum minimum"
_BITS = "bitwise_and bitwise_or bitwise_xor"
_REDUCTIONS = "sum prod max min"

ELEMENTWISE = [
    *(
        row
        for letter in ("f", "c", "z")
        for row in _of(_FLOAT_UNARY + " log log2 log10 log1p sqrt acos acosh asin atanh imag conj", letter)
    ),
    *_of("log log2 log10 log1p sqrt acosh", "pos"),
    *_of("acos asin atanh", "unit"),
    *_of(_FLOAT_UNARY + " signbit sqrt log log1p " + _ANY_UNARY, "fx"),
    *(row for letter in ("f", "i", "s", "u8", "u16", "u32", "u64") for row in _of(_ANY_UNARY, letter)),
    *_of("round abs sign square negative reciprocal", "c"),
    *_of("atan2 copysign hypot logaddexp nextafter floor_divide remainder pow divide " + _ARITHMETIC, "fx", "fy"),
    *_of(_ORDER + " equal not_equal logical_and logical_or logical_xor", "fx", "fy"),
    *(
        row
        for letter in ("f2", "frow", "d", 2, 2.5)
        for row in _of("divide floor_divide remainder " + _ARITHMETIC, "f", letter)
    ),
    *(row for other in ("i", 3, -3) for row in _of(_ARITHMETIC + " equal " + _ORDER, "s", other)),
    *(row for one in ("i", "n", "s", "u8", "u16", "u32", 7) for row in _of("floor_divide remainder", one, "j")),
    *_of("floor_divide remainder", "u64", "v64"),
    *_of("floor_divide remainder", "u64", 7),
    *_of("floor_divide remainder", "i", -4),
    *(
        row
        for letter in ("u16", "u32", "u64")
        for row in _of(_ARITHMETIC + " equal not_equal " + _ORDER + " " + _BITS, letter, letter)
    ),
    *(row for letter in ("u16", "u32", "u64") for row in _of("bitwise_left_shift bitwise_right_shift", letter, 3)),
    *_of("bitwise_right_shift", "u64", 0),
    *_of("bitwise_right_shift", "u64", 63),
    *_of("bitwise_right_shift", "u64", 65),
    *(row for letter in ("i", "s", "u8", "b") for row in _of(_BITS, letter, letter)),
    *(row for letter in ("i", "s", "u8", "u16", "b") for row in _of("bitwise_invert logical_not", letter)),
    *_of("bitwise_left_shift bitwise_right_shift", "i", "j"),
    *_of("logical_and logical_or logical_xor", "b", "b2"),
    *_of("pow", "pos", "f"),
    *_of("pow", "i", 3),
    *_of("pow", "u32", 3),
    *_of("pow", "c", 2),
    *_of("pow", 2.0, "f"),
    *_of("subtract divide", 1.5, "f"),
    *_of("add", "f", 1j),
    *_of("add", "b", 1),
    *_of("multiply", "f", "c"),
    *_of("clip", "f", -0.5, 0.5),
    *_of("clip", "fx", 0.0),
    *_of("clip", "i", max=3),
    *_of("clip", "f"),
    *_of("clip", "u64", 1, 2**63),
    *_of("clip", "f", "frow", 2.0),
    *_of("clip", "u8", -5, 100),
]

STATISTICAL = [
    *(row for letter in ("f", "c", "i", "s", "u8", "u16") for row in _of("sum prod", letter)),
    *(row for axis in (0, -1, (0, 1), ()) for row in _of(_REDUCTIONS + " mean std var", "f", axis=axis)),
    *_of(_REDUCTIONS + " mean std var all any count_nonzero", "f", axis=1, keepdims=True),
    *_of("max min", "u64"), *_of("max min", "u16", axis=0), *_of("max min", "fx"),
    *_of("sum", "s", dtype=xp.int8), *_of("prod", "f", dtype=xp.float64), *_of("sum prod mean", "empty", axis=0),
    *_of("std var", "f", correction=1), *_of("std var", "f", axis=0, correction=0.5),
    *(row for letter in ("b", "i", "u8", "u16", "f", "c") for row in _of("all any count_nonzero", letter, axis=0)),
    *_of("all any", "b"), *_of("all any", "b", axis=()),
    *(row for letter in ("f", "s", "u16") for row in _of("cumulative_sum cumulative_prod", letter, axis=1)),
    *_of("cumulative_sum cumulative_prod", "f", axis=0, include_initial=True), *_of("cumulative_sum", "frow"),
    *(row for letter in ("f", "i", "u16", "u64") for row in _of("argmax argmin", letter)),
    *_of("argmax argmin", "f", axis=0), *_of("argmax argmin", "f", axis=1, keepdims=True),
    *_of("diff", "f"), *_of("diff", "u16", axis=0), *_of("diff", "f", axis=0, n=2, prepend=Of("one"), append=Of("one")),
]  # fmt: skip

MANIPULATION = [
    *_of("concat", (Of("f"), Of("one")), axis=0), *_of("concat", (Of("f"), Of("d")), axis=None), *_of("concat", (Of("s"), Of("i")), axis=-1),
    *_of("stack", (Of("f"), Of("d")), axis=1), *_of("stack", (Of("u16"), Of("u16")), axis=-1), *_of("unstack", "f", axis=1),
    *_of("broadcast_arrays", "f", "frow"), *_of("broadcast_to", "frow", (3, 4)), *_of("expand_dims", "f", axis=(0, -1)),
    *_of("expand_dims", "f", axis=1), *_of("squeeze", "one", axis=0), *_of("flip", "f"), *_of("flip", "u16", axis=-1),
    *_of("permute_dims", "sq", (2, 0, -2)), *_of("moveaxis", "sq", 0, -1), *_of("reshape", "f", (2, 6)), *_of("reshape", "f", (-1,), copy=True),
    *_of("roll", "f", 5), *_of("roll", "f", 1, axis=(0, 1)), *_of("roll", "i", (1, 2), axis=(0, 1)), *_of("repeat", "f", 2),
    *_of("repeat", "u16", 3, axis=1), *_of("tile", "f", (2, 1, 2)), *_of("tril triu", "f", k=1), *_of("tril", "u16"), *_of("meshgrid", "frow", "up"),
    *_of("meshgrid", "frow", "up", indexing="ij"), *_of("astype", "f", xp.int32), *_of("astype", "i", xp.complex64), *_of("astype", "f", xp.bool),
]  # fmt: skip

SEARCHING = [
    *_of("take", "f", "xn", axis=0), *_of("take", "u64", "x1", axis=1), *_of("take", "frow", "x1"), *_of("take_along_axis", "f", "x0", axis=0),
    *_of("take_along_axis", "u16", "x0", axis=1), *_of("where", "b", "f", "d"), *_of("where", "b", "f", 0.0), *_of("where", "b", 1, "s"),
    *_of("searchsorted", "up", "f"), *_of("searchsorted", "up", "d", side="right"), *_of("searchsorted", "up", 0.1),
    *(row for letter in ("f", "i", "u16", "u64", "b") for row in _of("sort", letter)), *_of("sort argsort", "i", axis=0, descending=True),
    *_of("argsort", "i"), *_of("sort argsort", "u64", descending=True), *_of("isin", "i", "j"), *_of("isin", "u64", "v64", invert=True),
    *_of("isin", "fx", "fx"), *_of("isin", "i", 3), *_of("isin", "c", "c"),
]  # fmt: skip

# Sizes of their results depend on values.
SIZED_BY_VALUES = [
    *(row for letter in ("i", "f", "u8", "u64", "b", "c", "fx") for row in _of("unique_all unique_counts unique_inverse unique_values", letter)),
    *_of("nonzero", "b"), *_of("nonzero", "u16"), *_of("nonzero", "f"), *_of("repeat", "frow", "j4"),
]  # fmt: skip

CREATION = [
    *_of("arange", 5), *_of("arange", 1, 9, 2), *_of("arange", 5, 0), *_of("arange", 5, 0, -2), *_of("arange", 0.0, 1.0, 0.25), *_of("arange", 4, dtype=xp.uint16),
    *_of("linspace", 0, 1, 5), *_of("linspace", 0, 1, 5, endpoint=False), *_of("linspace", 0, 10, 6, dtype=xp.int64), *_of("linspace", 1j, 2, 3), *_of("linspace", 2, 5, 1), *_of("linspace", 2, 5, 0), *_of("linspace", -1.5, 2, 7, dtype=xp.complex64),
    *_of("eye", 3), *_of("eye", 3, 4, k=1), *_of("eye", 3, 4, k=-1, dtype=xp.complex64), *_of("eye", 3, k=-(2**65)), *_of("zeros ones", (2, 3)), *_of("zeros ones", 2, dtype=xp.uint16),
    *_of("full", (2, 3), 7), *_of("full", (2,), 2.5), *_of("full", 2, True), *_of("full", (2,), 2**64 - 1, dtype=xp.uint64),
    *_of("zeros_like ones_like", "f"), *_of("zeros_like ones_like", "u16", dtype=xp.int8), *_of("full_like", "i", 3), *_of("full_like", "u64", 2**63),
    *_of("asarray", [[1, 2], [3, 4]]), *_of("asarray", [1, 2.5]), *_of("asarray", [True, False]), *_of("asarray", 3), *_of("asarray", [2**64 - 1], dtype=xp.uint64),
]  # fmt: skip

LINEAR = [
    *_of("matmul", "sq", "m"), *_of("matmul", "i4", "i4"), *_of("matmul", "u16sq", "u16sq"), *_of("matmul", "sq", "w3"), *_of("matmul", "w3", "w3"), *_of("matrix_transpose", "sq"),
    *_of("tensordot", "sq", "tall", axes=((2,), (1,))), *_of("tensordot", "f", "frow", axes=1), *_of("tensordot", "w3", "w3", axes=0), *_of("vecdot", "f", "f2"),
    *_of("tensordot", "u16", "u16", axes=2), *_of("vecdot", "c", "c", axis=-2), *_of("vecdot", "i", "j"), *_of("vecdot", "u64", "u64"),
    *_in("linalg", "cholesky", "m"), *_in("linalg", "cholesky", "m", upper=True), *_in("linalg", "cross", "v3", "w3"), *_in("linalg", "det inv diagonal trace slogdet", "m"),
    *_in("linalg", "eigvalsh svdvals pinv matrix_rank", "m"), *_in("linalg", "matrix_norm", "sq"), *_in("linalg", "matrix_norm", "sq", ord="nuc", keepdims=True),
    *_in("linalg", "matrix_norm", "sq", ord=1), *_in("linalg", "matrix_power", "sq", 3), *_in("linalg", "outer", "w3", "w3"), *_in("linalg", "trace", "i", offset=1),
    *_in("linalg", "solve", "m", "sq"), *_in("linalg", "solve", "m", "w3"), *_in("linalg", "vector_norm", "f"),
    *_in("linalg", "vector_norm", "f", axis=(0, 1), keepdims=True), *_in("linalg", "vector_norm", "f", axis=1, ord=1), *_in("linalg", "matmul", "sq", "sq"), *_in("linalg", "vecdot", "w3", "w3"), *_in("linalg", "tensordot", "sq", "sq", axes=3), *_in("linalg", "matrix_transpose", "sq"),
]  # fmt: skip

FOURIER = [
    *(row for norm in ("backward", "ortho", "forward") for row in _in("fft", "fft ifft hfft irfft", "z", norm=norm)), *_in("fft", "rfft ihfft rfftn", "d"),
    *_in("fft", "fftn ifftn irfftn", "z"), *_in("fft", "fft", "c", n=6, axis=0), *_in("fft", "rfftn fftn", "f", s=(2, 6), axes=(0, 1)), *_in("fft", "fftfreq rfftfreq", 7, d=0.5),
    *_in("fft", "fftfreq", 8, dtype=xp.float64), *_in("fft", "fftshift ifftshift", "f"), *_in("fft", "fftshift ifftshift", "f", axes=1),
]  # fmt: skip

ONE_GRAPH = [*ELEMENTWISE, *STATISTICAL, *MANIPULATION, *SEARCHING, *CREATION, *LINEAR, *FOURIER]
ALL = [*ONE_GRAPH, *SIZED_BY_VALUES]
