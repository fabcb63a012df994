"""Containers that operators make inside of a traced function: what is read of them there is no guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.arange(12.0).reshape(3, 4)


def repeated(x: Any) -> Any:
    sizes = [1] * 2
    for i in (-1, -2):
        if sizes[i] != 1:
            raise RuntimeError("not as it was made")
        sizes[i] = x.shape[i]
    return x.reshape(sizes[1], sizes[0]) * 2


def repeated_from_the_left(x: Any) -> Any:
    found = 2 * [0]
    found[0] += 1
    found[1] += found[0]
    return x + found[1]


def sum_of_lists(x: Any) -> Any:
    both = [1] + [2]
    both[0] += both[1]
    return x * both[0]


def sets(x: Any) -> Any:
    total = 0
    for made in ({1, 2} - {2}, {1, 2} & {2}, {1} ^ {2}, {1} | {2}):
        total += len(made)
        made.add(5)
        total += 5 in made
    return x * total


def dicts(x: Any) -> Any:
    both = {"a": 1} | {"b": 2}
    both["a"] += both["b"]
    return x * both["a"]


def sizes_of_several(x: Any) -> Any:
    return x + torch.ones(4).expand(torch.broadcast_shapes(x.shape, (4,)))


@pytest.mark.parametrize("function", [repeated, repeated_from_the_left, sum_of_lists, sets, dicts, sizes_of_several])
def test_one_graph_for_all_calls(function: Callable[[Any], Any]) -> None:
    compiled = tatara.compile(function)
    for i in range(4):
        torch.testing.assert_close(compiled(X + i), function(X + i))
    stats = tatara.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (1, 0, 0)


def test_methods_of_the_base_class_that_tensor_overrides() -> None:
    base = torch._C.TensorBase

    def function(x: Any) -> Any:
        return x.unflatten(-1, (2, -1)).sin() + base.unflatten(x, 1, (2, 2))

    tatara.reset()
    compiled = tatara.compile(function)
    for i in range(2):
        torch.testing.assert_close(compiled(X + i), function(X + i))
    assert tatara.stats()["graphs"] == 1
    assert tatara.stats()["breaks"] == 0
