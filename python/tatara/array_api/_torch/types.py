"""Element types: promotion as the standard says, and what torch has to be told of it."""

from __future__ import annotations

import builtins
from typing import Any, TypeAlias

import torch

from tatara.array_api._limits import FloatInfo, IntegerInfo

Scalar: TypeAlias = builtins.bool | int | float | complex

SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
REAL = (torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
INTEGRAL = SIGNED + UNSIGNED

# The unsigned types that torch stores and converts but hardly computes with.
WIDE_UNSIGNED = frozenset({torch.uint16, torch.uint32, torch.uint64})

NAMES = {
    "bool": torch.bool,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}

_FLOATS = frozenset({*REAL, torch.float16, torch.bfloat16})
_INTEGERS = frozenset(INTEGRAL)
_COMPLEXES = frozenset({*COMPLEX, torch.complex32})

_COMPONENT = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_COMPLEX_OF = {
    torch.float16: torch.complex64,
    torch.bfloat16: torch.complex64,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}
_BITS = {dtype: 8 << i for kind in (SIGNED, UNSIGNED) for i, dtype in enumerate(kind)}


def is_floating(dtype: torch.dtype) -> builtins.bool:
    """Real or complex."""
    return dtype in _FLOATS or dtype in _COMPLEXES


def is_complex(dtype: torch.dtype) -> builtins.bool:
    return dtype in _COMPLEXES


def is_integer(dtype: torch.dtype) -> builtins.bool:
    """Bools are none."""
    return dtype in _INTEGERS


def component(dtype: torch.dtype) -> torch.dtype:
    """The type of the parts of a complex number; a real type is its own."""
    return _COMPONENT.get(dtype, dtype)


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """The complex type whose parts hold values of a type; the default one for integers."""
    return dtype if dtype in _COMPLEXES else _COMPLEX_OF.get(dtype) or _COMPLEX_OF[torch.get_default_dtype()]


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The type of a sum or product of a type: small integers become the widest of their sign."""
    if dtype in UNSIGNED:
        return torch.uint64
    return torch.int64 if dtype in SIGNED or dtype is torch.bool else dtype


def _promoted(one: torch.dtype, other: torch.dtype) -> torch.dtype | None:
    """None: the standard has no type that holds both."""
    if one is other or other is torch.bool:
        return one
    if one is torch.bool:
        return other
    if one in _INTEGERS and other in _INTEGERS:
        if (one in SIGNED) == (other in SIGNED):
            return one if _BITS[one] >= _BITS[other] else other
        signed, unsigned = (one, other) if one in SIGNED else (other, one)
        bits = max(_BITS[signed], 2 * _BITS[unsigned])
        return next((dtype for dtype in SIGNED if _BITS[dtype] == bits), None)
    if one in _INTEGERS:
        return other
    if other in _INTEGERS:
        return one
    return torch.promote_types(one, other)


_KNOWN = (torch.bool, *INTEGRAL, torch.float16, torch.bfloat16, *REAL, *COMPLEX)
_PROMOTIONS = {(one, other): _promoted(one, other) for one in _KNOWN for other in _KNOWN}


def promote(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """The type of results of two types, sizes of the operands notwithstanding."""
    if one is other:
        return one
    result = _PROMOTIONS.get((one, other))
    if result is None:
        raise TypeError(f"the standard has no type for {one} with {other}: convert one of them")
    return result


def with_scalar(dtype: torch.dtype, value: Scalar) -> torch.dtype:
    """The type of results of an array's type and a Python number: the array's, unless the number's kind is higher."""
    if isinstance(value, int):
        return torch.int64 if dtype is torch.bool and not isinstance(value, bool) else dtype
    if isinstance(value, float):
        return dtype if is_floating(dtype) else torch.get_default_dtype()
    if isinstance(value, complex):
        return complex_of(dtype)
    raise TypeError(f"an array is computed with arrays and numbers, not with {value!r}")


def of_scalar(value: Scalar) -> torch.dtype:
    """The default type of a Python number."""
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    return torch.get_default_dtype() if isinstance(value, float) else complex_of(torch.get_default_dtype())


def is_scalar(value: object) -> builtins.bool:
    return isinstance(value, (int, float, complex))


def result_type(*arrays_and_dtypes: Any) -> torch.dtype:
    """The type that operands give together; Python numbers follow the arrays."""
    dtype = None
    scalars = []
    for each in arrays_and_dtypes:
        if is_scalar(each):
            scalars.append(each)
            continue
        own = each if isinstance(each, torch.dtype) else each.dtype
        dtype = own if dtype is None else promote(dtype, own)
    if dtype is None:
        raise ValueError("result_type() needs an array or a data type")
    for value in scalars:
        dtype = with_scalar(dtype, value)
    return dtype


def can_cast(from_: torch.Tensor | torch.dtype, to: torch.dtype, /) -> builtins.bool:
    """Whether promotion leads from one type to the other."""
    own = from_ if isinstance(from_, torch.dtype) else from_.dtype
    return own is to or _PROMOTIONS.get((own, to)) is to


_KINDS: dict[str, tuple[torch.dtype, ...]] = {
    "bool": (torch.bool,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGRAL,
    "real floating": (*REAL, torch.float16, torch.bfloat16),
    "complex floating": COMPLEX,
    "numeric": (*INTEGRAL, *REAL, torch.float16, torch.bfloat16, *COMPLEX),
}


def isdtype(dtype: torch.dtype, kind: torch.dtype | str | tuple[torch.dtype | str, ...]) -> builtins.bool:
    """Whether a type is of a kind, or of one of several."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"unknown kind of data types {kind!r}: the kinds are {', '.join(_KINDS)}")
        return dtype in _KINDS[kind]
    return dtype is kind


def finfo(type: torch.dtype | torch.Tensor, /) -> FloatInfo:
    """Limits of a floating-point type; of its parts for a complex one."""
    dtype = component(type if isinstance(type, torch.dtype) else type.dtype)
    info = torch.finfo(dtype)
    return FloatInfo(info.bits, info.eps, info.max, info.min, info.smallest_normal, dtype)


def iinfo(type: torch.dtype | torch.Tensor, /) -> IntegerInfo:
    """Limits of an integer type."""
    dtype = type if isinstance(type, torch.dtype) else type.dtype
    if dtype not in _INTEGERS:
        raise TypeError(f"iinfo() wants an integer data type, not {dtype}")
    bits = _BITS[dtype]
    if dtype in UNSIGNED:
        return IntegerInfo(bits, 2**bits - 1, 0, dtype)
    return IntegerInfo(bits, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dtype)
