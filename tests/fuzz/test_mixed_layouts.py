"""Transposed and permuted inputs beside contiguous ones, in sizes around those of a tile, compiled, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tatara = pytest.importorskip("tatara")

Tensor = Any

_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.int64, torch.bool]


def _values(shape: tuple[int, ...], dtype: Any) -> Tensor:
    count = torch.arange(torch.Size(shape).numel()).remainder(1009)
    return (count.remainder(2) == 1 if dtype == torch.bool else count.remainder(97)).to(dtype).reshape(shape)


def _check(function: Callable[..., Any], *arguments: Tensor) -> None:
    tatara.reset()
    actual, expected = tatara.compile(function, fullgraph=True)(*arguments), function(*arguments)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, check_stride=True)


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(16, 64), (17, 65), (100, 39), (8, 300), (64, 16), (9, 8)], ids=str)
def test_transposed_copy(dtype: Any, shape: tuple[int, ...]) -> None:
    _check(lambda x: x.t().contiguous(), _values(shape, dtype))


@pytest.mark.parametrize("rows", [8, 16, 31, 70])
@pytest.mark.parametrize("columns", [8, 33, 64, 130])
def test_sum_of_both_layouts(rows: int, columns: int) -> None:
    x, y = _values((rows, columns), torch.float32), _values((columns, rows), torch.float32)
    _check(lambda x, y: x.t() + y * 2, x, y)
    _check(lambda x, y: (x.t() + y).t().contiguous() - x, x, y)


@pytest.mark.parametrize("shape", [(2, 96, 14, 14), (1, 3, 17, 19), (2, 40, 7, 7)], ids=str)
def test_channels_last_and_back(shape: tuple[int, ...]) -> None:
    x = _values(shape, torch.float32)
    _check(lambda x: torch.exp(x / 100).permute(0, 2, 3, 1).contiguous(), x)
    _check(lambda x: x.to(memory_format=torch.channels_last) + 1, x)
    _check(lambda x: (x * 2).contiguous(), x.to(memory_format=torch.channels_last))


@pytest.mark.parametrize("shape", [(2, 96, 14, 14), (1, 33, 5, 9), (2, 768, 7, 7)], ids=str)
def test_normalisation_over_channels(shape: tuple[int, ...]) -> None:
    weight, bias = torch.rand(shape[1]), torch.rand(shape[1])

    def norm(x: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],), weight, bias)

    _check(norm, _values(shape, torch.float32))
    _check(lambda x: torch.softmax(x, 1), _values(shape, torch.float32))
    _check(lambda x: torch.softmax(x.permute(0, 2, 3, 1).contiguous(), -1), _values(shape, torch.float32))


def test_symbolic_sizes() -> None:
    compiled = tatara.compile(lambda x, y: torch.relu(x.t() - 40) + y, dynamic=True, fullgraph=True)
    for rows, columns in ((5, 7), (64, 64), (100, 33), (16, 129)):
        x, y = _values((rows, columns), torch.float32), _values((columns, rows), torch.float32)
        torch.testing.assert_close(compiled(x, y), torch.relu(x.t() - 40) + y)


@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_values_kept_between_walks(scale: float) -> None:
    x = torch.randn(33, 777) * scale
    _check(lambda x: torch.softmax(torch.nn.functional.gelu(x), -1), x)
    _check(lambda x: torch.nn.functional.layer_norm(torch.tanh(x), (777,)), x)
    _check(lambda x: (torch.log_softmax(x, -1), torch.softmax(x, -1)), x)
    _check(lambda x: torch.softmax(x.masked_fill(x > 0, float("-inf")).index_fill(1, torch.tensor(3), 0.0), -1), x)
