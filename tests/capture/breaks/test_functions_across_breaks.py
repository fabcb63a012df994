"""Functions that a call makes and that live on behind a graph break, or are its result: with all that was set on them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402


def source(y: Any, k: int = 1) -> Any:
    """What is wrapped."""
    return y + k


source.extra = 5  # type: ignore[attr-defined]


def _wrapped() -> Any:
    @functools.wraps(source)
    def inner(y: Any) -> Any:
        return source(y) * 2

    return inner


def _named() -> Any:
    def inner(y: Any) -> Any:
        return y

    inner.__name__ = inner.__qualname__ = "other"
    inner.__doc__ = "said later"
    inner.__module__ = "elsewhere"
    return inner


def _marked() -> Any:
    def inner(y: Any) -> Any:
        """As it was."""
        return y

    inner.calls = [1, 2]  # type: ignore[attr-defined]
    inner.of = inner  # type: ignore[attr-defined]
    return inner


def _annotated() -> Any:
    def inner(y: Any, k: int = 3) -> Any:
        return y * k

    inner.__annotations__["y"] = float
    return inner


def _inner_wrapped() -> Any:
    def first(y: Any) -> Any:
        """Of the call."""
        return y * 3

    return functools.wraps(first)(lambda y: first(y) + 1)


MAKERS = [_wrapped, _named, _marked, _annotated, _inner_wrapped]


def _seen(f: Any) -> Any:
    attributes = {k: v for k, v in vars(f).items() if k not in ("of", "__wrapped__")}
    related = [getattr(f, "of", f) is f, getattr(getattr(f, "__wrapped__", None), "__name__", None)]
    return (
        f.__name__,
        f.__qualname__,
        f.__doc__,
        f.__module__,
        f.__annotations__,
        attributes,
        related,
        f(torch.ones(2)).tolist(),
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("breaks", [False, True])
def test_attributes_stay(make: Callable[[], Any], breaks: bool) -> None:
    def function(x: Any) -> Any:
        made = make()
        total = float(x.sum()) if breaks else 1.0
        return made, made(x) * total

    compiled = tatara.compile(function)
    for _ in range(3):
        ours, theirs = compiled(torch.ones(3)), function(torch.ones(3))
        assert _seen(ours[0]) == _seen(theirs[0])
        assert torch.equal(ours[1], theirs[1])
