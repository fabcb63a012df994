"""On a GPU: elementary functions of complex numbers in kernels."""

from __future__ import annotations

import pytest
import torch

from complex_functions import DTYPES, FUNCTIONS, check_powers, check_special, check_values

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str, dtype: torch.dtype) -> None:
    check_values(name, dtype, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special(name: str, dtype: torch.dtype) -> None:
    check_special(name, dtype, "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype: torch.dtype) -> None:
    check_powers(dtype, "cuda")
