"""Iterators that come with a call: never moved on by a compiled run, whatever reads them."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


def _generator() -> Iterator[int]:
    yield from (2, 3, 5, 7)


_MAKE: dict[str, Callable[[], Iterator[Any]]] = {
    "generator": _generator,
    "expression": lambda: (i * 2 for i in range(1, 5)),
    "list": lambda: iter([2, 3, 5, 7]),
    "chain": lambda: itertools.chain([2, 3], [5, 7]),
    "islice": lambda: itertools.islice(itertools.count(4), 4),
    "starmap": lambda: itertools.starmap(pow, [(2, 1), (3, 1), (2, 3)]),
    "map": lambda: map(int, "2357"),
    "file": lambda: map(len, io.StringIO("aa\nbbb\ncccc\n")),
}


def _delegate(source: Iterator[Any]) -> Iterator[Any]:
    yield from source


def _count(*items: Any) -> int:
    return len(items)


_READ: dict[str, Callable[[Any, Any], Any]] = {
    "next": lambda x, it: x * next(it) + next(it),
    "for": lambda x, it: [x * v for v in it],
    "sum": lambda x, it: x * sum(it),
    "yield from": lambda x, it: x * sum(_delegate(it)),
    "star": lambda x, it: x * max(*it),
    "star python": lambda x, it: x * _count(*it),
    "display": lambda x, it: x * len([0, *it]),
    "unpack": lambda x, it: (lambda a, *b: x * a + len(b))(*it),
    "extend": lambda x, it: (lambda l: (l.extend(it), x * len(l))[1])([1]),
    "in": lambda x, it: x * (3 in it),
    "zip": lambda x, it: [x * a * b for a, b in zip(it, it)],
    "method": lambda x, it: x * it.__next__(),
}


@pytest.mark.filterwarnings("ignore:tatara")
@pytest.mark.parametrize("how", list(_READ))
@pytest.mark.parametrize("made", list(_MAKE))
def test_argument(made: str, how: str) -> None:
    f = _READ[how]
    compiled = tatara.compile(f)
    for _ in range(4):
        x = torch.randn(3)
        ours, eagers = _MAKE[made](), _MAKE[made]()
        got, expected = compiled(x, ours), f(x, eagers)
        torch.testing.assert_close(got, expected)
        assert list(ours) == list(eagers)


@pytest.mark.parametrize("made", list(_MAKE))
def test_an_unread_iterator_is_no_reason_to_recompile(made: str) -> None:
    compiled = tatara.compile(lambda x, it: (x * 2, it), fullgraph=True)
    for _ in range(4):
        x, it = torch.randn(3), _MAKE[made]()
        doubled, same = compiled(x, it)
        torch.testing.assert_close(doubled, x * 2)
        assert same is it
    assert len(compiled._report()["recompiles"]) == 0
    assert list(it)


def test_state_of_a_generator() -> None:
    def f(x: Any, it: Any) -> Any:
        return x * (1 if it.gi_frame is None else it.gi_frame.f_lineno) + getattr(it, "gi_running", 5)

    compiled = tatara.compile(f)
    for steps in range(5):
        it, x = _generator(), torch.randn(3)
        for _ in range(steps):
            next(it, None)
        torch.testing.assert_close(compiled(x, it), f(x, it))
