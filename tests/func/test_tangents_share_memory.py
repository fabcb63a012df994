"""Tangents are what eager's are: the one that was given, a view of it or of another result, or a tensor of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import jvp

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(4, 6),
    "transposed": lambda: torch.randn(6, 4).T,
    "rows": lambda: torch.randn(8, 6)[2:6],
    "first rows": lambda: torch.randn(8, 6)[:4],
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda x: x,
    "transposed": lambda x: x.T,
    "part": lambda x: x[1:, ::2],
    "expanded": lambda x: x.expand(2, 4, 6),
    "reshaped": lambda x: x.reshape(-1),
    "views": lambda x: (x.T, x[0], x.unflatten(1, (2, 3))),
    "pieces": lambda x: x.split(2),
    "plus": lambda x: x + 1,
    "clone": lambda x: x.clone(),
    "sine": lambda x: x.sin(),
    "plus and a view of it": lambda x: (lambda y: (y, y[1:]))(x + 1),
    "views of a product": lambda x: (lambda y: (y.T, y[1:], y.sum(0)))(x * 3),
    "views of two": lambda x: (lambda y, z: (y[0], z[0], y[1], z[1]))(x * 3, x + 1),
    "view and more": lambda x: (x.T, x.T + 1, x.cos()[0]),
    "the same twice": lambda x: (x, x),
    "copies of views": lambda x: (torch.narrow_copy(x, 0, 1, 2), torch.diagonal_copy(x), torch.unfold_copy(x, 0, 2, 1)),
    "copies of pieces": lambda x: (*torch.unbind_copy(x), *torch.split_with_sizes_copy(x, [1, 3])),
    "a copy of a view of a product": lambda x: torch.permute_copy(x * 3, (1, 0)),
}


def memory(tensors: list[torch.Tensor]) -> list[list[bool]]:
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [[a == b for b in places] for a in places]


def _results(function: Callable[..., Any], x: torch.Tensor, v: torch.Tensor, only_tangents: bool) -> list[torch.Tensor]:
    result, tangent = jvp(function, (x,), (v,))
    flat = [*tangent] if isinstance(tangent, tuple) else [tangent]
    if only_tangents:
        return flat
    return [*flat, *result] if isinstance(result, tuple) else [*flat, result]


@pytest.mark.parametrize("only_tangents", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_views_are_views(name: str, layout: str, only_tangents: bool) -> None:
    """Each call finds the tangent otherwise in memory than the one before."""

    def program(x: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return _results(FUNCTIONS[name], x, v, only_tangents)

    compiled = tatara.compile(program)
    for other in [*LAYOUTS, *LAYOUTS]:
        x, v = LAYOUTS[layout](), LAYOUTS[other]()
        expected = program(x, v)
        results = compiled(x, v)
        same(results, expected)
        assert memory([x, v, *results]) == memory([x, v, *expected])
    assert tatara.stats()["fallbacks"] == 0


HANDED: list[Callable[[torch.Tensor], Any]] = [
    torch.frac,
    lambda x: x.fmod(2),
    lambda x: (x.frac()[1:], x.T),
    lambda x: torch.view_copy(x.contiguous(), (3, 8)),
    torch.t_copy,
    torch.squeeze_copy,
    lambda x: torch.unsqueeze_copy(x, 0),
    lambda x: torch.unfold_copy(x, 0, 2, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", HANDED)
def test_tangents_that_are_handed_on(function: Callable[[torch.Tensor], Any], layout: str) -> None:
    """Eager gives the very tangent where that lies as the result does. What is not known of it runs call by call."""

    def program(x: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return _results(function, x, v, only_tangents=False)

    compiled = tatara.compile(program)
    for other in [*LAYOUTS, *LAYOUTS]:
        x, v = LAYOUTS[layout](), LAYOUTS[other]()
        expected, results = program(x, v), compiled(x, v)
        same(results, expected)
        assert memory([x, v, *results]) == memory([x, v, *expected])


def test_a_tensor_is_its_own_tangent() -> None:
    compiled = tatara.compile(lambda x, v: _results(torch.t, x, v, only_tangents=True)[0])
    x = torch.randn(3, 4)
    for v in (x, torch.randn(3, 4), x, torch.randn(6, 4)[3:]):
        assert memory([x, v, compiled(x, v)]) == memory([x, v, _results(torch.t, x, v, only_tangents=True)[0]])


def test_writes_to_a_view_show_in_what_was_given() -> None:
    compiled = tatara.compile(lambda x, v: jvp(torch.t, (x,), (v,))[1])
    x, v = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(3):
        compiled(x, v).add_(1)
    for _ in range(3):
        compiled(x, torch.randn(6, 4)[3:]).add_(1)
    expected = v.clone()
    compiled(x, v).mul_(2)
    torch.testing.assert_close(v, expected * 2)


# In eager the tangent of a copy is that of its operand where both would lie alike.
COPIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "unsqueezed": lambda x: torch.unsqueeze_copy(x, 1),
    "squeezed": torch.squeeze_copy,
    "turned": torch.t_copy,
    "turned twice": lambda x: torch.transpose_copy(x.T, 0, 1),
    "two": lambda x: (torch.t_copy(x), torch.squeeze_copy(x).T),
    "a part of one": lambda x: torch.unsqueeze_copy(x, 0)[0, 1:],
    "and the operand": lambda x: (torch.squeeze_copy(x), x, x * 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_the_whole(name: str, layout: str) -> None:
    def program(x: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return _results(COPIES[name], x, v, False)

    compiled = tatara.compile(program)
    for other in [layout, layout, *LAYOUTS]:
        x, v = LAYOUTS[layout](), LAYOUTS[other]()
        expected = program(x, v)
        results = compiled(x, v)
        same(results, expected)
        assert memory([x, v, *results]) == memory([x, v, *expected])


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_the_whole_are_compiled(name: str) -> None:
    compiled = tatara.compile(lambda x, v: _results(COPIES[name], x, v, False))
    for _ in range(3):
        compiled(torch.randn(4, 6), torch.randn(4, 6))
    assert tatara.stats()["fallbacks"] == 0
