"""`torch._foreach_pow` in its forms: a tensor each to a number, a number to each tensor, and lists to lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import tatara

FORMS: dict[str, Callable[[Sequence[torch.Tensor]], Any]] = {
    "to a number": lambda xs: torch._foreach_pow(xs, 3),
    "of a float": lambda xs: torch._foreach_pow(0.9, xs),
    "of an int": lambda xs: torch._foreach_pow(2, xs),
    "to numbers": lambda xs: torch._foreach_pow(xs, [2.0, 3.0]),
    "to tensors": lambda xs: torch._foreach_pow(xs, xs),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("form", list(FORMS))
def test_as_eager(form: str, dtype: torch.dtype, fresh: None) -> None:
    f = FORMS[form]
    compiled = tatara.compile(f)
    xs = [torch.tensor([1, 2, 3], dtype=dtype), torch.tensor([[2], [1]], dtype=dtype)]
    expected = f(xs)
    for _ in range(3):
        got = compiled(xs)
        assert type(got) is type(expected)
        for a, b in zip(expected, got, strict=True):
            torch.testing.assert_close(b, a)
    report = tatara.explain(compiled)(xs)
    assert not report.breaks and (dtype == torch.int64 or not report.host_calls)
