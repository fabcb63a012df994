"""Iterators that come with a call, and loops that go on after a graph break, on each version of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


def _moved(iterator: Iterator[Any], steps: int) -> Iterator[Any]:
    for _ in range(steps):
        next(iterator, None)
    return iterator


_DICT = {"a": 2, "b": 3, "c": 5, "d": 7}
_MAKE: dict[str, Callable[[int], Iterator[Any]]] = {
    "list": lambda n: _moved(iter([2, 3, 5, 7]), n),
    "tuple": lambda n: _moved(iter((2, 3, 5, 7)), n),
    "str": lambda n: _moved(iter("abcd"), n),
    "str beyond ascii": lambda n: _moved(iter("äbcd"), n),
    "bytes": lambda n: _moved(iter(b"abcd"), n),
    "range": lambda n: _moved(iter(range(1, 9, 2)), n),
    "long range": lambda n: _moved(iter(range(2**70, 2**70 + 4)), n),
    "reversed list": lambda n: _moved(reversed([2, 3, 5, 7]), n),
    "reversed tuple": lambda n: _moved(reversed((2, 3, 5, 7)), n),
    "keys": lambda n: _moved(iter(dict(_DICT)), n),
    "values": lambda n: _moved(iter(dict(_DICT).values()), n),
    "items": lambda n: _moved(iter(dict(_DICT).items()), n),
    "enumerate": lambda n: _moved(enumerate([2, 3, 5, 7], 3), n),
    "zip": lambda n: _moved(zip([2, 3, 5, 7], "abcd", enumerate((7, 11, 13, 17))), n),
    "zip of one": lambda n: _moved((lambda it: zip(it, it))(iter([2, 3, 5, 7, 11, 13, 17, 19])), n),
}


def _weight(v: Any) -> float:
    if isinstance(v, tuple):
        return sum(_weight(each) for each in v)
    return float(ord(v)) if isinstance(v, str) else float(v % 1000)


def _loop(x: Any, it: Any) -> Any:
    for v in it:
        x = x * 0.5 + _weight(v)
    return x


def _break(x: Any) -> Any:
    float(x.sum())
    return x


def _broken_loop(x: Any, it: Any) -> Any:
    for v in it:
        x = _break(x * 0.5 + _weight(v))
    return x


def _made_before(x: Any, it: Any) -> Any:
    own = enumerate(_DICT.items())
    _break(x)
    for (n, (_, v)), w in zip(own, it):
        x = x * n + v - _weight(w)
    return x, own


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("made", list(_MAKE))
def test_as_in_plain_python(made: str, steps: int) -> None:
    for f in (_loop, _broken_loop, _made_before):
        compiled = tatara.compile(f)
        for _ in range(3):
            x, ours, others = np.linspace(0.0, 1.0, 5), _MAKE[made](steps), _MAKE[made](steps)
            got, expected = compiled(x, ours), f(x, others)
            if f is _made_before:
                assert list(got[1]) == list(expected[1])
                got, expected = got[0], expected[0]
            np.testing.assert_allclose(got, expected)
            assert list(ours) == list(others)


@pytest.mark.parametrize("made", list(_MAKE))
def test_no_break(made: str) -> None:
    compiled = tatara.compile(_loop, fullgraph=True)
    for _ in range(2):
        x = np.linspace(0.0, 1.0, 5)
        np.testing.assert_allclose(compiled(x, _MAKE[made](1)), _loop(x, _MAKE[made](1)))


_STEPS: dict[str, Callable[[Any], Any]] = {
    "next": lambda a: next(iter(a)),
    "next of a view": lambda a: next(iter(a[1:])),
    "next of a result": lambda a: next(iter(a * 2)),
    "next twice": lambda a: (lambda it: (next(it), next(it)))(iter(a)),
    "next behind the end": lambda a: [next(it, None) for it in [iter(a)] for _ in range(8)],
    "zip of an iterator": lambda a: next(zip(iter(a), range(9), strict=False)),
    "enumerate of an iterator": lambda a: next(enumerate(iter(a * 2))),
    "list of an iterator": lambda a: list(iter(a * 2)),
    "map": lambda a: list(map(abs, iter(a))),
    "a loop": lambda a: [v + 1 for v in iter(a)],
    "flat": lambda a: (a.flat[1], list(a.flat)[2]),
}


@pytest.mark.parametrize("name", _STEPS)
@pytest.mark.parametrize("breaks", [False, True])
def test_steps_over_arrays_give_the_numbers_of_each_call(name: str, breaks: bool) -> None:
    def program(a: Any) -> Any:
        found = np.median(a) if breaks else None
        return found, _STEPS[name](a)

    compiled = tatara.compile(program)
    for i in range(8):
        a = np.arange(4.0 + i % 3) - i
        assert str(compiled(a)) == str(program(a))


def _over_array(data: Any) -> list[float]:
    out: list[float] = []
    for item in data:
        out.append(float(item))
    return out


def _over_rows(data: Any) -> list[Any]:
    out: list[Any] = []
    for row in data.reshape(-1, 1):
        if row[0] > 4:
            out.append(row * 2)
        else:
            out.append(row + 1)
    return out


def _next_of_array(data: Any) -> list[float]:
    it = iter(data)
    out = [float(next(it))]
    out.append(float(next(it)))
    return [*out, *(float(v) for v in it)]


@pytest.mark.parametrize("f", [_over_array, _over_rows, _next_of_array])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_loop_over_an_array_goes_on_behind_a_break_where_it_was(f: Callable[..., Any], count: int) -> None:
    data = np.arange(count) + 3.0
    compiled = tatara.compile(f)
    for turn in range(4):
        expected, got = f(data + turn), compiled(data + turn)
        assert len(got) == len(expected)
        assert all(type(a) is type(b) and np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
