"""Gradients of views that are given by strides: overlapping windows, parts of views, sizes that vary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import jvp

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Program = Callable[[torch.Tensor], torch.Tensor]


def _overlapping_chunks(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).view(x.size(0), torch.div(x.size(1), 4, rounding_mode="trunc"), 4, x.size(2))
    size, stride = list(y.size()), list(y.stride())
    size[1] = size[1] * 2 - 1
    stride[1] //= 2
    return y.as_strided(size=size, stride=stride)


def _of_a_view(x: torch.Tensor) -> torch.Tensor:
    return (x * 1.5)[1:].as_strided((2, 3), (4, 1)).sin()


def _repeated(x: torch.Tensor) -> torch.Tensor:
    return x.exp().as_strided((4, 3), (0, 2), 1)


PROGRAMS = [_overlapping_chunks, _of_a_view, _repeated]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_gradients_of_views_by_strides(program: Program, dynamic: bool) -> None:
    compiled = tatara.compile(program, dynamic=dynamic)
    for size in (8, 8, 16, 12):
        x = torch.randn(3, size, 5, requires_grad=True)
        ours, theirs = compiled(x), program(x)
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride() and ours.storage_offset() == theirs.storage_offset()
        given = torch.randn_like(theirs)
        a, b = (torch.autograd.grad(y, x, given)[0] for y in (ours, theirs))
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    with counts() as grown:
        compiled(x).sum().backward()
    assert grown["host_calls"] == grown["fallbacks"] == grown["breaks"] == grown["graphs"] == 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_tangents_and_second_derivatives_of_views_by_strides(program: Program) -> None:
    x = torch.randn(3, 8, 5)

    def tangent(x: torch.Tensor) -> torch.Tensor:
        return jvp(program, (x,), (x.cos(),))[1]

    def product(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.functional.hvp(lambda y: program(y).pow(3).sum(), x, x)[1]

    torch.testing.assert_close(tatara.compile(tangent)(x), tangent(x))
    torch.testing.assert_close(tatara.compile(product)(x), product(x))


def _by_level(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: y.as_strided((2, 2), (1, 2)).square().sum())(x)


def _tangent(x: torch.Tensor) -> torch.Tensor:
    return jvp(lambda y: y.as_strided((2, 2), (1, 2)).sin(), (x,), (x.cos(),))[1]


def _computed(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: y.sin()[2:].as_strided((2, 2), (1, 2)).square().sum())(x)


def _beyond_the_view(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: y.sin()[4:].as_strided((2, 2), (1, 2), 0).square().sum())(x)


def _detached(x: torch.Tensor) -> torch.Tensor:
    y = x.detach().requires_grad_()
    return torch.autograd.grad(y.as_strided((2, 2), (1, 2)).square().sum(), y)[0]


@pytest.mark.parametrize("program", [_by_level, _tangent, _computed, _beyond_the_view, _detached])
@pytest.mark.parametrize("begin", [0, 5])
def test_a_view_by_strides_belongs_to_the_tensor_that_it_is_taken_of(program: Program, begin: int) -> None:
    """A level's own tensor, or a view: neither the input behind it nor what lies beside it in memory."""
    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(20)[begin : begin + 10]
        torch.testing.assert_close(compiled(x), program(x))


def test_what_lies_beside_a_view_has_no_gradient_through_it() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 3
        return y[4:].as_strided((2, 2), (1, 2), 0).sin(), y[:6].as_strided((2, 2), (1, 2)).sin()

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(10, requires_grad=True)
        (a, b), (c, d) = compiled(x), program(x)
        torch.testing.assert_close((a, b), (c, d))
        for one, other in ((a, c), (b, d)):
            found, expected = (torch.autograd.grad(t.sum(), x, retain_graph=True)[0] for t in (one, other))
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_rounded_quotients_of_integers(mode: str, dtype: torch.dtype) -> None:
    """By a number that divides without a special case they are a kernel; of Python numbers alone, a constant."""
    low = 0 if dtype == torch.uint8 else -100
    x = torch.randint(low, 100, (50,), dtype=dtype)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        quotients = [torch.div(x, n, rounding_mode=mode) for n in (3, 7, 100)]
        return (*quotients, x * torch.div(x.size(0), 7, rounding_mode=mode))

    compiled = tatara.compile(f, dynamic=True)
    for size in (50, 50, 40):
        for a, b in zip(compiled(x[:size]), f(x[:size]), strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b)
    with counts() as grown:
        compiled(x)
    assert grown["host_calls"] == grown["fallbacks"] == 0
    for by in (-1, -7, 0, 1000):
        try:
            expected: object = torch.div(x, by, rounding_mode=mode)
        except RuntimeError as error:
            expected = str(error)
        try:
            actual: object = tatara.compile(lambda x, by=by: torch.div(x, by, rounding_mode=mode))(x)
        except RuntimeError as error:
            actual = str(error)
        assert torch.equal(actual, expected) if isinstance(expected, torch.Tensor) else actual == expected
