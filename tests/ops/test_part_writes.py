"""Writes to a part of a tensor: eager's values, strides and aliases, and only the part is stored."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def _diagonal(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x.diagonal(1).fill_(2)
    x.diagonal()[1:].copy_(v[1 : min(x.shape)])
    return x


def _swaps_rows(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x[0], x[1] = x[1].clone(), x[0].clone()
    x[2] = x[3]
    return x


def _reads_before_and_between(x: torch.Tensor, v: torch.Tensor) -> Any:
    before = x.sum(0)
    x[1] = v
    between = x * 2
    x[2] = between[1] + 1
    return before, between, x.sum(1)


def _in_place_operators(x: torch.Tensor, v: torch.Tensor) -> None:
    x[1] += 1
    x[:, 2].mul_(3)
    x[3:5, 1:4].zero_()
    x[-1] = x[-1] / 2


def _whole_first(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    x[1] = v
    return x[2] + x[1]


def _views(x: torch.Tensor, v: torch.Tensor) -> Any:
    x.t()[1] = v[:9]
    x.unsqueeze(0)[0, 2] = v
    row = x[4]
    row[2:5] = 7
    return row, x.permute(1, 0)[3]


def _neighbours(x: torch.Tensor, v: torch.Tensor) -> None:
    x[0], x[-1] = x[1], x[-2]
    x[:, 0] = x[:, 1]
    x[:, -1] = x[:, -2] * 0.5


def _rows_that_meet(x: torch.Tensor, v: torch.Tensor) -> None:
    rows = torch.tensor([1, 1, 2])
    x[rows] = x[rows] + 1
    x.index_add_(0, rows, x[3:6].clone())
    x[4, torch.tensor([0, 0])] = x[4, 0] + 1


def _steps_and_two_dims(x: torch.Tensor, v: torch.Tensor) -> None:
    x[1::4, 2:9:3] = 5
    x[2:4, :3] = v[:3]
    x[5][1:][::2] = 1


def _buffer_that_shifts(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x[1:] = x[:-1].clone()
    x[0] = v
    return x.mean(0)


def _scan_by_hand(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[0] = v
    for i in range(1, x.shape[0]):
        out[i] = out[i - 1] * 0.5 + x[i]
    return out


def _states_that_stay(x: torch.Tensor, v: torch.Tensor) -> Any:
    out = torch.zeros_like(x)
    seen = []
    for i in range(x.shape[0]):
        out[i] = x[i] + i
        seen.append(out.sum() if i % 2 else out * 1.0)
    return out, seen


def _border_of_a_new_grid(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[1:-1, 1:-1] = x[1:-1, 1:-1].sin()
    y[0], y[-1] = 1, v
    y[:, 0], y[:, -1] = 2, y[:, 1]
    return y


PROGRAMS: list[Program] = [
    _diagonal,
    _swaps_rows,
    _reads_before_and_between,
    _in_place_operators,
    _whole_first,
    _views,
    _neighbours,
    _rows_that_meet,
    _steps_and_two_dims,
    _buffer_that_shifts,
    _scan_by_hand,
    _states_that_stay,
    _border_of_a_new_grid,
]


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value or () for leaf in _leaves(item)]


def _same(program: Program, compiled: Any, x: torch.Tensor, v: torch.Tensor) -> None:
    ours, theirs = x.clone(memory_format=torch.preserve_format), x.clone(memory_format=torch.preserve_format)
    if not x.is_contiguous():  # gaps are copied as well
        ours, theirs = (torch.empty(x.shape[0], 2 * x.shape[1])[:, ::2].copy_(x) for _ in range(2))
    a, b = _leaves(compiled(ours, v)), _leaves(program(theirs, v))
    assert len(a) == len(b) and ours._version == theirs._version
    for actual, expected in zip([*a, ours], [*b, theirs], strict=True):
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride() and actual.storage_offset() == expected.storage_offset()
        same_memory = actual.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
        assert same_memory == (expected.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr())


@pytest.mark.parametrize("gaps", [False, True], ids=["contiguous", "with_gaps"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_writes_to_parts(program: Program, dynamic: bool, gaps: bool) -> None:
    compiled = tatara.compile(program, dynamic=dynamic)
    for rows in (9, 9, 9, 11) if program is not _views else (9, 9):
        x = torch.randn(rows, 22)[:, ::2] if gaps else torch.randn(rows, 11)
        _same(program, compiled, x, torch.randn(11))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.complex64])
def test_dtypes(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, v: torch.Tensor) -> None:
        x[1] = v
        x[:, 3] = x[:, 4]
        x[5:7, 1:3] = 1

    _same(f, tatara.compile(f), (torch.randn(9, 11) * 3).to(dtype), (torch.randn(11) * 3).to(dtype))


@pytest.mark.parametrize(
    "program",
    [
        lambda b, n: b[n] * 2,
        lambda b, n: b[:, n] + b[n, 0],
        lambda b, n: b[n].fill_(1),
        lambda b, n: b[..., n, None] * n,
        lambda b, n: b.__setitem__(n, b[n + 1]),
        lambda b, n: b[-n].add_(1),
    ],
)
def test_places_that_vary_are_compiled_once(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    buffer = torch.randn(60, 70)
    for n in (5, 6):
        compiled(buffer, n)
    with counts() as grown:
        for n in (7, 8, 31, 9):
            theirs = buffer.clone()
            _same(lambda b, v, n=n: program(b, n), lambda b, v, n=n: compiled(b, n), theirs, theirs)
    assert grown["graphs"] == grown["recompiles"] == grown["breaks"] == 0


def test_only_the_part_is_stored() -> None:
    """One kernel for each part, and no other writes to the buffer."""

    def f(buffer: torch.Tensor, v: torch.Tensor, n: int) -> torch.Tensor:
        buffer[n] = v.sin()
        buffer[:, 7] = 1
        buffer[100:102, 3:900] = buffer[200:202, 3:900]
        return v + 1

    compiled = tatara.compile(f)
    buffer = torch.zeros(2048, 1000)
    for n in (5, 6, 7, 8):
        with counts() as grown:
            compiled(buffer, torch.ones(1000), n)
    assert grown["kernels_launched"] == 4 and grown["graphs"] == grown["host_calls"] == 0
    torch.testing.assert_close(buffer[8, 8:], torch.ones(992).sin())
    assert buffer[:, 7].eq(1).all() and buffer[9:, 8:].eq(0).all()
    report = str(tatara.explain(f)(buffer, torch.ones(1000), 9))
    assert report.count("computed into input") == 3
    assert "slice_scatter" not in "".join(k for k in report.splitlines() if k.startswith("kernel"))


def _random_program(number: int) -> Program:
    choose = random.Random(number)
    steps: list[tuple[str, Any, Any]] = []

    def key() -> Any:
        kinds: list[Any] = [
            choose.randrange(-6, 6),
            slice(choose.randrange(0, 3), choose.randrange(3, 7), choose.choice([1, 1, 2])),
            (slice(None), choose.randrange(-8, 8)),
            (slice(1, choose.randrange(2, 6)), slice(choose.randrange(0, 3), choose.randrange(4, 9))),
            (choose.randrange(6), slice(2, -1)),
        ]
        return choose.choice(kinds)

    for _ in range(choose.randrange(1, 9)):
        steps.append((choose.choice(["number", "own", "add", "read", "view", "other"]), key(), key()))

    def program(x: torch.Tensor, v: torch.Tensor) -> Any:
        seen = []
        y = x if number % 3 else torch.zeros_like(x)
        for kind, to, other in steps:
            if kind == "number":
                y[to] = 2.5
            elif kind == "own":
                y[to] = y[to] * 0.5 + y[other].sum()
            elif kind == "add":
                y[to] += v.sum()
            elif kind == "read":
                seen.append(y[other] + y.sum(0, keepdim=True)[..., :1].sum())
            elif kind == "view":
                y[to][...] = y[to].flip(0)
            else:
                y[to] = torch.full_like(y[to], 0.25) + x[to]
        return seen, y

    return program


@pytest.mark.parametrize("block", range(8))
def test_random_programs(block: int) -> None:
    for number in range(block * 25, block * 25 + 25):
        program = _random_program(number)
        compiled = tatara.compile(program)
        for _ in range(2):
            try:
                _same(program, compiled, torch.randn(7, 9), torch.randn(9))
            except AssertionError as error:
                raise AssertionError(f"program {number}") from error
