"""Elementary functions of complex numbers in kernels against eager's."""

from __future__ import annotations

import pytest
import torch

from complex_functions import DTYPES, FUNCTIONS, check_powers, check_special, check_values

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str, dtype: torch.dtype) -> None:
    check_values(name, dtype, "cpu")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special(name: str, dtype: torch.dtype) -> None:
    check_special(name, dtype, "cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype: torch.dtype) -> None:
    check_powers(dtype, "cpu")
