"""The exception that is being handled where a graph breaks is still being handled behind it, in later calls too."""

from __future__ import annotations

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
