"""Objects in C that a call made, across breaks and as results: later calls have their own, not the first call's."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402


def break_here() -> None:
    print(end="")


def appends(x: Any) -> Any:
    out: list[Any] = []
    add = out.append
    add(x * 2)
    break_here()
    add(x * 3)
    return out


def sets_defaults(x: Any) -> Any:
    out: dict[str, Any] = {}
    give = out.setdefault
    y = x + 1
    give("a", y)
    break_here()
    give("b", y * 3)
    return out


def adds_to_a_set(x: Any) -> Any:
    seen: set[int] = set()
    add = seen.add
    add(1)
    break_here()
    add(2)
    return x * len(seen), seen


def asks_a_string(x: Any) -> Any:
    upper, get = "abc".upper, {"a": 3}.get
    y = x + 1
    break_here()
    return y * get("a"), upper()


def multiplies(x: Any) -> Any:
    y = x + 1
    mul, again = x.mul, y.mul
    break_here()
    return mul(2), again(3)


def has_a_property(x: Any) -> Any:
    length = len(x.shape) + 1
    size = property(lambda _: length)
    break_here()
    return x * size.fget(None)


def has_a_cache(x: Any) -> Any:
    seen = []

    @functools.lru_cache
    def known(n: int) -> int:
        seen.append(n)
        return n + 1

    y = x * known(2)
    break_here()
    return y + known(2) + known(3), seen


def has_a_partial(x: Any) -> Any:
    add = functools.partial(torch.add, x * 2)
    break_here()
    return add(x)


def has_a_module(x: Any) -> Any:
    layer = torch.nn.ReLU()
    layer.seen = x.shape[0]
    break_here()
    return layer(x) * layer.seen


def keeps_a_heap(x: Any) -> Any:
    heap = [3, 1]
    heapq.heapify(heap)
    break_here()
    heapq.heappush(heap, 0)
    return x * heap[0], heap


PROGRAMS = [
    appends,
    sets_defaults,
    adds_to_a_set,
    asks_a_string,
    multiplies,
    has_a_property,
    has_a_cache,
    has_a_partial,
    has_a_module,
    keeps_a_heap,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_across_a_break(program: Callable[..., Any]) -> None:
    run = tatara.compile(program)
    for scale in (1.0, 2.0, 3.0, 4.0):
        x = torch.linspace(-1, 1, 3) * scale
        same(run(x), program(x))


def test_methods_of_an_argument() -> None:
    def program(x: Any, items: list[Any]) -> Any:
        add = items.append
        y = x * 2
        break_here()
        add(y)
        return y

    run = tatara.compile(program)
    for scale in (1.0, 2.0, 3.0):
        items: list[Any] = []
        result = run(torch.ones(2) * scale, items)
        assert len(items) == 1 and items[0] is result


def test_results_that_are_methods_and_caches() -> None:
    def program(x: Any) -> Any:
        out: list[Any] = []

        @functools.lru_cache
        def known(n: int) -> int:
            return n + 1

        return x * known(2), out.append, out, known, property(known)

    run = tatara.compile(program)
    results = [run(torch.ones(2) * scale) for scale in (1.0, 2.0, 3.0)]
    for _, add, _, known, _ in results:
        add(7)
        known(5)
    assert [out for _, _, out, _, _ in results] == [[7]] * 3
    assert [known.cache_info().misses for _, _, _, known, _ in results] == [2] * 3
    assert len({id(held) for *_, held in results}) == 3
