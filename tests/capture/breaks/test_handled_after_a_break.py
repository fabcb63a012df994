"""What is being handled: behind graph breaks, after calls, and where a caller handles something, in later calls too."""

from __future__ import annotations

import contextlib
import itertools
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara


def fails() -> None:
    raise KeyError("inner")


def raise_new() -> None:
    raise ValueError("new")


def raise_again() -> None:
    raise  # noqa: PLE0704


ASK: dict[str, Callable[[], Any]] = {
    "new exception": raise_new,
    "bare raise": raise_again,
    "exc_info": lambda: sys.exc_info()[0],
    "format_exc": lambda: traceback.format_exc().splitlines()[-1],
}


def in_handler(x: Any, ask: Callable[[], Any]) -> Any:
    y = x + 1
    try:
        {}["missing"]
    except KeyError:
        y = y * 2
        print(end="")
        return y, ask()


def in_nested_handler(x: Any, ask: Callable[[], Any]) -> Any:
    y = x + 1
    try:
        raise TypeError("outer")
    except TypeError:
        try:
            fails()
        except KeyError:
            y = y * 2
            print(end="")
            found = ask()
        y = y - 1
        print(end="")
        return y, found, ask()


def in_finally(x: Any, ask: Callable[[], Any]) -> Any:
    y = x + 1
    try:
        fails()
    except KeyError:
        try:
            y = y * 3
        finally:
            print(end="")
            y = y + 1
            result = y, ask()
    return result, sys.exc_info()[0]


def bound(x: Any, ask: Callable[[], Any]) -> Any:
    y = x + 1
    try:
        fails()
    except KeyError as error:
        print(end="")
        y = y * 2
        return y, ask(), error.args, sys.exc_info()[1] is error


def outcome(f: Callable[..., Any], x: Any, ask: Callable[[], Any]) -> Any:
    try:
        return f(x, ask)
    except Exception as error:
        context = error.__context__
        return type(error), error.args, type(context), context and context.args, type(context and context.__context__)


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("program", [in_handler, in_nested_handler, in_finally, bound])
def test_as_in_eager(program: Callable[..., Any], ask: str) -> None:
    x = torch.arange(3.0)
    expected = outcome(program, x, ASK[ask])
    compiled = tatara.compile(program)
    for _ in range(4):
        assert repr(outcome(compiled, x, ASK[ask])) == repr(expected)
        assert sys.exc_info() == (None, None, None)


# ---- Called where an exception is being handled, and where none is -------------------------------------------------------


def asks_only(x: Any, ask: Callable[[], Any]) -> Any:
    return x + 1, ask()


def asks_after_a_handler(x: Any, ask: Callable[[], Any]) -> Any:
    y = x + 1
    try:
        fails()
    except KeyError:
        print(end="")
        y = y * 2
    return y, ask()


def asks_behind_breaks(x: Any, ask: Callable[[], Any]) -> Any:
    y = x + 1
    with contextlib.suppress(IndexError):
        y[100]
    print(end="")
    y = y * 2
    first = ask()
    print(end="")
    return y + 1, first, ask()


def catches_what_it_asked_for(x: Any, ask: Callable[[], Any]) -> Any:
    y = x + 1
    try:
        found = ask()
    except Exception as error:
        found = type(error), error.args, type(error.__context__)
    return y * 2, found


def leaves_a_stack(x: Any, ask: Callable[[], Any]) -> Any:
    with contextlib.ExitStack() as stack:
        stack.callback(fails_and_catches)
        y = x * 2
    return y, ask()


def fails_and_catches() -> None:
    with contextlib.suppress(KeyError):
        fails()


CALLERS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "nothing": lambda call: call(),
    "one": lambda call: in_a_handler_of(ValueError("one"), call),
    "another": lambda call: in_a_handler_of(LookupError("another"), call),
}


def in_a_handler_of(error: Exception, call: Callable[[], Any]) -> Any:
    try:
        raise error
    except type(error):
        result = call()
        assert sys.exception() is error
        return result


@pytest.mark.parametrize("order", list(itertools.permutations(CALLERS)), ids="-".join)
@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize(
    "program", [asks_only, asks_after_a_handler, asks_behind_breaks, catches_what_it_asked_for, leaves_a_stack]
)
def test_callers_that_handle(program: Callable[..., Any], ask: str, order: tuple[str, ...]) -> None:
    x = torch.arange(3.0)
    compiled = tatara.compile(program)
    for caller in order * 3:
        expected = CALLERS[caller](lambda: outcome(program, x, ASK[ask]))
        assert repr(CALLERS[caller](lambda: outcome(compiled, x, ASK[ask]))) == repr(expected)
        assert sys.exc_info() == (None, None, None)


def ends_in_order(x: Any, n: int) -> Any:
    y = x + 1
    with contextlib.suppress(IndexError):
        y[100]
    return y * n


def test_nothing_is_left_by_numbers_that_vary() -> None:
    compiled = tatara.compile(ends_in_order)
    for n in range(1, 6):
        assert torch.equal(compiled(torch.ones(3), n), torch.full((3,), 2.0 * n))
        assert sys.exc_info() == (None, None, None)


def test_a_stack_breaks_no_graph() -> None:
    def f(x: Any) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            return x * 2 + 1

    assert torch.equal(tatara.compile(f, fullgraph=True)(torch.ones(2)), torch.full((2,), 3.0))
