"""An OrderedDict from before the trace: its order is changed, read and restored as in eager."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

Held = collections.OrderedDict


def made(count: int = 4) -> Any:
    return Held((f"k{i}", torch.full((2,), float(i))) for i in range(count))


def touched(x: Any, held: Any, key: str) -> Any:
    held.move_to_end(key)
    return x + held[key]


def touched_first(x: Any, held: Any, key: str) -> Any:
    held.move_to_end(key, last=False)
    return x * held[key]


def oldest_goes(x: Any, held: Any, key: str) -> Any:
    if key in held:
        held.move_to_end(key)
    held[key] = x * 2
    if len(held) > 4:
        held.popitem(last=False)
    return x + sum(held.values())


def newest_goes(x: Any, held: Any, key: str) -> Any:
    name, value = held.popitem()
    held[name + "+"] = value + x
    held.move_to_end(name + "+", False)
    return value - x, name


def read_in_order(x: Any, held: Any, key: str) -> Any:
    held.move_to_end(key)
    result = x
    for place, value in enumerate(held.values()):
        result = result + value * place
    return result, list(held)


def written_then_read(x: Any, held: Any, key: str) -> Any:
    held[key] = x + 1
    return next(iter(held)), torch.stack(list(held.values()))


PROGRAMS = [touched, touched_first, oldest_goes, newest_goes, read_in_order, written_then_read]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("shuffled", [False, True])
def test_orders(program: Callable[..., Any], shuffled: bool) -> None:
    ours, theirs = made(), made()
    compiled = tatara.compile(program)
    for call in range(12):
        key = f"k{(call * 3 + call // 3) % 4}"
        if program is newest_goes:
            key = "k0"
        for each in (ours, theirs):
            if shuffled:  # outside, between the calls
                each.move_to_end(list(each)[call % len(each)])
        x = torch.full((2,), 0.5 + call)
        same(compiled(x, ours, key), program(x, theirs, key))
        same(list(ours.items()), list(theirs.items()))


def test_a_key_moves_in_any_order() -> None:
    held = made()

    def moved(x: Any) -> Any:
        held.move_to_end("k2")
        return x + 1

    compiled = tatara.compile(moved)
    for other in ("k0", "k3", "k1", "k0"):
        held.move_to_end(other)
        expected = [key for key in held if key != "k2"] + ["k2"]
        compiled(torch.ones(2))
        assert list(held) == expected
    assert (tatara.stats()["graphs"], tatara.stats()["breaks"], tatara.stats()["recompiles"]) == (1, 0, 0)


def test_an_error_of_the_program() -> None:
    compiled = tatara.compile(lambda x, held: (x + 1, held.move_to_end("absent")))
    empty = tatara.compile(lambda x, held: (x + 1, held.popitem()))
    for _ in range(3):
        with pytest.raises(KeyError, match="absent"):
            compiled(torch.ones(2), made())
        with pytest.raises(KeyError, match="dictionary is empty"):
            empty(torch.ones(2), Held())
