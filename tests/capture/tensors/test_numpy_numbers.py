"""NumPy's numbers in code of torch: what comes of constants is a constant, and torch takes it for a number of Python's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import numpy as np
import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

WIDTH = 64


def _behind(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * np.sqrt(WIDTH)


def _in_front(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return np.sqrt(WIDTH) * y


def _of_sizes(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y / np.sqrt(y.size(-1)) + np.log(np.float64(10)) - np.exp(1)


def _narrow(x: torch.Tensor) -> torch.Tensor:
    scale = np.float32(2.5)
    return x.sin() * scale + np.int64(3)


def _as_a_size(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    count = int(np.prod([2, 3]))
    return y.reshape(-1)[:count] * np.float16(0.5)


FUNCTIONS = [_behind, _in_front, _of_sizes, _narrow, _as_a_size]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__.strip("_"))
def test_numbers(function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    compiled = tatara.compile(function, fullgraph=True)
    with counts() as grown:
        for _ in range(3):
            x = torch.arange(16, dtype=dtype).reshape(4, 4)
            got, expected = compiled(x), function(x)
            assert type(got) is type(expected) and got.dtype == expected.dtype
            tolerance = 4e-3 if dtype == torch.float16 else 1e-5  # kernels round halves once
            torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)
    assert grown["graphs"] == 1 and grown["breaks"] == 0


def test_what_is_no_number_raises_as_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * np.datetime64("2020-01-01")

    compiled = tatara.compile(f)
    for _ in range(2):
        for function in (f, compiled):
            with pytest.raises(TypeError):
                function(torch.ones(3))
