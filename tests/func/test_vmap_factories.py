"""Tensors that are made like an example of a batch: the same for each example, and in memory once for each, as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import vmap

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

FACTORIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 2.5),
    "integers": lambda x: torch.zeros_like(x, dtype=torch.int64),
    "new_zeros": lambda x: x.new_zeros(2, 3),
    "new_ones": lambda x: x.new_ones(2),
    "new_full": lambda x: x.new_full((3, 1), 7),
    "of a view": lambda x: torch.zeros_like(x.T),
    "of a number": lambda x: torch.ones_like(x.sum()),
    "a view of one": lambda x: torch.zeros_like(x)[0],
    "and more": lambda x: torch.ones_like(x)[0] * 2,
    "beside others": lambda x: x + torch.ones_like(x),
}


@pytest.mark.parametrize("out_dim", [0, -1])
@pytest.mark.parametrize("in_dim", [0, 2])
@pytest.mark.parametrize("name", FACTORIES)
def test_results_repeat_nothing(name: str, in_dim: int, out_dim: int) -> None:
    program = vmap(FACTORIES[name], in_dims=in_dim, out_dims=out_dim)
    compiled = tatara.compile(program)
    x = torch.randn(3, 4, 5)
    for _ in range(3):
        result = compiled(x)
        same(result, program(x))
        result.add_(1)  # each element is one of its own
        torch.testing.assert_close(result, program(x) + 1)
    assert tatara.stats()["fallbacks"] == 0


def test_numbers_of_the_function_repeat() -> None:
    """What no example is part of is one tensor in eager, seen once for each."""
    program = vmap(lambda x: (x * 2, x.new_tensor([1.0, 2.0])))
    compiled = tatara.compile(program)
    x = torch.randn(3, 4)
    for _ in range(3):
        same(compiled(x), program(x))


def test_gradients_of_batches_of_factories() -> None:
    program = vmap(torch.func.grad(lambda x: (torch.ones_like(x) * x).sum() + torch.zeros_like(x).sum()))
    compiled = tatara.compile(program)
    x = torch.randn(3, 4)
    for _ in range(3):
        same(compiled(x), program(x))
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("steps", [0, 1, 5, 8])
@pytest.mark.parametrize("form", ["both", "start", "end", "double", "powers"])
def test_ranges_between_examples(form: str, steps: int) -> None:
    """Between an example and a number eager's are of another dtype than alone, and so are those without steps."""
    ranges: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "both": lambda x: torch.linspace(x[0], x[1], steps),
        "start": lambda x: torch.linspace(x[0], 3.0, steps),
        "end": lambda x: torch.linspace(-1, x[1], steps),
        "double": lambda x: torch.linspace(x[0], x[1], steps, dtype=torch.float64),
        "powers": lambda x: torch.logspace(x[0], x[1], steps, base=2.5),
    }
    program = vmap(ranges[form])
    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(3, 4)
        same(compiled(x), program(x), strides=False)
    assert tatara.stats()["fallbacks"] == 0 or steps == 0 or form in ("start", "end")
