"""Calls whose results nobody needs raise for bad values as in eager, alone and before a call that raises too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara

Call = Callable[[torch.Tensor, torch.Tensor], Any]

GOOD, BAD = torch.tensor([0, 1]), torch.tensor([0, 7])

# x: float32 [4, 3]; i: int64 [2], indices in bounds or not.
CALLS: dict[str, Call] = {
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index": lambda x, i: x[i],
    "index of a view": lambda x, i: x.t()[:, i],
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "take": lambda x, i: x.take(i * 10),
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(2, 3)),
    "index_copy": lambda x, i: x.index_copy(0, i, torch.ones(2, 3)),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_put": lambda x, i: x.index_put((i,), torch.ones(2, 3)),
    "setitem": lambda x, i: x.clone().__setitem__(i, 1.0),
    "index_add_": lambda x, i: x.clone().index_add_(0, i, torch.ones(2, 3)),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], torch.ones(2, 1)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], torch.ones(2, 1), "amax"),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i),
    "cross_entropy, smoothed": lambda x, i: F.cross_entropy(x[:2], i, label_smoothing=0.1),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:2], i),
    "binary_cross_entropy": lambda x, i: F.binary_cross_entropy(i.float(), torch.ones(2)),
    "inv": lambda x, i: torch.linalg.inv(torch.diag(7.0 - i) + 0.0),
    "cholesky": lambda x, i: torch.linalg.cholesky(torch.diag(6.5 - i)),
    "solve": lambda x, i: torch.linalg.solve(torch.diag(7.0 - i), torch.ones(2)),
}


def outcome(f: Call, x: torch.Tensor, i: torch.Tensor) -> Any:
    try:
        return f(x, i)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("needs_grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", CALLS)
def test_alone(name: str, needs_grad: bool) -> None:
    call = CALLS[name]

    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        call(x, i)
        return x + 1

    check(f, needs_grad)


@pytest.mark.parametrize("name", CALLS)
def test_used_by_what_nobody_needs(name: str) -> None:
    call = CALLS[name]

    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        result = call(x, i)
        if result is not None:
            (result * 2).sum()
        return x.mul(2).relu()

    check(f, False)


@pytest.mark.parametrize("name", CALLS)
def test_before_one_whose_result_is_needed(name: str) -> None:
    call = CALLS[name]

    def f(x: torch.Tensor, i: torch.Tensor) -> Any:
        call(x, i)
        return x.index_select(1, i).sum(), F.nll_loss(x[:2], i)

    check(f, False)


def check(f: Call, needs_grad: bool) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_(needs_grad)
    compiled = tatara.compile(f)
    for i in (GOOD, GOOD, BAD, GOOD, BAD):
        expected, found = outcome(f, x, i), outcome(compiled, x, i)
        if isinstance(expected, tuple) and isinstance(expected[0], type):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)
        assert (i is BAD) == (isinstance(expected, tuple) and isinstance(expected[0], type))
