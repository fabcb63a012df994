"""Where NumPy 2.4 differs from the standard."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy
from tatara.array_api import _names
from tatara.array_api._limits import FloatInfo, IntegerInfo

Array = numpy.ndarray[Any, Any]


def _element_type(type: Any) -> Any:
    return type.dtype if isinstance(type, (numpy.ndarray, numpy.generic)) else numpy.dtype(type)


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating-point type, as Python floats."""
    info = numpy.finfo(_element_type(type))
    limits = {name: float(getattr(info, name)) for name in ("eps", "max", "min", "smallest_normal")}
    return FloatInfo(bits=int(info.bits), dtype=info.dtype, **limits)


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer type."""
    info = numpy.iinfo(_element_type(type))
    return IntegerInfo(int(info.bits), int(info.max), int(info.min), _element_type(type))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    return numpy.clip(x, min, max)


def expm1(x: Any, /) -> Any:
    if numpy.asarray(x).dtype.kind != "c":
        return numpy.expm1(x)
    # Infinite and undefined parts are those of exp(); zeros keep the sign of the imaginary part.
    with numpy.errstate(all="ignore"):
        limits = numpy.where(numpy.asarray(x) == 0, _complex_of(numpy.zeros(numpy.shape(x)), x.imag), numpy.exp(x) - 1)
        result = numpy.where(numpy.isfinite(x) & (x != 0), numpy.expm1(x), limits)
        return result.astype(x.dtype, copy=False)[()]


def sign(x: Any, /) -> Any:
    result = numpy.sign(x)
    if result.dtype.kind != "c":
        return result
    return numpy.where(numpy.isnan(x), result.dtype.type(complex(numpy.nan, numpy.nan)), result)[()]


def tanh(x: Any, /) -> Any:
    result = numpy.tanh(x)
    return _limits_of_tanh(x, result) if result.dtype.kind == "c" else result


def _limits_of_tanh(x: Any, result: Any) -> Any:
    # Far out the imaginary part is a zero with the operand's sign; C's would have the sign of sin(2y).
    far = numpy.isinf(x.real) & numpy.isfinite(x.imag)
    return numpy.where(far, _complex_of(numpy.sign(x.real), numpy.copysign(0.0, x.imag)), result).astype(result.dtype)[
        ()
    ]


def tan(x: Any, /) -> Any:
    result = numpy.tan(x)
    if result.dtype.kind != "c":
        return result
    # tan(x) is -i tanh(ix).
    turned = _limits_of_tanh(_complex_of(-x.imag, x.real), _complex_of(-result.imag, result.real))
    return _complex_of(turned.imag, -turned.real).astype(result.dtype)[()]


def _complex_of(real: Any, imag: Any) -> Any:
    # A sum would lose the sign of zeros.
    result = numpy.empty(numpy.shape(real), dtype=numpy.complex128)
    result.real, result.imag = real, imag
    return result


def floor_divide(x1: Any, x2: Any, /) -> Any:
    result = numpy.floor_divide(x1, x2)
    if result.dtype.kind != "f":
        return result
    # The floor of the quotient, where NumPy follows Python: NaN and -1 with infinities.
    infinite = numpy.isinf(x1) | numpy.isinf(x2)
    return numpy.where(infinite, numpy.floor(numpy.divide(x1, x2)), result)[()] if infinite.any() else result


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    if not descending:
        return numpy.sort(x, axis=axis, stable=stable)
    return numpy.flip(numpy.sort(x, axis=axis, stable=stable), axis=axis)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    if not descending:
        return numpy.argsort(x, axis=axis, stable=stable)
    # Turned round before and after, so that equal elements stay as they stand.
    places = numpy.argsort(numpy.flip(x, axis=axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - numpy.flip(places, axis=axis)


class EigResult(NamedTuple):
    """As NumPy's, with complex numbers always."""

    eigenvalues: Array
    eigenvectors: Array


def _complex(x: Any) -> Any:
    return x.astype(numpy.result_type(x.dtype, numpy.complex64), copy=False)


def eig(x: Any, /) -> EigResult:
    values, vectors = numpy.linalg.eig(x)
    return EigResult(_complex(values), _complex(vectors))


def eigvals(x: Any, /) -> Any:
    return _complex(numpy.linalg.eigvals(x))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    return _of_type(numpy.fft.fftfreq(n, d, device=device), dtype)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    return _of_type(numpy.fft.rfftfreq(n, d, device=device), dtype)


def _of_type(frequencies: Any, dtype: Any) -> Any:
    if dtype is None:
        return frequencies
    if numpy.dtype(dtype).kind != "f":
        raise ValueError(f"frequencies are real numbers, not {dtype}")
    return frequencies.astype(dtype)


class Info:
    """NumPy's inspection; devices are a tuple since 2025.12."""

    def __init__(self) -> None:
        self._numpys = numpy.__array_namespace_info__()
        for name in ("capabilities", "default_device", "default_dtypes", "dtypes"):
            setattr(self, name, getattr(self._numpys, name))

    def devices(self) -> tuple[Any, ...]:
        return tuple(self._numpys.devices())


def _extension(name: str, names: tuple[str, ...], other: dict[str, Any]) -> ModuleType:
    module = ModuleType(f"tatara.array_api.numpy.{name}", f"The {name} extension of the standard.")
    module.__dict__.update({each: getattr(getattr(numpy, name), each) for each in names if each not in other})
    module.__dict__.update(other)
    module.__dict__["__all__"] = list(names)
    return module


def namespace() -> dict[str, Any]:
    """What is not NumPy's."""
    own = (finfo, iinfo, clip, expm1, sign, tan, tanh, floor_divide, sort, argsort)
    result: dict[str, Any] = {function.__name__: function for function in own}
    result["linalg"] = _extension("linalg", _names.LINALG, {"eig": eig, "eigvals": eigvals})
    result["fft"] = _extension("fft", _names.FFT, {"fftfreq": fftfreq, "rfftfreq": rfftfreq})
    result["__array_namespace_info__"] = Info
    return result
