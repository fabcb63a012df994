"""Convolutions over one dimension: a weight whose channels come last decides the layout of the result, an input does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

# batch, channels in and out, length, kernel, dilation, stride, groups
CASES = [
    (2, 6, 4, 25, 5, 2, 1, 1),
    (2, 4, 4, 20, 1, 1, 1, 1),
    (1, 4, 4, 20, 3, 1, 2, 1),
    (2, 4, 4, 20, 3, 1, 1, 4),
    (2, 1, 4, 20, 3, 1, 1, 1),
    (2, 3, 1, 20, 3, 1, 1, 1),
    (2, 3, 5, 1, 1, 1, 1, 1),
    (2, 4, 8, 20, 3, 2, 1, 2),
]


def _laid_out(sizes: tuple[int, int, int], last: bool, dtype: torch.dtype) -> torch.Tensor:
    a, b, c = sizes
    return torch.randn(a, c, b, dtype=dtype).transpose(1, 2) if last else torch.randn(sizes, dtype=dtype)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_as_eager(case: tuple[int, ...], dtype: torch.dtype, transposed: bool) -> None:
    batch, channels, filters, length, kernel, dilation, stride, groups = case
    convolve = F.conv_transpose1d if transposed else F.conv1d

    def program(x: Any, w: Any) -> Any:
        y = convolve(x, w, dilation=dilation, stride=stride, groups=groups)
        return y, y.transpose(1, 2).relu(), y.stride()

    outer, inner = (channels, filters // groups) if transposed else (filters, channels // groups)
    for rows_last in (False, True):
        for weight_last in (False, True):
            x = _laid_out((batch, channels, length), rows_last, dtype)
            w = _laid_out((outer, inner, kernel), weight_last, dtype)
            compiled = tatara.compile(program)
            before = tatara.stats()["graphs"]
            for _ in range(2):
                for found, expected in zip(compiled(x, w), program(x, w), strict=True):
                    if isinstance(found, tuple):
                        assert found == expected
                        continue
                    torch.testing.assert_close(found, expected)
                    assert found.stride() == expected.stride()
            assert (tatara.stats()["graphs"], tatara.stats()["fallbacks"]) == (before + 1, 0)


def test_computed_weights_and_gradients() -> None:
    def program(x: Any, w: Any) -> Any:
        y = F.conv1d(x.transpose(1, 2), (w * 2).transpose(1, 2), dilation=2)
        return y.transpose(1, 2).relu()

    x, w = torch.randn(2, 25, 6), torch.randn(4, 5, 6)
    compiled = tatara.compile(program)
    for _ in range(2):
        found, expected = (
            (r, *torch.autograd.grad(r.square().sum(), leaves), r.stride())
            for function in (compiled, program)
            for leaves in [(x.clone().requires_grad_(), w.clone().requires_grad_())]
            for r in [function(*leaves)]
        )
        for a, b in zip(found, expected, strict=True):
            if isinstance(a, tuple):
                assert a == b
            else:
                torch.testing.assert_close(a, b)
    assert tatara.stats()["fallbacks"] == 0
