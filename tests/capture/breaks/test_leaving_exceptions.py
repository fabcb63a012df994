"""Exceptions that leave a compiled function in some calls: raised in eager, and not traced anew in each such call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


class Stop(Exception):
    def __init__(self, at: int) -> None:
        super().__init__(f"stopped at {at}")
        self.at = at


class Log:
    def __init__(self) -> None:
        self.lines: list[Any] = []


def check(x: Tensor, size: int) -> None:
    if x.shape[0] != size:
        raise ValueError(f"expected {size}, got {x.shape[0]}")


def raises(log: Log, x: Tensor, call: int) -> Tensor:
    if call % 2:
        raise Stop(call)
    return x * 2


def raises_below(log: Log, x: Tensor, call: int) -> Tensor:
    y = x + 1
    log.lines.append(y)
    check(x, 3 if call % 2 else 4 + call)
    return y


def asserts(log: Log, x: Tensor, call: int) -> Tensor:
    if not call % 3:  # pytest changes what assert does
        raise AssertionError(f"call {call}")
    return x - call


def raises_again(log: Log, x: Tensor, call: int) -> Tensor:
    try:
        check(x, 3 if call % 2 else 4 + call)
    except ValueError as error:
        log.lines.append(str(error))
        raise RuntimeError("no") from error
    finally:
        log.lines.append("done")
    return x * 3


def handles_some(log: Log, x: Tensor, call: int) -> Tensor:
    """The same `raise` leaves the function in some calls, and does not in others."""
    try:
        check(x, 3 if call % 3 == 0 else 4)
    except ValueError:
        if call % 3 == 1:
            raise
        log.lines.append(x.sum())
    return x * 4


PROGRAMS = [raises, raises_below, asserts, raises_again, handles_some]


def outcome(run: Callable[..., Any], log: Log, call: int) -> Any:
    try:
        return run(log, torch.arange(3.0) + call, call).tolist()
    except (Stop, ValueError, AssertionError, RuntimeError) as error:
        frames, at = [], error.__traceback__
        while at is not None:
            frames.append(at.tb_frame.f_code.co_name)
            at = at.tb_next
        return type(error), str(error), vars(error), type(error.__cause__), type(error.__context__), frames[-2:]


def plain(log: Log) -> list[Any]:
    return [line.tolist() if isinstance(line, Tensor) else line for line in log.lines]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_exceptions_that_leave_are_raised_as_in_eager(program: Callable[..., Any]) -> None:
    eager, log = Log(), Log()
    compiled = tatara.compile(program)
    for call in range(14):
        assert outcome(compiled, log, call) == outcome(program, eager, call)
        assert plain(log) == plain(eager)


@pytest.mark.parametrize("program", [raises, raises_below, asserts], ids=lambda program: program.__name__)
def test_calls_that_raise_are_not_traced_for_good(program: Callable[..., Any]) -> None:
    log, compiled = Log(), tatara.compile(program)
    for call in range(14):
        outcome(compiled, log, call)
    with counts() as grown:
        for call in range(14, 30):
            outcome(compiled, log, call)
    assert grown["graphs"] == grown["recompiles"] == grown["breaks"] == 0
    assert grown["guard_hits"] == 16


def test_one_exception_may_be_the_last() -> None:
    log, compiled = Log(), tatara.compile(raises)
    with counts() as grown:
        outcome(compiled, log, 1)
    assert grown["breaks"] == 0


def test_the_whole_graph_raises_its_own_error() -> None:
    compiled = tatara.compile(raises, fullgraph=True)
    for call in range(1, 9, 2):
        with pytest.raises(Stop, match=f"stopped at {call}"):
            compiled(Log(), torch.ones(2), call)
