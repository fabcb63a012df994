"""Calls with other tensors of the same layout need no new trace, however the program handles them."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Pair = namedtuple("Pair", "x i")


@dataclass
class _Held:
    x: torch.Tensor
    i: torch.Tensor


class _Table(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)


def _written(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[i] = 1
    y[:, i] += x[:, i]
    return y


def _in_a_table(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    table = _Table()
    table["x"], table["i"] = x, i
    plain: dict[str, Any] = {"x": table["x"], **table}
    return plain.get("x")[plain.pop("i")] + len(plain)


def _in_lists(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    items = [x]
    items.append(i)
    items.extend([x, i])
    queue = deque(items)
    first, *rest = items
    return queue.popleft()[queue.pop()] + first[rest[0]] + torch.stack([items[0], items[-2]]).sum()


def _by_a_closure(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    def pick(y: torch.Tensor, j: torch.Tensor = i) -> torch.Tensor:
        return y[j] + x[i]

    return functools.partial(pick, x)() + (lambda y: y[i])(x) + functools.reduce(operator.add, [x[i], x[i]])


def _by_generators(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    total = sum(a[b] for a, b in zip([x, x], itertools.repeat(i), strict=False))
    return total + next(iter([x]))[i] + max([x[i], x[i]], key=lambda t: t.dim())


def _by_attributes(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    space = SimpleNamespace(x=x, i=i)
    held = _Held(getattr(space, "x"), space.i)  # noqa: B009
    setattr(held, "x", held.x * 2)  # noqa: B010
    return held.x[held.i] if isinstance(held.x, torch.Tensor) and hasattr(space, "i") else x


FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "item": lambda x, i: x[i],
    "item of a column": lambda x, i: x[:, i],
    "item of both": lambda x, i: x[i, i] * 2,
    "item beside an ellipsis": lambda x, i: x[..., i] + x[None, :, i],
    "operator.getitem": lambda x, i: operator.getitem(x, i),
    "method": lambda x, i: x.__getitem__(i),
    "index_select": lambda x, i: x.index_select(0, i),
    "take along": lambda x, i: x.gather(1, i[None].expand(2, 4)),
    "written": _written,
    "table": _in_a_table,
    "lists": _in_lists,
    "ordered": lambda x, i: OrderedDict(x=x, i=i)["x"][OrderedDict(i=i)["i"]],
    "named": lambda x, i: Pair(x, i).x[Pair(x, i)[1]] + Pair(i=i, x=x)._replace(x=x * 2).x[i],
    "closure": _by_a_closure,
    "generators": _by_generators,
    "attributes": _by_attributes,
    "compared": lambda x, i: x[i] if x is not None and i is not None and x is not i else x,
    "sizes": lambda x, i: x[i] * len(i) + x.shape[0] if x.size(-1) > 2 and i.dtype == torch.int64 else x,
}


@pytest.mark.parametrize("broken", [False, True], ids=["called", "behind a break"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_new_trace(name: str, broken: bool) -> None:
    function = FUNCTIONS[name]

    def program(x: torch.Tensor, i: torch.Tensor) -> Any:
        if broken:
            x, i = x.sin(), i.clone()
            if x.sum() > 1e9:
                x = x + 1
        return function(x, i)

    compiled = tatara.compile(program)

    def call() -> None:
        x, i = torch.randn(6, 6), torch.randint(0, 5, (4,))
        torch.testing.assert_close(compiled(x, i), program(x, i))

    with torch.no_grad():
        for _ in range(3):
            call()
        with counts() as grown:
            call()
            call()
    assert grown["calls_recorded"] == grown["breaks"] == 0
