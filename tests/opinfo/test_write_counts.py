"""How many writes torch counts (`_version`) of the tensors that a call writes to: as eager, for every operator in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

import tatara  # noqa: E402

IN_PLACE = [op for op in op_db if op.get_inplace() is not None and torch.float32 in op.dtypes]
SAMPLES = 4


def counts(f: Callable[..., Any], calls: int, make: Callable[[], tuple[Any, dict[str, Any]]]) -> list[Any]:
    """Of each call, by how much the counts of the tensors among its arguments grew, or its error's type."""
    seen: list[Any] = []
    for _ in range(calls):
        args, kwargs = make()
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        before = [each._version for each in tensors]
        try:
            f(*args, **kwargs)
            seen.append([each._version - was for each, was in zip(tensors, before, strict=True)])
        except Exception as error:
            seen.append(type(error).__name__)
    return seen


@pytest.mark.parametrize("op", IN_PLACE, ids=lambda op: op.formatted_name)
def test_operators_in_place(op: Any) -> None:
    variant = op.get_inplace()
    for grad in (False, True):
        for sample in list(op.sample_inputs("cpu", torch.float32))[:SAMPLES]:

            def make(sample: Any = sample) -> tuple[Any, dict[str, Any]]:
                def copied(each: Any) -> Any:
                    return each.clone() if isinstance(each, torch.Tensor) else each

                copy = sample.transform(copied)
                return (copy.input, *copy.args), copy.kwargs

            def f(x: Any, *args: Any, **kwargs: Any) -> Any:
                y = x * 2
                variant(x, *args, **kwargs)
                variant(y, *args, **kwargs)
                return x + 1, y._version

            with torch.set_grad_enabled(grad):
                torch.manual_seed(0)
                expected = counts(f, 1, make)
                torch.manual_seed(0)
                assert counts(tatara.compile(f), 3, make) == expected * 3


def buffers() -> list[Any]:
    return [torch.zeros(3), torch.ones(3)]


ROWS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "several": lambda x, b: x.add_(1).mul_(2).sub_(b[0]),
    "item": lambda x, b: x.__setitem__(0, 1.0),
    "items of a mask": lambda x, b: x.__setitem__(x > 0, 2.0),
    "views": lambda x, b: (x.t().add_(1), x[1:].mul_(2), x.view(-1)[2:].zero_()),
    "part copied": lambda x, b: x[1:].copy_(x[:-1] * 2),
    "out=": lambda x, b: torch.add(x, 1, out=x),
    "two out=": lambda x, b: torch.frexp(x, out=(x, torch.empty(0, dtype=torch.int32))),
    "foreach": lambda x, b: torch._foreach_add_([x, b[0]], 1.0),
    "of a view and its base": lambda x, b: torch._foreach_mul_([x[0], x], 2.0),
    "detached": lambda x, b: x.detach().add_(1),
    "data": lambda x, b: x.data.add_(1),
    "layout": lambda x, b: x.unsqueeze_(0).squeeze_(0),
    "batch norm": lambda x, b: F.batch_norm(x, *b, training=True),
    "batch norm without training": lambda x, b: F.batch_norm(x, *b),
    "instance norm": lambda x, b: F.instance_norm(x.t()[None], *b, use_input_stats=True),
    "relu": lambda x, b: F.relu(x, inplace=True),
    "dropout": lambda x, b: F.dropout(x, 0.5, True, True),
    "alpha dropout": lambda x, b: F.alpha_dropout(x, 0.5, True, True),
    "embedding, with a norm": lambda x, b: F.embedding(torch.tensor([0]), x, max_norm=0.5),
    "leaves": lambda x, b: (x * b[0].requires_grad_()).sum().backward(),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("parameters", [False, True])
def test_other_writes(name: str, parameters: bool) -> None:
    def f(x: Any, held: list[Any], weight: Any) -> Any:
        ROWS[name](x, held)
        return x.sum() * weight

    def make() -> tuple[Any, dict[str, Any]]:
        return (torch.ones(4, 3), buffers(), torch.ones(1, requires_grad=parameters)), {}

    assert counts(tatara.compile(f), 3, make) == counts(f, 3, make)
