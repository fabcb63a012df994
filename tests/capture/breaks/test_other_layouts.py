"""Operators that lay their results out otherwise than their meta kernels say: what follows is compiled all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module", autouse=True)
def _library() -> Iterator[None]:
    library = torch.library.Library("tatara_layouts", "DEF")
    library.define("columns(Tensor x) -> Tensor")
    library.impl("columns", lambda x: (x * 2).t().contiguous().t(), "CPU")
    library.impl("columns", torch.empty_like, "Meta")
    assert torch.ops.tatara_layouts.columns.default is not None
    yield
    library._destroy()


def _copied(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.ops.tatara_layouts.columns.default(x.sin()).contiguous()
    z = y.view(-1)
    for _ in range(10):
        z = z.cos() * 2 + 1
    return z, y


def _copy_beside(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.ops.tatara_layouts.columns.default(x.sin())
    z = y.contiguous()
    z.add_(1)
    return z.view(-1) * 2 + y.reshape(-1), y, z


def _given_out(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.ops.tatara_layouts.columns.default(x.sin().cos())
    return (y * 2).sin(), y, y.contiguous()


@pytest.mark.parametrize("function", [_copied, _copy_beside, _given_out], ids=lambda f: f.__name__.strip("_"))
def test_results_lie_otherwise(function: Callable[[torch.Tensor], Any]) -> None:
    compiled = tatara.compile(function)
    with torch.no_grad(), counts() as grown:
        for size in (3, 4, 5, 5, 5, 5):
            x = torch.randn(size, size + 1)
            got, expected = compiled(x), function(x)
            for a, b in zip(got, expected, strict=True):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()
            shares = [[a.data_ptr() == b.data_ptr() for a in r for b in r] for r in (got, expected)]
            assert shares[0] == shares[1]
    assert grown["fallbacks"] == grown["breaks"] == 0
    assert grown["kernels_launched"] > 0
