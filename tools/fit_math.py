"""Fits the polynomials of src/codegen/math_table.cpp and prints them.

Least squares on Chebyshev nodes, reweighted toward the minimax error (C. L. Lawson, 1961). Function values have 40 digits.
Needs NumPy and mpmath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

NODES = 400
ROUNDS = 60


def fit(
    function: Callable[[Any], Any], low: float, high: float, degree: int, relative: bool
) -> tuple[list[float], float]:
    """Coefficients from the constant term up, and the largest (relative) error on the nodes."""
    x = np.cos((2 * np.arange(NODES) + 1) * np.pi / (2 * NODES))
    points = (low + high) / 2 + (high - low) / 2 * x
    values = np.array([float(function(mpmath.mpf(float(p)))) for p in points])
    scale = 1 / np.abs(values) if relative else np.ones(NODES)
    basis = np.polynomial.chebyshev.chebvander(x, degree)
    weights = np.ones(NODES)
    for _ in range(ROUNDS):
        row = np.sqrt(weights) * scale
        coefficients, *_ = np.linalg.lstsq(basis * row[:, None], values * row, rcond=None)
        error = np.abs((basis @ coefficients - values) * scale)
        weights *= error + 1e-300
        weights /= weights.sum()
    series = np.polynomial.chebyshev.Chebyshev(coefficients, domain=[low, high])
    return list(series.convert(kind=np.polynomial.Polynomial).coef), float(error.max())


def main() -> None:
    mpmath.mp.dps = 40
    third = mpmath.mpf(1) / 3
    fits: list[tuple[str, Callable[[Any], Any], float, float, int, bool]] = [
        ("exp: (e^r - 1 - r) / r^2", lambda r: (mpmath.exp(r) - 1 - r) / r**2, -0.3467, 0.3467, 4, True),
        (
            "log: (log1p f - f + f^2/2) / f^3",
            lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3,
            -0.2929,
            0.4143,
            7,
            True,
        ),
        (
            "tanh: (tanh x / x - 1) / x^2 over x^2",
            lambda y: (mpmath.tanh(mpmath.sqrt(y)) / mpmath.sqrt(y) - 1) / y if y > 1e-20 else -third,
            0.0,
            0.40,
            4,
            True,
        ),
        ("erf: erf x / x over x^2", lambda y: mpmath.erf(mpmath.sqrt(y)) / mpmath.sqrt(y), 0.0, 0.81, 6, True),
        ("log(erfc x)", lambda x: mpmath.log(mpmath.erfc(x)), 0.85, 4.1, 9, False),
    ]
    for name, function, low, high, degree, relative in fits:
        coefficients, error = fit(function, low, high, degree, relative)
        print(f"{name} on [{low}, {high}], error {error:.2e}")
        print("  " + ", ".join(f"{c:.9g}" for c in coefficients))


if __name__ == "__main__":
    main()
