"""Functions and methods in C that change what existed before a call, in every way to get at it: four calls as in eager."""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import itertools
import operator
import random
import re
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


class Box:
    held: Any
    n = 0


def numbers() -> list[int]:
    return [3, 1, 2]


def ordered() -> Any:
    return collections.OrderedDict(a=1, b=2, c=3)


def mutable_class() -> type:
    return type("Class", (), {"n": 0})


def iterator() -> Any:
    return iter(list(range(60)))


def nothing(value: Any) -> None:
    del value


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "heapify": (numbers, heapq.heapify),
    "heappush": (numbers, lambda o: heapq.heappush(o, 0)),
    "heappop": (lambda: [1, 2, 3, 4, 5, 6], heapq.heappop),
    "heapreplace": (numbers, lambda o: heapq.heapreplace(o, 7)),
    "heappushpop": (numbers, lambda o: heapq.heappushpop(o, 7)),
    "insort": (lambda: [1, 5], lambda o: bisect.insort(o, 3)),
    "insort_left": (lambda: [1, 5], lambda o: bisect.insort_left(o, 3)),
    "setitem": (numbers, lambda o: operator.setitem(o, 0, operator.getitem(o, 0) + 1)),
    "setitem of a dict": (dict, lambda o: operator.setitem(o, len(o), 1)),
    "delitem": (lambda: list(range(9)), lambda o: operator.delitem(o, 0)),
    "iadd": (numbers, lambda o: nothing(operator.iadd(o, [1]))),
    "imul": (numbers, lambda o: nothing(operator.imul(o, 2))),
    "iconcat": (numbers, lambda o: nothing(operator.iconcat(o, [5]))),
    "ior of a set": (lambda: {1}, lambda o: nothing(operator.ior(o, {len(o) + 1}))),
    "ior of a dict": (lambda: {1: 1}, lambda o: nothing(operator.ior(o, {len(o) + 1: 2}))),
    "methodcaller": (numbers, operator.methodcaller("append", 4)),
    "reduce": (numbers, lambda o: nothing(functools.reduce(operator.iadd, [[1], [2]], o))),
    "partial": (numbers, lambda o: functools.partial(o.append, 1)()),
    "unbound append": (numbers, lambda o: list.append(o, 1)),
    "unbound setitem": (dict, lambda o: dict.__setitem__(o, len(o), 1)),
    "map": (numbers, lambda o: list(map(o.append, [1, 2]))),
    "map of unbound": (numbers, lambda o: list(map(list.append, [o], [1]))),
    "any": (numbers, lambda o: any(map(o.append, [1, 2]))),
    "consumed": (numbers, lambda o: nothing(collections.deque(map(o.append, [1, 2]), maxlen=0))),
    "filter": (numbers, lambda o: list(filter(o.append, [1, 2]))),
    "starmap": (dict, lambda o: list(itertools.starmap(o.__setitem__, [(len(o), 1)]))),
    "key": (numbers, lambda o: sorted([2, 1], key=lambda v: o.append(v) or v)),
    "key in C": (lambda: {1: 5, 2: 4}, lambda o: sorted([2, 1], key=o.pop) if len(o) == 2 else o.update({1: 7, 2: 8})),
    "re.sub": (numbers, lambda o: re.sub("a", lambda m: (o.append(1), "b")[1], "aa")),
    "counted": (dict, lambda o: collections._count_elements(o, "ab")),  # type: ignore[attr-defined]
    "Counter": (lambda: collections.Counter("ab"), lambda o: o.update("a")),
    "defaultdict": (lambda: collections.defaultdict(int), lambda o: operator.getitem(o, len(o))),
    "deque": (lambda: collections.deque([1, 2]), lambda o: collections.deque.extend(o, [1, 2])),
    "rotate": (lambda: collections.deque([1, 2, 3]), lambda o: o.rotate(1)),
    "move_to_end": (ordered, lambda o: o.move_to_end(next(iter(o)))),
    "move to the start": (ordered, lambda o: o.move_to_end(list(o)[-1], last=False)),
    "popitem": (ordered, lambda o: o.popitem(last=False) if o else None),
    "shuffle": (lambda: list(range(8)), lambda o: random.Random(1).shuffle(o)),
    "setattr": (Box, lambda o: setattr(o, "n", o.n + 1)),
    "object.__setattr__": (Box, lambda o: object.__setattr__(o, "n", o.n + 1)),
    "vars": (Box, lambda o: vars(o).update(n=vars(o).get("n", 0) + 1)),
    "of a class": (mutable_class, lambda o: setattr(o, "n", o.n + 1)),
    "type.__setattr__": (mutable_class, lambda o: type.__setattr__(o, "n", o.n + 1)),
    "of a namespace": (lambda: types.SimpleNamespace(n=0), lambda o: setattr(o, "n", o.n + 1)),
    "next": (iterator, next),
    "islice": (iterator, lambda o: list(itertools.islice(o, 2))),
    "zip": (iterator, lambda o: list(zip(o, [1, 2], strict=False))),
    "bytearray": (lambda: bytearray(b"a"), lambda o: o.extend(b"b")),
}


def _shown(o: Any) -> Any:
    if isinstance(o, collections.OrderedDict):
        return list(o.items())
    if isinstance(o, (list, dict, set, collections.deque, bytearray)):
        return copy.copy(o)
    return getattr(o, "n", None)


def _calls(form: str, name: str, compiled: bool) -> list[Any]:
    make, change = CHANGES[name]
    held = make()
    second: Any = held
    if form == "attribute":
        second = Box()
        second.held = held

    def of_argument(x: Any, o: Any) -> Any:
        result = change(o)
        return x + 1, _shown(o), result

    def of_closure(x: Any, _: Any) -> Any:
        result = change(held)
        return x + 1, _shown(held), result

    def of_attribute(x: Any, box: Any) -> Any:
        result = change(box.held)
        return x + 1, _shown(box.held), result

    program = {"argument": of_argument, "closure": of_closure, "attribute": of_attribute}[form]
    run = tatara.compile(program) if compiled else program
    rows = []
    for scale in (1.0, 2.0, 3.0, 4.0):
        y, shown, result = run(torch.ones(2) * scale, second)
        rows.append((y.tolist(), shown, copy.copy(result), _shown(held)))
    return rows


@pytest.mark.parametrize("form", ["argument", "closure", "attribute"])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_made_in_every_call(name: str, form: str) -> None:
    assert _calls(form, name, compiled=True) == _calls(form, name, compiled=False)


@pytest.mark.parametrize("form", ["argument", "closure"])
def test_the_order_of_a_dict_is_guarded(form: str) -> None:
    items = ordered()

    def of_argument(x: Any, d: Any) -> Any:
        return x * 2, list(d)

    def of_closure(x: Any, _: Any) -> Any:
        return x * 2, list(items)

    run = tatara.compile(of_argument if form == "argument" else of_closure)
    x = torch.ones(2)
    for key in ("a", "c", "b", "a"):
        assert run(x, items)[1] == list(items)
        items.move_to_end(key)
        assert run(x, items)[1] == list(items)
