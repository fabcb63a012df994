"""Element-wise functions. Most are torch's own; the notes say where torch deviates."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from tatara.array_api._torch import types, unsigned
from tatara.array_api._torch.operands import (
    as_type,
    bits,
    comparable,
    computable,
    from_ordered,
    is_wide,
    number,
    ordered,
    together,
)

Operand: TypeAlias = torch.Tensor | int | float | complex | builtins.bool

# --- Functions of floating-point numbers, real and complex.


def _wants_floats(x: torch.Tensor, name: str) -> None:
    if not types.is_floating(x.dtype):
        raise TypeError(f"{name}() wants a floating-point array, not {x.dtype}")


def acos(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "acos")
    if not types.is_complex(x.dtype):
        return torch.acos(x)
    # On the real line torch's vector code loses the sign of the imaginary part, which the operand's is turned round.
    result = torch.acos(x)
    return torch.complex(result.real, torch.copysign(result.imag, -x.imag))


def acosh(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "acosh")
    if not types.is_complex(x.dtype):
        return torch.acosh(x)
    # On GPUs torch leaves the imaginary part open.
    upright = (x.real == 0) & torch.isnan(x.imag)
    return torch.where(upright, torch.complex(x.imag, torch.full_like(x.imag, math.pi / 2)), torch.acosh(x))


def asin(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "asin")
    return torch.asin(x)


def asinh(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "asinh")
    return torch.asinh(x)


def atan(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "atan")
    return torch.atan(x)


def atanh(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "atanh")
    return torch.atanh(x)


def cos(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "cos")
    return torch.cos(x)


def cosh(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "cosh")
    return torch.cosh(x)


def exp(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "exp")
    return _exp(x) if types.is_complex(x.dtype) else torch.exp(x)


def _exp(x: torch.Tensor) -> torch.Tensor:
    # On GPUs torch multiplies what is open with zero.
    open_ = torch.isfinite(x.real) & ~torch.isfinite(x.imag)
    return torch.where(open_, complex(math.nan, math.nan), torch.exp(x))


def expm1(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "expm1")
    if not types.is_complex(x.dtype):
        return torch.expm1(x)
    # Infinite and undefined parts are those of exp(); torch's scalar code multiplies them on.
    finite = torch.isfinite(x.real) & torch.isfinite(x.imag)
    return _unsigned_zeros(torch.where(finite, torch.expm1(x), _exp(x) - 1))


def log(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "log")
    return torch.log(x)


def log1p(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "log1p")
    if not types.is_complex(x.dtype):
        return torch.log1p(x)
    # Beside an infinity torch forgets what a NaN leaves open.
    infinite = torch.isinf(x.real) | torch.isinf(x.imag)
    result = torch.where(infinite, torch.log(x), torch.log1p(x))
    return _unsigned_zeros(result)


def _unsigned_zeros(x: torch.Tensor) -> torch.Tensor:
    # 1 + -0 is 1, and 1 - 1 is +0: real parts that are zero have no sign.
    return torch.complex(torch.where(x.real == 0, 0.0, x.real), x.imag)


def log2(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "log2")
    return torch.log2(x)


def log10(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "log10")
    return torch.log10(x)


def sin(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "sin")
    return torch.sin(x)


def sinh(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "sinh")
    return torch.sinh(x)


def sqrt(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "sqrt")
    return torch.sqrt(x)


def tan(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "tan")
    if not types.is_complex(x.dtype):
        return torch.tan(x)
    # tan(x) is -i tanh(ix).
    result = torch.tan(x)
    turned = _limits_of_tanh(torch.complex(-x.imag, x.real), torch.complex(-result.imag, result.real))
    return torch.complex(turned.imag, -turned.real)


def tanh(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "tanh")
    return _limits_of_tanh(x, torch.tanh(x)) if types.is_complex(x.dtype) else torch.tanh(x)


def _limits_of_tanh(x: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    # Far out the imaginary part is a zero with the operand's sign; C's would have the sign of sin(2y).
    far = torch.isinf(x.real) & torch.isfinite(x.imag)
    limit = torch.complex(torch.sign(x.real), torch.copysign(torch.zeros_like(x.imag), x.imag))
    # On GPUs torch forgets that the real part stays a zero.
    still = (x.real == 0) & ~torch.isfinite(x.imag)
    zero = torch.complex(x.real, torch.full_like(x.imag, math.nan))
    return torch.where(far, limit, torch.where(still, zero, result))


def reciprocal(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "reciprocal")
    return torch.reciprocal(x)


def atan2(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    _wants_floats(a, "atan2")
    return torch.atan2(a, b)


def copysign(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    _wants_floats(a, "copysign")
    return torch.copysign(a, b)


def hypot(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    _wants_floats(a, "hypot")
    return torch.hypot(a, b)


def logaddexp(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    _wants_floats(a, "logaddexp")
    return torch.logaddexp(a, b)


def nextafter(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    _wants_floats(a, "nextafter")
    return torch.nextafter(a, b)


# --- Rounding: of integers it is what they are.


def ceil(x: torch.Tensor, /) -> torch.Tensor:
    return torch.ceil(x) if types.is_floating(x.dtype) else x.clone()


def floor(x: torch.Tensor, /) -> torch.Tensor:
    return torch.floor(x) if types.is_floating(x.dtype) else x.clone()


def trunc(x: torch.Tensor, /) -> torch.Tensor:
    return torch.trunc(x) if types.is_floating(x.dtype) else x.clone()


def round(x: torch.Tensor, /) -> torch.Tensor:
    if types.is_complex(x.dtype):
        return torch.complex(torch.round(x.real), torch.round(x.imag))
    return torch.round(x) if types.is_floating(x.dtype) else x.clone()


# --- Signs and parts.


def abs(x: torch.Tensor, /) -> torch.Tensor:
    return x.clone() if x.dtype in types.UNSIGNED else torch.abs(x)


def negative(x: torch.Tensor, /) -> torch.Tensor:
    return as_type(torch.neg(bits(x)), x.dtype)


def positive(x: torch.Tensor, /) -> torch.Tensor:
    return x.clone()


def sign(x: torch.Tensor, /) -> torch.Tensor:
    if is_wide(x):
        return (x != 0).to(x.dtype)
    if types.is_complex(x.dtype):
        return _complex_sign(x)
    result = torch.sign(x)
    # torch has 0 for NaN.
    return torch.where(torch.isnan(x), x, result) if types.is_floating(x.dtype) else result


def _complex_sign(x: torch.Tensor) -> torch.Tensor:
    # x / abs(x), but 0 for zeros; an infinite part is the direction, two are none. torch's own has infinities divide.
    zero = x == 0
    size = torch.where(zero, 1.0, torch.abs(x))
    result = torch.where(zero, 0.0, torch.complex(x.real / size, x.imag / size))
    nan = torch.isnan(x.real) | torch.isnan(x.imag) | (torch.isinf(x.real) & torch.isinf(x.imag))
    infinite = torch.isinf(size)
    axis = torch.complex(
        torch.where(torch.isinf(x.real), torch.sign(x.real), 0.0),
        torch.where(torch.isinf(x.imag), torch.sign(x.imag), 0.0),
    )
    return torch.where(nan, complex(float("nan"), float("nan")), torch.where(infinite, axis, result))


def signbit(x: torch.Tensor, /) -> torch.Tensor:
    _wants_floats(x, "signbit")
    return torch.signbit(x)


def conj(x: torch.Tensor, /) -> torch.Tensor:
    return torch.conj_physical(x) if types.is_complex(x.dtype) else x


def imag(x: torch.Tensor, /) -> torch.Tensor:
    return torch.imag(x) if types.is_complex(x.dtype) else torch.zeros_like(x)


def real(x: torch.Tensor, /) -> torch.Tensor:
    return torch.real(x) if types.is_complex(x.dtype) else x


def isfinite(x: torch.Tensor, /) -> torch.Tensor:
    return torch.isfinite(x) if types.is_floating(x.dtype) else torch.ones_like(x, dtype=torch.bool)


def isinf(x: torch.Tensor, /) -> torch.Tensor:
    return torch.isinf(x) if types.is_floating(x.dtype) else torch.zeros_like(x, dtype=torch.bool)


def isnan(x: torch.Tensor, /) -> torch.Tensor:
    return torch.isnan(x) if types.is_floating(x.dtype) else torch.zeros_like(x, dtype=torch.bool)


# --- Arithmetic. Sums and products of wide unsigned integers are those of int64, which wrap to the same bits.


def _of_both(function: Callable[..., torch.Tensor], x1: Operand, x2: Operand) -> torch.Tensor:
    a, b, dtype = computable(x1, x2)
    return as_type(function(a, b), dtype)


def add(x1: Operand, x2: Operand, /) -> torch.Tensor:
    return _of_both(torch.add, x1, x2)


def subtract(x1: Operand, x2: Operand, /) -> torch.Tensor:
    return _of_both(torch.sub, x1, x2)


def multiply(x1: Operand, x2: Operand, /) -> torch.Tensor:
    return _of_both(torch.mul, x1, x2)


def square(x: torch.Tensor, /) -> torch.Tensor:
    return as_type(torch.square(bits(x)), x.dtype)


def divide(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b, dtype = computable(x1, x2)
    if types.is_floating(dtype):
        return torch.true_divide(a, b)
    a, b = together(x1, x2)
    own = torch.get_default_dtype()
    return torch.true_divide(a.to(own), b.to(own))


def floor_divide(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    if is_wide(a):
        return as_type(unsigned.quotient(a, b), a.dtype)
    if not types.is_floating(a.dtype):
        return torch.floor_divide(a, b)
    # torch has no derivative of it: it is zero.
    result = torch.floor_divide(a.detach(), b.detach())
    # The floor of the quotient, where torch follows Python: NaN and -1 with infinities.
    return torch.where(torch.isinf(a) | torch.isinf(b), torch.floor(torch.true_divide(a, b)), result)


def remainder(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    if is_wide(a):
        return as_type(unsigned.remainder(a, b), a.dtype)
    result = torch.remainder(a, b)
    if not types.is_floating(a.dtype):
        return result
    # A zero has the divisor's sign too; torch leaves it the dividend's.
    return torch.where(result == 0, torch.copysign(torch.zeros_like(result), b), result)


def pow(x1: Operand, x2: Operand, /) -> torch.Tensor:
    return _of_both(torch.pow, x1, x2)


# --- Bits.


def bitwise_and(x1: Operand, x2: Operand, /) -> torch.Tensor:
    return _of_both(torch.bitwise_and, x1, x2)


def bitwise_or(x1: Operand, x2: Operand, /) -> torch.Tensor:
    return _of_both(torch.bitwise_or, x1, x2)


def bitwise_xor(x1: Operand, x2: Operand, /) -> torch.Tensor:
    return _of_both(torch.bitwise_xor, x1, x2)


def bitwise_invert(x: torch.Tensor, /) -> torch.Tensor:
    return as_type(torch.bitwise_not(bits(x)), x.dtype)


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, count = _shifted(x1, x2)
    return as_type(torch.bitwise_left_shift(bits(a), count), a.dtype)


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, count = _shifted(x1, x2)
    if a.dtype is torch.uint64:
        return as_type(unsigned.shifted_right(bits(a), count), a.dtype)
    return as_type(torch.bitwise_right_shift(bits(a), count), a.dtype)


def _shifted(x1: Operand, x2: Operand) -> tuple[torch.Tensor, torch.Tensor | int]:
    # A number stays one: compiled code shifts by numbers, and leaves shifts by tensors to torch.
    if isinstance(x1, torch.Tensor) and isinstance(x2, int):
        return x1, x2
    a, b = together(x1, x2)
    return a, bits(b)


# --- Comparisons and logic.


def equal(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b, _ = computable(x1, x2)
    return torch.eq(a, b)


def not_equal(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b, _ = computable(x1, x2)
    return torch.ne(a, b)


def less(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = comparable(x1, x2)
    return torch.lt(a, b)


def less_equal(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = comparable(x1, x2)
    return torch.le(a, b)


def greater(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = comparable(x1, x2)
    return torch.gt(a, b)


def greater_equal(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = comparable(x1, x2)
    return torch.ge(a, b)


def maximum(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    return from_ordered(torch.maximum(ordered(a), ordered(b)), a.dtype)


def minimum(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    return from_ordered(torch.minimum(ordered(a), ordered(b)), a.dtype)


def clip(x: torch.Tensor, /, min: Any = None, max: Any = None) -> torch.Tensor:
    """NaN in any operand gives NaN. Bounds that an integer type does not reach are none."""
    low, high = _bound(x, min), _bound(x, max)
    if low is None and high is None:
        return x.clone()
    result = ordered(x)
    if low is not None:
        result = torch.maximum(result, ordered(low))
    if high is not None:
        result = torch.minimum(result, ordered(high))
    return from_ordered(result, x.dtype)


def _bound(x: torch.Tensor, bound: Any) -> torch.Tensor | None:
    if bound is None:
        return None
    if not types.is_scalar(bound):
        return as_type(bound, x.dtype)
    if types.is_integer(x.dtype) and isinstance(bound, int):
        info = types.iinfo(x.dtype)
        bound = builtins.min(builtins.max(bound, info.min), info.max)
    return number(bound, x.dtype, x.device)


def logical_and(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    return torch.logical_and(bits(a), bits(b))


def logical_or(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    return torch.logical_or(bits(a), bits(b))


def logical_xor(x1: Operand, x2: Operand, /) -> torch.Tensor:
    a, b = together(x1, x2)
    return torch.logical_xor(bits(a), bits(b))


def logical_not(x: torch.Tensor, /) -> torch.Tensor:
    return torch.logical_not(bits(x))
