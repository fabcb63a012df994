"""Functions that the program makes anew in each call: arguments, variables at a later point. They go by what they come with."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402

CALLS = 6


def _with_cell(i: int) -> Callable[..., Any]:
    w = torch.full((3,), float(i))
    return lambda x: x * w + w


def _with_default(i: int) -> Callable[..., Any]:
    return lambda x, w=torch.full((3,), float(i)): x * w


def _with_keyword(i: int) -> Callable[..., Any]:
    def f(x: Any, *, w: Any = torch.full((3,), float(i))) -> Any:  # noqa: B008
        return x - w

    return f


def _with_list(i: int) -> Callable[..., Any]:
    parts = [torch.full((3,), float(i)), torch.ones(3)]
    return lambda x: sum(parts, x)


def _with_function(i: int) -> Callable[..., Any]:
    inner = _with_cell(i)
    return lambda x: inner(x) + inner(x + 1)


def _recursive(i: int) -> Callable[..., Any]:
    w = torch.full((3,), float(i))

    def f(x: Any, depth: int = 2) -> Any:
        return x + w if depth == 0 else f(x * w, depth - 1)

    return f


MAKERS = [_with_cell, _with_default, _with_keyword, _with_list, _with_function, _recursive]


@pytest.mark.parametrize("make", MAKERS)
def test_of_one_code(make: Callable[[int], Callable[..., Any]]) -> None:
    @tatara.compile
    def run(f: Any, x: Any) -> Any:
        return f(x) * 2

    x = torch.randn(3)
    with counts() as n:
        for i in range(CALLS):
            f = make(i)
            assert torch.equal(run(f, x), f(x) * 2)
    assert n["recompiles"] <= (
        2 if make is _with_function else 1
    )  # first the outer function is another one, then the inner


def test_in_lists_and_dicts() -> None:
    @tatara.compile
    def run(fs: Any, named: Any, x: Any) -> Any:
        return reduce(lambda a, f: f(a), fs, x) + named["f"](x)

    x = torch.randn(3)
    with counts() as n:
        for i in range(CALLS):
            fs, named = [_with_cell(i), _with_default(i)], {"f": _with_cell(i + 1)}
            assert torch.equal(run(fs, named, x), fs[1](fs[0](x)) + named["f"](x))
    assert n["recompiles"] <= 1


def test_of_another_code_or_other_contents() -> None:
    @tatara.compile
    def run(f: Any, x: Any) -> Any:
        return f(x) * 2

    def capture(w: Any) -> Any:
        return lambda x: x + w

    x = torch.randn(3)
    held: list[Any] = [torch.ones(3), torch.zeros(3), 2, 3.5, torch.ones(2, 3), torch.ones(3, dtype=torch.float64)]
    functions = [*(capture(w) for w in held), lambda x: x * 3, torch.sin, *(capture(w) for w in held)]
    for f in functions:
        assert torch.equal(run(f, x), f(x) * 2)


def test_written_cells() -> None:
    def make() -> tuple[Callable[..., Any], Callable[[], int]]:
        calls, seen = 0, [0]

        def f(x: Any) -> Any:
            nonlocal calls
            calls += 1
            seen[0] += 2
            return x + seen[0]

        return f, lambda: calls * 100 + seen[0]

    @tatara.compile
    def run(f: Any, x: Any) -> Any:
        return f(f(x))

    x = torch.randn(3)
    for _ in range(CALLS):
        f, state = make()
        g, expected = make()
        assert torch.equal(run(f, x), g(g(x)))
        assert state() == expected()
        assert torch.equal(run(f, x), g(g(x)))
        assert state() == expected()


def test_told_apart_by_identity() -> None:
    table: dict[Any, float] = {}

    @tatara.compile
    def run(f: Any, g: Any, x: Any) -> Any:
        if f is g:
            return x
        return f(x) * table.get(f, 1.0)

    x = torch.randn(3)
    for i in range(CALLS):
        f, g = _with_cell(i), _with_cell(i)
        if i % 2:
            table[f] = 3.0
        assert torch.equal(run(f, g, x), f(x) * table.get(f, 1.0))
        assert torch.equal(run(f, f, x), x)


def test_attributes_that_are_read() -> None:
    @tatara.compile
    def run(f: Any, x: Any) -> Any:
        return f(x) * len(f.__name__) + (1 if getattr(f, "flag", False) else 0)

    x = torch.randn(3)
    for i in range(CALLS):
        f = _with_cell(i)
        f.__name__ = "n" * (1 + i % 3)
        if i > 2:
            f.flag = True  # type: ignore[attr-defined]
        assert torch.equal(run(f, x), f(x) * len(f.__name__) + (1 if i > 2 else 0))


def test_replaced_code_and_defaults() -> None:
    def make(w: Any) -> Any:
        def f(x: Any, k: Any = w) -> Any:
            return x + k

        return f

    @tatara.compile
    def run(f: Any, x: Any) -> Any:
        return f(x) * 2

    x = torch.randn(3)
    f: Any = None
    for i in range(4):
        f = make(torch.full((3,), float(i)))
        assert torch.equal(run(f, x), (x + i) * 2)
    f.__defaults__ = (torch.full((3,), 9.0),)
    assert torch.equal(run(f, x), (x + 9) * 2)
    f.__code__ = (lambda x, k: x - k).__code__
    assert torch.equal(run(f, x), (x - 9) * 2)


def test_gradients_and_results() -> None:
    @tatara.compile
    def run(f: Any, x: Any) -> Any:
        return f(x).sum(), f

    with counts() as n:
        for i in range(CALLS):
            w = torch.full((3,), float(i), requires_grad=True)
            f = (lambda w: lambda x: (x * w).sin())(w)
            x = torch.randn(3, requires_grad=True)
            loss, same = run(f, x)
            loss.backward()
            assert same is f
            torch.testing.assert_close(w.grad, x.detach() * torch.cos(x * w).detach())
    assert n["recompiles"] <= 1


def test_behind_a_break() -> None:
    @tatara.compile
    def run(x: Any) -> Any:
        mse = lambda a, b: ((a - b) ** 2).mean()  # noqa: E731
        first = mse(x, x + 1)
        print(end="")
        return first + mse(x, x * 2)

    with counts() as n:
        for _ in range(CALLS):
            x = torch.randn(3)
            torch.testing.assert_close(run(x), 1 + (x**2).mean())
    assert n["graphs"] <= 4


def test_let_go_of() -> None:
    import gc
    import weakref

    @tatara.compile
    def run(f: Any, x: Any) -> Any:
        return f(x) * 2

    x, ended = torch.randn(3), []
    for i in range(CALLS):
        f = _with_cell(i)
        run(f, x)
        ended.append(weakref.ref(f))
        del f
    gc.collect()
    assert sum(each() is not None for each in ended) <= 1  # that of the first entry
