"""What calls with `out=` give back: the tensors themselves, in the class that eager has for them, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

PAIRS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "max": lambda x, out: torch.max(x, 1, out=out),
    "min": lambda x, out: torch.min(x, 1, out=out),
    "sort": lambda x, out: torch.sort(x, out=out),
    "topk": lambda x, out: torch.topk(x, 2, out=out),
    "kthvalue": lambda x, out: torch.kthvalue(x, 2, out=out),
    "mode": lambda x, out: torch.mode(x, out=out),
    "median": lambda x, out: torch.median(x, 1, out=out),
    "cummax": lambda x, out: torch.cummax(x, 1, out=out),
    "aminmax": lambda x, out: torch.aminmax(x, dim=1, out=out),
}
LISTS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "unbind_copy": lambda x, out: torch.unbind_copy(x, out=out),
    "split_copy": lambda x, out: torch.split_copy(x, 1, out=out),
    "split_with_sizes_copy": lambda x, out: torch.split_with_sizes_copy(x, [1, 1, 1], out=out),
}


@pytest.mark.parametrize("name", PAIRS)
def test_named_results(name: str) -> None:
    function = PAIRS[name]
    compiled = tatara.compile(lambda x, out: function(x, out))
    for _ in range(3):
        x = torch.randn(3, 4)
        wanted = function(x, tuple(t.clone() for t in function(x, None)))
        out = tuple(torch.zeros_like(t) for t in wanted)
        made = compiled(x, out)
        assert type(made) is type(wanted)
        for a, b, c in zip(made, wanted, out, strict=True):
            assert a is c
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_filled(name: str) -> None:
    function = LISTS[name]

    def program(x: torch.Tensor, out: list[torch.Tensor]) -> Any:
        result = function(x, out)
        return result, out[0] + out[1]

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(3, 4)
        parts = [torch.zeros(4) if name == "unbind_copy" else torch.zeros(1, 4) for _ in range(3)]
        ours, theirs = [t.clone() for t in parts], [t.clone() for t in parts]
        made, wanted = compiled(x, ours), program(x, theirs)
        assert made[0] is None
        assert wanted[0] is None
        torch.testing.assert_close((made[1], ours), (wanted[1], theirs))


def test_out_of_a_composite_operator() -> None:
    """Its kernel for tensors without data gives another tensor than `out`."""
    compiled = tatara.compile(lambda x, out: torch.linalg.matrix_rank(x, out=out))
    for _ in range(3):
        x, out = torch.randn(3, 4, 4), torch.zeros(3, dtype=torch.int64)
        assert compiled(x, out) is out
        torch.testing.assert_close(out, torch.linalg.matrix_rank(x))
