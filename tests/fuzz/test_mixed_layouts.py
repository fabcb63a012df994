"""Transposed and permuted inputs beside contiguous ones, in sizes around those of a tile, compiled, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

Tensor = Any

_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.int64, torch.bool]


def _values(shape: tuple[int, ...], dtype: Any) -> Tensor:
    count = torch.arange(torch.Size(shape).numel()).remainder(1009)
    return (count.remainder(2) == 1 if dtype == torch.bool else count.remainder(97)).to(dtype).reshape(shape)


def _check(function: Callable[..., Any], *arguments: Tensor) -> None:
    tatara.reset()
    actual, expected = tatara.compile(function, fullgraph=True)(*arguments), function(*arguments)
    same(actual, expected, rtol=1e-5, atol=1e-5)


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


def _notes(function: Callable[..., Any], *arguments: Tensor) -> str:
    tatara.reset()
    return "\n".join(tatara.explain(function)(*arguments).notes)


@pytest.mark.parametrize("columns", [5000, 4097])
def test_values_kept_in_a_result(columns: int) -> None:
    """Long rows wait where their result goes, unless something else looks at that memory."""
    x = torch.randn(7, columns) * 3

    def into_input(x: Tensor) -> Tensor:
        x.copy_(torch.softmax(x, -1))
        return x * 2

    def added_to_input(x: Tensor, y: Tensor) -> Tensor:
        return y.add_(torch.softmax(x, -1))

    _check(lambda x: torch.softmax(x, -1), x)
    _check(lambda x: torch.softmax(torch.nn.functional.gelu(x), -1), x)
    _check(lambda x: (torch.log_softmax(x, -1), torch.softmax(x, -1)), x)
    _check(lambda x: torch.softmax(x, -1) + torch.softmax(x, -1).flip(-1), x)
    _check(lambda x: torch.softmax(x.t().contiguous().t(), -1), x)
    _check(lambda x: torch.softmax(x, -1).to(torch.bfloat16), x)
    _check(lambda x: torch.softmax(x.abs() + 1, -1).neg().exp().cumsum(-1), x)
    assert "in the memory of a result" in _notes(lambda x: torch.softmax(x, -1), x)
    assert "in the memory of a result" not in _notes(lambda x: torch.softmax(x, -1).to(torch.bfloat16), x)
    assert "in the memory of a result" not in _notes(lambda x: torch.softmax(x, -1), x[:, :777])
    for function, count in ((into_input, 1), (added_to_input, 2)):
        ours, theirs = [x.clone() for _ in range(count)], [x.clone() for _ in range(count)]
        tatara.reset()
        torch.testing.assert_close(tatara.compile(function)(*ours), function(*theirs))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("columns", [3, 64, 127, 128, 200, 257, 600])
@pytest.mark.parametrize("mode", ["add", "copy", "maximum"])
def test_rows_that_meet(columns: int, mode: str) -> None:
    """Each thread takes some columns of all rows; rows of one place stay in order."""
    index = torch.tensor([3, 0, 3, 3, 8, 0, 1] * 5)
    x, y = torch.randn(9, columns), torch.randn(len(index), columns)
    wide = index[:, None].expand(-1, columns)
    if mode == "add":
        _check(lambda x, i, y: torch.index_add(x, 0, i, y), x, index, y)
        _check(lambda x, i, y: torch.index_add(x.t().contiguous(), 1, i, y.t()), x, index, y)
    elif mode == "copy":
        _check(lambda x, i, y: torch.index_copy(x, 0, i, y), x, index[:4:2], y[:2])
    else:
        _check(lambda x, i, y: torch.scatter_reduce(x, 0, i, y, "amax"), x, wide, y)
