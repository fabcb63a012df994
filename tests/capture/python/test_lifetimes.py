"""Objects whose end the program notices end as in eager; generators that nobody sees closing cost no graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

LOG: list[Any] = []


class Mortal:
    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(("ended", self.name))


class Plain:
    pass


class Items(Sequence[int]):
    """Its iterator is a generator inside of a try statement."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, k: Any) -> Any:
        return (1, 2, 3)[k]


def _finally(n: int) -> Iterator[int]:
    try:
        yield from range(n)
    finally:
        LOG.append("closed")


def _takes_the_exit(n: int) -> Iterator[int]:
    try:
        yield from range(n)
    except BaseException as error:
        LOG.append(type(error).__name__)
        raise


def _other_errors(n: int) -> Iterator[int]:
    for k in range(n):
        try:
            try:
                yield k
            except (KeyError, IndexError):
                LOG.append("never")
        except ValueError as error:
            LOG.append(error)


def _delegates(inner: Callable[[int], Iterator[int]]) -> Iterator[int]:
    yield from inner(3)


def _dropped_in_the_middle(x: Any) -> Any:
    g = _finally(3)
    y = x + next(g)
    del g
    LOG.append("after")
    return y * 2


def _left_to_the_return(x: Any) -> Any:
    g = _finally(3)
    return x + next(g)


def _exit_taken(x: Any) -> Any:
    g = _takes_the_exit(3)
    return x + next(g)


def _delegated(x: Any) -> Any:
    g = _delegates(_finally)
    return x + next(g)


def _in_zip(x: Any) -> Any:
    for a, b in zip(_finally(3), [1], strict=False):
        x = x + a + b
    LOG.append("after")
    return x.sin()


def _broken_loop(x: Any) -> Any:
    for k in _finally(3):
        x = x + k
        if k == 1:
            break
    LOG.append("after")
    return x


def _mortal(x: Any) -> Any:
    m = Mortal("m")
    y = x + len(m.name)
    del m
    LOG.append("after")
    return y


def _replaced(x: Any) -> Any:
    m = Mortal("first")
    m = Mortal("second")
    LOG.append(m.name)
    return x * 2


def _callback(x: Any) -> Any:
    o = Plain()
    kept = weakref.ref(o, lambda _: LOG.append("callback"))
    y = torch.sin(x)
    del o
    LOG.append(kept() is None)
    return y + 1


NOTICED = [
    _dropped_in_the_middle,
    _left_to_the_return,
    _exit_taken,
    _delegated,
    _in_zip,
    _broken_loop,
    _mortal,
    _replaced,
    _callback,
]


@pytest.mark.parametrize("f", NOTICED, ids=lambda f: f.__name__)
def test_ends_as_in_eager(f: Callable[[Any], Any]) -> None:
    compiled = tatara.compile(f)
    for k in range(4):
        x = torch.linspace(-1, 1, 3) * (k + 1)
        LOG.clear()
        theirs, said = f(x), list(LOG)
        LOG.clear()
        ours, told = compiled(x), list(LOG)
        assert told == said
        torch.testing.assert_close(ours, theirs)


def _sequence(x: Any) -> Any:
    i = iter(Items())
    return x + next(i)


def _errors(x: Any) -> Any:
    i = _other_errors(3)
    return x + next(i)


def _delegated_quietly(x: Any) -> Any:
    i = _delegates(_other_errors)
    return x + next(i)


@pytest.mark.parametrize("f", [_sequence, _errors, _delegated_quietly], ids=lambda f: f.__name__)
def test_closing_that_runs_nothing_is_no_break(f: Callable[[Any], Any]) -> None:
    compiled = tatara.compile(f, fullgraph=True)
    for _ in range(3):
        x = torch.rand(3)
        torch.testing.assert_close(compiled(x), f(x))
    assert [e["end"] for e in compiled._report()["entries"]] == ["return"]


@pytest.mark.parametrize("how", ["value", "print", "item"])
def test_a_generator_ends_behind_a_break(how: str) -> None:
    log: list[str] = []

    def count(n: int) -> Any:
        try:
            yield from range(n)
        finally:
            log.append("closed")

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for _ in count(3):
            if how == "print":
                print(end="")
                break
            if how == "item":
                y.sum().item()
                break
            if y.sum() > 1:
                break
        log.append("after")
        return y * 2

    compiled = tatara.compile(f)
    for _ in range(4):
        log.clear()
        compiled(torch.ones(3))
        assert log == ["closed", "after"]
