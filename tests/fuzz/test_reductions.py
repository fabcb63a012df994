"""Reductions over whole tensors, few rows, few columns and odd sizes, compiled, beside eager: the shapes for which the scheduler
splits the work over threads, and those next to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

Tensor = Any

_SHAPES = [(70001,), (300, 257), (2, 40000), (40000, 3), (3, 5, 4001), (5, 4001, 3), (1, 66000)]

_FLOATING: dict[str, Callable[[Tensor, Any], Any]] = {
    "sum": lambda x, d: torch.sum(x, d),
    "mean_scaled": lambda x, d: torch.mean(x * 2, d) + 1,
    "amax": lambda x, d: torch.amax(x, d),
    "var_mean": lambda x, d: torch.var_mean(x, d, correction=0),
    "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d),
    "logsumexp": lambda x, d: torch.logsumexp(x, d),
    "aminmax_pair": lambda x, d: (torch.amin(x, d), torch.amax(x, d), torch.sum(x, d)),
    "centred": lambda x, d: x - torch.mean(x, d, keepdim=True),
    "two_outputs": lambda x, d: (x + 1, (x + 1).sum(d)),
}


def _dims(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    every = tuple(range(len(shape)))
    return [every, *[(d,) for d in every if len(shape) > 1], *([(0, 2)] if len(shape) == 3 else [])]


def _same(actual: Any, expected: Any, exact: bool) -> None:
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 2e-5, "atol": 2e-4}
    same(actual, expected, equal_nan=True, **tolerance)


@pytest.mark.parametrize("name", list(_FLOATING))
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_floating(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(len(shape))
    x = torch.randn(shape)
    for dims in _dims(shape):
        tatara.reset()
        result = tatara.compile(lambda x, dims=dims: _FLOATING[name](x, dims), fullgraph=True)(x)
        wide = _FLOATING[name](x.double(), dims)
        wide = tuple(w.float() for w in wide) if isinstance(wide, tuple) else wide.float()
        _same(result, wide, exact=False)


@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_argmax_of_ties_and_nan(shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    x = torch.randint(0, 50, shape).float()
    with_nan = x.clone()
    with_nan.view(-1)[x.numel() // 2] = float("nan")
    for given in (x, with_nan, x.long()):
        for dim in [None, *range(len(shape))]:
            tatara.reset()
            compiled = tatara.compile(lambda x, dim=dim: torch.argmax(x, dim), fullgraph=True)
            _same(compiled(given), torch.argmax(given, dim), exact=True)


@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_integers_and_bool(shape: tuple[int, ...]) -> None:
    torch.manual_seed(4)
    x = torch.randint(-3, 4, shape)
    for dims in _dims(shape):
        tatara.reset()

        def all_of(x: Tensor, dims: tuple[int, ...] = dims) -> tuple[Tensor, ...]:
            return torch.sum(x, dims), torch.any(x > 2, dims), torch.all(x > -4, dims), torch.count_nonzero(x, dims)

        _same(tatara.compile(all_of, fullgraph=True)(x), all_of(x), exact=True)


def test_one_code_for_sizes_on_both_sides_of_the_split() -> None:
    compiled = tatara.compile(lambda x: (x.sum(), x.mean(0)), dynamic=True, fullgraph=True)
    for rows in (3, 40, 1000, 5000, 17):
        x = torch.randn(rows, 33)
        _same(compiled(x), (x.double().sum().float(), x.double().mean(0).float()), exact=False)


def test_batch_norm_in_training() -> None:
    torch.manual_seed(0)
    eager, ours = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    x = torch.randn(8, 3, 65, 65)
    with torch.no_grad():
        _same(tatara.compile(ours)(x), eager(x), exact=False)
    _same(ours.running_var, eager.running_var, exact=False)
    _same(ours.running_mean, eager.running_mean, exact=False)
