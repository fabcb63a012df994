"""Reads of what was written in part, and columns written in place: eager's values, layouts, aliases and gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
Program = Callable[[Tensor], Any]


def _columns(x: Tensor) -> Tensor:
    x[..., 0].mul_(2)
    x[..., 1] += 1
    x[..., -1] -= x[..., 0] * x[..., 1]
    return x[..., 1:].sum(-1)


def _rows(x: Tensor) -> Any:
    x[0] += 1
    x[1] *= x[0]
    x[-1] = x[-1]
    return x[0], x[1] * 2


def _halves(x: Tensor) -> None:
    n = x.shape[0] // 2
    x[:n] *= 2
    x[n:] += x[:n].sum(0)


def _steps(x: Tensor) -> Tensor:
    x[:, 0::2], x[:, 1::2] = x[:, 0::2] * 2, x[:, 1::2] + x[:, 0:1]
    x[:, ::3] *= x[:, 1:2]
    return x.clone()


def _views_of_views(x: Tensor) -> Any:
    row = x[1]
    row[1:] *= 3
    row[0] += row[1]
    x.mT[0] -= 1
    x.mT[1] = x[:, 0]
    return x.t()[0], x.unsqueeze(-1)[..., 0].diagonal()


def _diagonals(x: Tensor) -> Tensor:
    x.diagonal().mul_(2)
    x.diagonal(1)[:2] = x.diagonal()[:2]
    return x.diagonal(1) * x.diagonal()[:1]


def _read_later(x: Tensor) -> Any:
    before = x[:, 0]
    copied = x[:, 0] * 1
    x[:, 0] = x[:, 1].exp()
    return before, copied, x[:, 0], x[:, 1] @ x[:, 0]


def _what_is_there(x: Tensor) -> Any:
    x[1] = x[1].clone()
    x[:, 2] = x[:, 2]
    x[0:2] = x[0:2].contiguous()
    return x


PROGRAMS: list[Program] = [
    _columns,
    _rows,
    _halves,
    _steps,
    _views_of_views,
    _diagonals,
    _read_later,
    _what_is_there,
]


def _of_a_clone(program: Program) -> Program:
    def f(x: Tensor) -> Any:
        y = x.clone()
        return program(y), y

    return f


def _of_an_input(program: Program) -> Program:
    return lambda x: (program(x), x)


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [leaf for item in value or () for leaf in _leaves(item)]


def _compare(program: Program, compiled: Any, x: Tensor) -> None:
    mine, theirs = (torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x) for _ in range(2))
    a, b = compiled(mine), program(theirs)
    same((a, mine), (b, theirs), rtol=1e-5, atol=1e-5)
    assert mine._version == theirs._version
    ours, eagers = [mine, *_leaves(a)], [theirs, *_leaves(b)]
    for i, (left, expected) in enumerate(zip(ours, eagers, strict=True)):
        assert left.storage_offset() == expected.storage_offset()
        for other, other_expected in zip(ours[:i], eagers, strict=False):
            shared = left.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
            assert shared == (expected.untyped_storage().data_ptr() == other_expected.untyped_storage().data_ptr())


@pytest.mark.parametrize("of", [_of_a_clone, _of_an_input])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_as_eager(program: Program, of: Callable[[Program], Program]) -> None:
    for dtype in (torch.float32, torch.float64, torch.complex64):
        for shape in ((4, 4), (40, 3), (40, 8), (33, 70)):
            compiled = tatara.compile(of(program))
            for x in (torch.randn(*shape, dtype=dtype), torch.randn(*shape[::-1], dtype=dtype).t()):
                _compare(of(program), compiled, x)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_lengths_that_vary(program: Program) -> None:
    compiled = tatara.compile(_of_a_clone(program))
    for n in (9, 30, 4, 100, 17):
        _compare(_of_a_clone(program), compiled, torch.randn(n, 5, dtype=torch.float64))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_gradients(program: Program) -> None:
    """Where eager has them: it refuses some for what was written to what they need."""
    compiled = tatara.compile(_of_a_clone(program))
    for _ in range(3):
        x, found = torch.randn(12, 4, dtype=torch.float64), []
        for function in (_of_a_clone(program), compiled):
            leaf = x.clone().requires_grad_()
            loss = sum((each.sin().sum() for each in _leaves(function(leaf))), torch.zeros(()))
            try:
                loss.backward()
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
                return
            found.append(leaf.grad)
        same(*found)


def _random_program(number: int) -> Program:
    choose = random.Random(number)

    def key() -> Any:
        kinds: list[Any] = [
            choose.randrange(-5, 5),
            slice(choose.randrange(0, 3), choose.randrange(3, 6), choose.choice([1, 1, 2])),
            (slice(None), choose.randrange(-4, 4)),
            (slice(None), slice(choose.randrange(0, 2), None, choose.choice([1, 2, 2]))),
            (choose.randrange(5), slice(1, -1)),
        ]
        return choose.choice(kinds)

    steps = [(choose.choice("nsascrvt"), key(), key()) for _ in range(choose.randrange(1, 7))]

    def program(x: Tensor) -> Any:
        seen: list[Tensor] = []
        y = x * 1.0 if number % 4 else x
        for kind, to, other in steps:
            if kind == "n":
                y[to] = 0.5
            elif kind == "s":
                y[to] *= 1.5
            elif kind == "a":
                y[to] += y[other].mean()
            elif kind == "c":
                y[to].copy_(y[to].flip(0))
            elif kind == "r":
                seen.append(y[other] + 1)
            elif kind == "v":
                seen.append(y[other])
            else:
                y.t()[other if isinstance(other, int) and abs(other) < 4 else 0] += 1
        return seen, y

    return program


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block: int) -> None:
    for number in range(block * 25, block * 25 + 25):
        program = _random_program(number)
        try:
            _compare(program, tatara.compile(program), torch.randn(5, 5 if number % 2 else 6))
        except AssertionError as error:
            raise AssertionError(f"program {number}") from error


def test_columns_of_what_is_made_are_one_kernel() -> None:
    report = tatara.explain(_of_a_clone(_columns))(torch.randn(1000, 3))
    assert sum("select_scatter" in kernel.name for kernel in report.kernels) == 1


def test_a_row_of_an_input_is_written_once() -> None:
    def f(x: Tensor) -> None:
        x[0] += 1
        x[1] *= x[0]

    compiled = tatara.compile(f)
    x = torch.zeros(1000, 64)
    compiled(x)
    with counts() as grown:
        compiled(x)
    assert grown["kernels_launched"] == 2
    report = tatara.explain(f)(x)
    assert not any("[64000]" not in kernel.loops and "in 64000" in kernel.loops for kernel in report.kernels)
