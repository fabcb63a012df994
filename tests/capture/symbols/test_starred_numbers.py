"""Numbers among *args and **kwargs of the compiled function itself, as those of decorators are: two graphs for any values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same


def _scaled(x: Any, n: int, s: float = 1.0) -> Any:
    return x[:n] * n + s


def _wrapped(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return wrapper


def _rest(x: Any, *rest: Any) -> Any:
    return x[: rest[0]] * rest[1], rest, len(rest)


def _options(x: Any, **options: Any) -> Any:
    return x[: options["n"]] * options.get("s", 1.0), dict(options), "t" in options


def _handed_on(x: Any, *args: Any, **kwargs: Any) -> Any:
    return _scaled(x, *args, **kwargs), args, kwargs


def _changed(x: Any, **options: Any) -> Any:
    n = options.pop("n")
    options["m"] = n + 1
    return x[:n].sum() * options["m"], options


def _breaks(x: Any, *args: Any, **kwargs: Any) -> Any:
    y = x * args[0]
    print(end="")
    return y + args[0] * kwargs["s"], args, kwargs


CALLS = [
    (_wrapped(_scaled), lambda x, i: ((x, i + 2), {})),
    (_wrapped(_scaled), lambda x, i: ((x,), {"n": i + 2})),
    (_wrapped(_scaled), lambda x, i: ((x,), {"n": i + 2, "s": 0.5 * i})),
    (torch.no_grad()(_scaled), lambda x, i: ((x, i + 2), {})),
    (torch.no_grad()(_scaled), lambda x, i: ((), {"x": x, "n": i + 2})),
    (_rest, lambda x, i: ((x, i + 2, 0.25 * i), {})),
    (_options, lambda x, i: ((x,), {"n": i + 2, "s": 0.5 * i})),
    (_handed_on, lambda x, i: ((x, i + 2), {"s": 0.5 * i})),
    (_changed, lambda x, i: ((x,), {"n": i + 2})),
]


@pytest.mark.parametrize(("program", "arguments"), CALLS)
def test_two_graphs(program: Callable[..., Any], arguments: Callable[..., Any]) -> None:
    tatara.reset()
    compiled = tatara.compile(program)
    for i in range(8):
        args, kwargs = arguments(torch.randn(16, 3), i)
        same(compiled(*args, **kwargs), program(*args, **kwargs))
    stats = tatara.stats()
    assert (stats["breaks"], stats["guard_hits"] >= 5) == (0, True), stats


def test_around_a_break() -> None:
    compiled = tatara.compile(_breaks)
    for i in range(8):
        x = torch.randn(5)
        same(compiled(x, i, s=0.5 * i), _breaks(x, i, s=0.5 * i))


def test_the_caller_keeps_its_dict() -> None:
    compiled = tatara.compile(_changed)
    for i in range(5):
        mine = {"n": i + 2}
        same(compiled(torch.ones(9), **mine), _changed(torch.ones(9), **mine))
        assert mine == {"n": i + 2}
