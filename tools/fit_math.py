"""Fits the polynomials of src/codegen/math/*.cpp and writes src/codegen/math/coefficients.h.

Each polynomial minimises the largest weighted error over its interval: Remez's exchange algorithm (E. Remez, 1934) on a
dense set of Chebyshev points, in 60 digits. Usage: python tools/fit_math.py [NAME ...] prints those fits, without names
all of them are written to the header. Needs mpmath.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
from mpmath import mpf

mpmath.mp.dps = 60
HEADER = pathlib.Path(__file__).parent.parent / "src/codegen/math/coefficients.h"
Function = Callable[[Any], Any]


@dataclass
class Fit:
    """P(t) near function(t) for t in [low, high]; errors count weight(t) times."""

    name: str
    about: str
    function: Function
    weight: Function
    low: Any
    high: Any
    degree: int
    digits: int  # 9 for float32, 17 for float64


def remez(fit: Fit) -> tuple[list[Any], Any]:
    """Coefficients from the constant term up, and the largest weighted error."""
    count = fit.degree + 2
    low, high = mpf(fit.low), mpf(fit.high)
    total = 24 * count
    # The end points are left out: many of the functions are limits there.
    points = [
        (low + high) / 2 - (high - low) / 2 * mpmath.cos((2 * i + 1) * mpmath.pi / (2 * total)) for i in range(total)
    ]
    values = [mpf(fit.function(t)) for t in points]
    weights = [mpf(fit.weight(t)) for t in points]
    chosen = [int((i + 0.5) * total / count) for i in range(count)]
    coefficients: list[Any] = []
    worst = mpf(0)
    for _ in range(40):
        matrix = mpmath.matrix(count, count)
        right = mpmath.matrix(count, 1)
        for row, at in enumerate(chosen):
            power = mpf(1)
            for column in range(count - 1):
                matrix[row, column] = power
                power *= points[at]
            matrix[row, count - 1] = (-1) ** row / weights[at]
            right[row] = values[at]
        solution = mpmath.lu_solve(matrix, right)
        coefficients = [solution[i] for i in range(count - 1)]
        level = abs(solution[count - 1])
        errors = [weights[i] * (mpmath.polyval(coefficients[::-1], points[i]) - values[i]) for i in range(total)]
        worst = max(abs(e) for e in errors)
        if worst <= level * mpf("1.0001"):
            break
        chosen = exchange(errors, count)
    return coefficients, worst


def exchange(errors: list[Any], count: int) -> list[int]:
    """The largest error of each run of one sign; of too many runs, neighbours with the larger errors stay."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if peaks and (errors[peaks[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]):
            peaks.pop(0)
        else:
            peaks.pop()
    if len(peaks) < count:
        raise ArithmeticError("too few changes of sign: the degree is too high for the function")
    return peaks


def one(_t: Any) -> Any:
    return mpf(1)


def rounded(value: Any, digits: int) -> Any:
    """The float32 or float64 next to value."""
    bits = 24 if digits == 9 else 53
    with mpmath.workprec(bits):
        return +mpf(value)


def root(function: Function) -> Function:
    """Function of sqrt(z), for polynomials in the square."""
    return lambda z: function(mpmath.sqrt(z))


LN2 = mpmath.log(2)
SQRT_HALF = 1 / mpmath.sqrt(2)


def log_fits() -> list[Fit]:
    low, high = SQRT_HALF - 1, mpmath.sqrt(2) - 1
    fits = [
        Fit(
            "kLogF32",
            "(log(1+f) - f + f^2/2) / f^3",
            lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3,
            lambda f: f**3 / mpmath.log1p(f),
            low,
            high,
            7,
            9,
        ),
        Fit(
            "kLog2LowF64",
            "log2(1+f) / f, for results of float32",
            lambda f: mpmath.log1p(f) / f / LN2,
            lambda f: LN2 * f / mpmath.log1p(f),
            low,
            high,
            13,
            17,
        ),
    ]
    # log(1+f) = log((1+s) / (1-s)) with s = f / (2+f).
    top = (mpmath.sqrt(2) - 1) ** 4
    series = root(lambda s: mpmath.log((1 + s) / (1 - s)) / s)
    fits += [
        Fit(
            "kLogF64",
            "(log((1+s)/(1-s)) / s - 2) / s^2 over s^2",
            lambda z: (series(z) - 2) / z,
            lambda z: z / series(z),
            0,
            top,
            6,
            17,
        ),
        Fit(
            "kLog2TailF64",
            "(log2((1+s)/(1-s)) / s - 2/ln2 - 2/(3 ln2) s^2) / s^4 over s^2",
            lambda z: (series(z) - 2 - 2 * z / 3) / z**2 / LN2,
            lambda z: z**2 / series(z),
            0,
            top,
            6,
            17,
        ),
    ]
    for base, name in ((2, "kLog2F32"), (10, "kLog10F32")):
        scale = 1 / mpmath.log(base)
        head = rounded(scale, 9)
        fits.append(
            Fit(
                name,
                f"log{base}(1+f) / f - float32(1 / ln {base})",
                lambda f, scale=scale, head=head: mpmath.log1p(f) / f * scale - head,
                lambda f, scale=scale: f / (mpmath.log1p(f) * scale),
                low,
                high,
                9,
                9,
            )
        )
    return fits


def exp_fits() -> list[Fit]:
    half = LN2 / 2 * mpf("1.0005")
    tail = lambda r: (mpmath.expm1(r) - r) / r**2  # noqa: E731
    return [
        Fit("kExpF32", "(e^r - 1 - r) / r^2", tail, lambda r: r * r / mpmath.exp(r), -half, half, 4, 9),
        Fit(
            "kExpm1F32",
            "(e^r - 1 - r) / r^2, relative to e^r - 1",
            tail,
            lambda r: r * r / mpmath.expm1(r),
            -half,
            half,
            5,
            9,
        ),
        Fit("kExp2F32", "(2^r - 1) / r", lambda r: (2**r - 1) / r, lambda r: r / 2**r, -0.5, 0.5, 5, 9),
        Fit("kExpF64", "(e^r - 1 - r) / r^2", tail, lambda r: r * r / mpmath.exp(r), -half, half, 9, 17),
        Fit(
            "kExpm1F64",
            "(e^r - 1 - r) / r^2, relative to e^r - 1",
            tail,
            lambda r: r * r / mpmath.expm1(r),
            -half,
            half,
            10,
            17,
        ),
        Fit("kExp2F64", "(2^r - 1) / r", lambda r: (2**r - 1) / r, lambda r: r / 2**r, -0.5, 0.5, 10, 17),
        Fit("kExp2LowF64", "2^r, for results of float32", lambda r: 2**r, lambda r: 2**-r, -0.5, 0.5, 7, 17),
    ]


def trig_fits() -> list[Fit]:
    top = (mpmath.pi / 4 + mpf("0.02")) ** 2
    return [
        Fit(
            "kSinF32",
            "(sin r / r - 1) / r^2 over r^2",
            root(lambda r: (mpmath.sin(r) / r - 1) / r**2),
            root(lambda r: r**3 / mpmath.sin(r)),
            0,
            top,
            2,
            9,
        ),
        Fit(
            "kCosF32",
            "(cos r - 1 + r^2/2) / r^4 over r^2",
            root(lambda r: (mpmath.cos(r) - 1 + r * r / 2) / r**4),
            root(lambda r: r**4 / mpmath.cos(r)),
            0,
            top,
            2,
            9,
        ),
        Fit(
            "kSinF64",
            "(sin r / r - 1) / r^2 over r^2",
            root(lambda r: (mpmath.sin(r) / r - 1) / r**2),
            root(lambda r: r**3 / mpmath.sin(r)),
            0,
            top,
            5,
            17,
        ),
        Fit(
            "kCosF64",
            "(cos r - 1 + r^2/2) / r^4 over r^2",
            root(lambda r: (mpmath.cos(r) - 1 + r * r / 2) / r**4),
            root(lambda r: r**4 / mpmath.cos(r)),
            0,
            top,
            5,
            17,
        ),
        Fit(
            "kTanF32",
            "(tan r / r - 1) / r^2 over r^2",
            root(lambda r: (mpmath.tan(r) / r - 1) / r**2),
            root(lambda r: r**3 / mpmath.tan(r)),
            0,
            top,
            6,
            9,
        ),
    ]


def odd_fit(name: str, function: Function, high: Any, degree: int, digits: int, about: str) -> Fit:
    """function(x) = x + x^3 * P(x^2)."""
    return Fit(
        name,
        f"({about} / x - 1) / x^2 over x^2",
        root(lambda x: (function(x) / x - 1) / x**2),
        root(lambda x: x**3 / function(x)),
        0,
        mpf(high) ** 2,
        degree,
        digits,
    )


def erfc_scaled(t: Any) -> Any:
    """erfc(x) * exp(x^2) * (x + 2) for t = (x - 2) / (x + 2)."""
    x = 2 * (1 + t) / (1 - t)
    if x > 1000:  # the asymptotic series, where the factors leave the range
        terms = [mpmath.fac2(2 * n - 1) * (-1) ** n / (2 * x * x) ** n if n else mpf(1) for n in range(9)]
        return (x + 2) / (x * mpmath.sqrt(mpmath.pi)) * mpmath.fsum(terms)
    return mpmath.erfc(x) * mpmath.exp(x * x) * (x + 2)


def erfinv_ratio(w: Any) -> Any:
    """erfinv(x) / x for w = -log(1 - x^2)."""
    x = mpmath.sqrt(-mpmath.expm1(-w))
    return mpmath.erfinv(x) / x


def inverse_fits() -> list[Fit]:
    return [
        odd_fit("kAtanF32", mpmath.atan, 1, 9, 9, "atan x"),
        odd_fit("kAsinF32", mpmath.asin, 0.5, 4, 9, "asin x"),
        odd_fit("kAtanF64", mpmath.atan, 1, 19, 17, "atan x"),
        odd_fit("kAsinF64", mpmath.asin, 0.5, 12, 17, "asin x"),
        odd_fit("kSinhF64", mpmath.sinh, 1, 6, 17, "sinh x"),
        odd_fit("kSinhF32", mpmath.sinh, 1, 3, 9, "sinh x"),
        Fit(
            "kErfinvNear",
            "erfinv(x) / x over -log(1-x^2)",
            erfinv_ratio,
            lambda w: 1 / erfinv_ratio(w),
            0,
            5.01,
            10,
            17,
        ),
        Fit(
            "kErfinvFar",
            "erfinv(x) / x over sqrt(-log(1-x^2))",
            lambda v: erfinv_ratio(v * v),
            lambda v: 1 / erfinv_ratio(v * v),
            2.23,
            6.1,
            15,
            17,
        ),
    ]


def inverse(fit: Function) -> Function:
    return lambda t: 1 / fit(t)


def normal_quantile(t: Any) -> Any:
    """X > 0 with half of erfc(x / sqrt 2) equal to exp(-t^2 / 2), over t; Newton's method on the logarithm."""
    x = mpmath.sqrt(max(t * t - mpmath.log(2 * mpmath.pi * t * t), mpf("0.01")))
    for _ in range(12):
        tail = mpmath.erfc(x / mpmath.sqrt(2)) / 2
        slope = -mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi) / tail
        step = (mpmath.log(tail) + t * t / 2) / slope
        x -= step
        if abs(step) < mpf(10) ** -50:
            break
    return x


def normal_center(y: Any) -> Any:
    """X / y with the normal distribution's value 1/2 + y at x."""
    return mpmath.sqrt(2) * mpmath.erfinv(2 * y) / y


def lgamma_near(u: Any) -> Any:
    """lgamma(2 + u) / (u * (1 + u))."""
    return mpmath.loggamma(2 + u) / (u * (1 + u))


def stirling(w: Any) -> Any:
    """What Stirling's formula leaves of lgamma(x), times x, for w = 1 / x^2."""
    x = 1 / mpmath.sqrt(w)
    rest = mpmath.loggamma(x) - ((x - mpf(1) / 2) * mpmath.log(x) - x + mpmath.log(2 * mpmath.pi) / 2)
    return rest * x


def digamma_rest(w: Any) -> Any:
    """(log x - 1 / (2x) - digamma(x)) * x^2 for w = 1 / x^2."""
    x = 1 / mpmath.sqrt(w)
    return (mpmath.log(x) - 1 / (2 * x) - mpmath.digamma(x)) / w


def bessel_far(order: int) -> Function:
    return lambda v: mpmath.exp(-8 / v) * mpmath.besseli(order, 8 / v) * mpmath.sqrt(8 / v)


def gamma_fits() -> list[Fit]:
    sine = root(lambda r: mpmath.sin(mpmath.pi * r) / r)
    i0 = root(lambda x: mpmath.besseli(0, x))
    i1 = root(lambda x: mpmath.besseli(1, x) / x)
    quantile = lambda s: normal_quantile(1 / s) * s  # noqa: E731
    center = root(normal_center)
    scaled = inverse(erfc_scaled)
    size = lambda w: mpmath.sqrt(w) / abs(mpmath.loggamma(1 / mpmath.sqrt(w)))  # noqa: E731
    return [
        Fit("kErfcLowF64", "erfc(x) exp(x^2) (x+2) over (x-2)/(x+2)", erfc_scaled, scaled, -1, 1, 12, 17),
        Fit("kErfcF64", "erfc(x) exp(x^2) (x+2) over (x-2)/(x+2)", erfc_scaled, scaled, -1, 1, 27, 17),
        Fit("kLgammaNear", "lgamma(2+u) / (u (1+u))", lgamma_near, inverse(lgamma_near), -1, 1, 14, 17),
        Fit("kLgammaFar", "Stirling's rest times x over 1/x^2", stirling, size, 0, mpf(1) / 9, 3, 17),
        Fit("kLgammaNearF64", "lgamma(2+u) / (u (1+u))", lgamma_near, inverse(lgamma_near), -1, 1, 27, 17),
        Fit("kLgammaFarF64", "Stirling's rest times x over 1/x^2", stirling, size, 0, mpf(1) / 9, 9, 17),
        Fit("kSinPi", "sin(pi r) / r over r^2", sine, inverse(sine), 0, 0.25, 5, 17),
        Fit("kDigammaLowF64", "digamma's rest over 1/x^2", digamma_rest, lambda w: w, 0, mpf(1) / 36, 2, 17),
        Fit("kDigammaF64", "digamma's rest over 1/x^2", digamma_rest, lambda w: w, 0, 0.01, 4, 17),
        Fit("kI0NearLow", "I0(x) over x^2", i0, inverse(i0), 0, 64, 10, 17),
        Fit("kI0FarLow", "exp(-x) I0(x) sqrt(x) over 8/x", bessel_far(0), inverse(bessel_far(0)), 0, 1, 6, 17),
        Fit("kI0NearF64", "I0(x) over x^2", i0, inverse(i0), 0, 64, 15, 17),
        Fit("kI0FarF64", "exp(-x) I0(x) sqrt(x) over 8/x", bessel_far(0), inverse(bessel_far(0)), 0, 1, 22, 17),
        Fit("kI1NearLow", "I1(x) / x over x^2", i1, inverse(i1), 0, 64, 10, 17),
        Fit("kI1FarLow", "exp(-x) I1(x) sqrt(x) over 8/x", bessel_far(1), inverse(bessel_far(1)), 0, 1, 6, 17),
        Fit("kI1NearF64", "I1(x) / x over x^2", i1, inverse(i1), 0, 64, 15, 17),
        Fit("kI1FarF64", "exp(-x) I1(x) sqrt(x) over 8/x", bessel_far(1), inverse(bessel_far(1)), 0, 1, 22, 17),
        Fit("kNdtriCenter", "x / y over y^2", center, inverse(center), 0, 0.135, 10, 17),
        Fit("kNdtriCenterF64", "x / y over y^2", center, inverse(center), 0, 0.135, 21, 17),
        Fit("kNdtriTail", "x / t over 1/t, t = sqrt(-2 log p)", quantile, inverse(quantile), 0.0257, 0.5, 18, 17),
    ]


def special_fits() -> list[Fit]:
    return [
        odd_fit("kTanhF64", mpmath.tanh, 0.626, 11, 17, "tanh x"),
        Fit(
            "kErfNearF64",
            "erf x / x - 1 over x^2",
            root(lambda x: mpmath.erf(x) / x - 1),
            root(lambda x: x / mpmath.erf(x)),
            0,
            0.77,
            10,
            17,
        ),
        Fit(
            "kErfFarF64",
            "log(erfc x)",
            lambda x: mpmath.log(mpmath.erfc(x)),
            lambda x: mpmath.erfc(x),
            0.87,
            6.0,
            18,
            17,
        ),
        Fit(
            "kTanhF32",
            "(tanh x / x - 1) / x^2 over x^2",
            root(lambda x: (mpmath.tanh(x) / x - 1) / x**2),
            root(lambda x: x**3 / mpmath.tanh(x)),
            0,
            0.40,
            4,
            9,
        ),
        Fit(
            "kErfF32",
            "-log(erfc x) / x - 1, relative to erf x",
            lambda x: -mpmath.log(mpmath.erfc(x)) / x - 1,
            lambda x: x * mpmath.erfc(x) / mpmath.erf(x),
            0,
            4.0,
            8,
            9,
        ),
    ]


def all_fits() -> list[Fit]:
    return [*exp_fits(), *log_fits(), *trig_fits(), *inverse_fits(), *gamma_fits(), *special_fits()]


def show(fit: Fit) -> tuple[str, str]:
    coefficients, error = remez(fit)
    texts = [mpmath.nstr(c, fit.digits, strip_zeros=True) for c in coefficients]
    interval = f"[{mpmath.nstr(mpf(fit.low), 6)}, {mpmath.nstr(mpf(fit.high), 6)}]"
    return f"{fit.about}, on {interval}; error 2^{mpmath.nstr(mpmath.log(error, 2), 4)}", ", ".join(texts)


def two_over_pi(words: int) -> str:
    """Bits of 2/pi, most significant first, after a word of zeros: an index may start before the binary point."""
    with mpmath.workprec(32 * words + 64):
        value = int(mpmath.floor(2 / mpmath.pi * mpf(2) ** (32 * words)))
    parts = [0] + [(value >> (32 * (words - 1 - i))) & 0xFFFFFFFF for i in range(words)]
    return ", ".join(f"0x{p:08x}" for p in parts)


def parts(value: Any, count: int, bits: int, last_bits: int) -> str:
    """Value as a sum of numbers of `bits` bits each, the last one of last_bits."""
    texts = []
    for i in range(count):
        with mpmath.workprec(bits if i < count - 1 else last_bits):
            part = +mpf(value)
        texts.append(float(part).hex())
        value -= part
    return ", ".join(texts)


def constants() -> list[str]:
    """Numbers in parts for Cody-Waite reduction, where a product with all parts but the last must be exact."""
    rows = [
        ("kHalfPiF32", mpmath.pi / 2, 3, 24, 24),
        ("kHalfPiF64", mpmath.pi / 2, 3, 53, 53),
        ("kHalfPiShort", mpmath.pi / 2, 3, 33, 53),
        ("kHalfPiInF32", mpmath.pi / 2, 2, 24, 24),
        ("kHalfPiInF64", mpmath.pi / 2, 2, 53, 53),
        ("kLn2F32", LN2, 2, 15, 24),
        ("kLn2F64", LN2, 2, 32, 53),
        ("kTwoOverLn2", 2 / LN2, 2, 53, 53),
        ("kTwoThirdsOverLn2", 2 / LN2 / 3, 2, 53, 53),
        ("kLog10Of2F64", mpmath.log10(2), 2, 53, 53),
        ("kLog10Of2F32", mpmath.log10(2), 2, 13, 24),
    ]
    return [
        f"inline constexpr std::array<double, {count}> {name} = {{{parts(value, count, bits, last)}}};"
        for name, value, count, bits, last in rows
    ]


def main() -> None:
    names = sys.argv[1:]
    lines = [
        "// Written by tools/fit_math.py: do not edit.",
        "#pragma once",
        "",
        "#include <array>",
        "#include <cstdint>",
        "",
        "namespace tatara::codegen {",
        "",
        "// clang-format off",
    ]
    for fit in all_fits():
        if names and fit.name not in names:
            continue
        about, values = show(fit)
        print(f"{fit.name}: {about}", flush=True)
        lines.append(f"// {about}")
        lines.append(f"inline constexpr std::array<double, {fit.degree + 1}> {fit.name} = {{{values}}};")
    lines += ["// Constants in parts, the largest first.", *constants()]
    lines.append("// Bits of 2/pi after a word of zeros.")
    lines.append(f"inline constexpr std::array<uint32_t, 45> kTwoOverPi = {{{two_over_pi(44)}}};")
    lines += ["// clang-format on", "", "}  // namespace tatara::codegen", ""]
    if names:
        print("\n".join(line for line in lines if line.startswith("inline")))
    else:
        HEADER.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
