"""`torch.compiler.is_compiling()` is True in a trace, but for programs that go wrong when they are told so."""

from __future__ import annotations

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")


def _raises_if_told(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if torch.compiler.is_compiling():
        raise ValueError("only when compiled")
    return y * 2


def _is_wrong_if_told(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    bias = torch.ones(x.shape[0] + 1 if torch.compiler.is_compiling() else 1)
    return y * 2 + bias


@pytest.mark.parametrize("function", [_raises_if_told, _is_wrong_if_told], ids=lambda f: f.__name__.strip("_"))
def test_programs_that_go_wrong_when_told(function: object) -> None:
    assert callable(function)
    compiled = tatara.compile(function)
    with torch.no_grad(), counts() as grown:
        for size in (3, 4, 4):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x), function(x))
    assert grown["breaks"] == grown["fallbacks"] == 0
    assert grown["graphs"] >= 1


def test_what_raises_in_any_case_raises() -> None:
    def f(x: torch.Tensor, wrong: bool) -> tuple[torch.Tensor, bool]:
        told = torch.compiler.is_compiling()
        y = x.sin()
        if wrong:
            raise KeyError("always")
        return y * 2, told

    compiled = tatara.compile(f)
    x = torch.randn(3)
    for _ in range(2):
        with pytest.raises(KeyError, match="always"):
            compiled(x, True)
    assert compiled(x, False)[1]  # later programs are told
