"""Elementary functions of complex numbers in kernels against eager's, for tests on either device."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

import tatara

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS = ["exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
DTYPES = [torch.complex64, torch.complex128]
PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3e-5, 20.0, -90.0, 100.0, 800.0, math.inf, -math.inf, math.nan]


def compiled(function: Function) -> Function:
    """It alone, past the first call, which eager may have answered."""

    def alone(z: torch.Tensor) -> torch.Tensor:
        return function(z)

    made = tatara.compile(alone, options={"cache": False})

    def call(z: torch.Tensor) -> torch.Tensor:
        made(z)
        before = tatara.stats()["kernels_launched"]
        result = made(z)
        assert tatara.stats()["kernels_launched"] == before + 1
        return result

    return call


def many(dtype: torch.dtype, device: str) -> torch.Tensor:
    """Of all sizes, and near the unit circle, where logarithms cancel."""
    torch.manual_seed(0)
    sizes = torch.logspace(-6, 1.5, 1003, dtype=torch.float64)
    angles = torch.rand(1003, dtype=torch.float64) * 2 * math.pi
    near = 1 + 1e-4 * torch.randn(1003, dtype=torch.float64)
    return torch.cat([torch.polar(sizes, angles), torch.polar(near, angles)]).to(dtype).to(device)


def check_values(name: str, dtype: torch.dtype, device: str) -> None:
    """float32 parts against eager in float64, to a unit in the last place of the whole number; else against eager."""
    function: Function = getattr(torch, name)
    z = many(dtype, device)
    single = dtype == torch.complex64
    expected = function(z.to(torch.complex128))
    got = compiled(function)(z).to(torch.complex128)
    error = ((got - expected).abs() / expected.abs()).max().item()
    assert error < (1.2e-7 if single else 2e-14), error


def check_special(name: str, dtype: torch.dtype, device: str) -> None:
    """Zeros, infinities and NaN in either part. Signs of what C leaves open count only where they are signs of numbers."""
    function: Function = getattr(torch, name)
    z = torch.tensor([complex(a, b) for a in PARTS for b in PARTS], dtype=dtype, device=device)
    # Eager on a GPU gives infinities and NaN up earlier than C does.
    expected, got = torch.view_as_real(function(z.cpu())), torch.view_as_real(compiled(function)(z)).cpu()
    torch.testing.assert_close(got.abs(), expected.abs(), rtol=1e-5, atol=1e-30, equal_nan=True)
    known = ~(expected.isnan().any(1) | got.isnan().any(1))  # of both parts
    assert torch.equal(got[known].signbit(), expected[known].signbit())


def check_powers(dtype: torch.dtype, device: str) -> None:
    z, w = many(dtype, device), many(dtype, device).flip(0) * 0.1
    for exponent in (w, 0.3, 1.5 - 0.5j):

        def power(x: torch.Tensor, exponent: torch.Tensor | complex = exponent) -> torch.Tensor:
            return x**exponent

        rtol = 1e-5 if dtype == torch.complex64 else 1e-12
        torch.testing.assert_close(compiled(power)(z), z**exponent, rtol=rtol, atol=1e-6 if rtol > 1e-6 else 1e-13)
