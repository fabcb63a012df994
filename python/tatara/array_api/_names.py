"""The names of the standard, version 2025.12, by subject."""

from __future__ import annotations

VERSION = "2025.12"
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")

DATA_TYPES = (
    "bool",
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)

CREATION = (
    *("arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid"),
    *("ones", "ones_like", "tril", "triu", "zeros", "zeros_like"),
)

DATA_TYPE_FUNCTIONS = ("astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type")

ELEMENTWISE = (
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert"),
    *("bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign"),
    *("cos", "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot"),
    *("imag", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp"),
    *("logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative"),
    *("nextafter", "not_equal", "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit"),
    *("sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc"),
)

STATISTICAL = (
    *("all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean"),
    *("min", "prod", "std", "sum", "var"),
)

MANIPULATION = (
    *("broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis"),
    *("permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack"),
)

SEARCHING = (
    *("argsort", "isin", "nonzero", "searchsorted", "sort", "take", "take_along_axis", "unique_all"),
    *("unique_counts", "unique_inverse", "unique_values", "where"),
)

LINEAR = ("matmul", "matrix_transpose", "tensordot", "vecdot")

LINALG = (
    *("cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm"),
    *("matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals"),
    *("tensordot", "trace", "vecdot", "vector_norm"),
)

FFT = (
    *("fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn"),
    *("rfft", "rfftfreq", "rfftn"),
)

# Modules of `_torch` and what they have.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "creation": (*CREATION, "astype"),
    "types": tuple(name for name in DATA_TYPE_FUNCTIONS if name != "astype"),
    "elementwise": ELEMENTWISE,
    "statistical": STATISTICAL,
    "manipulation": MANIPULATION,
    "searching": SEARCHING,
    "linear": LINEAR,
}

ALL = (
    *CONSTANTS,
    *DATA_TYPES,
    *(name for names in FUNCTIONS.values() for name in names),
    *("linalg", "fft", "__array_namespace_info__"),
)
