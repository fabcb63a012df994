"""Objects of all kinds that code in C hands to code in Python: as in eager, and no kind breaks the graph for its origin."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import torch

import numpy as np
import tatara
from tatara.report._report import report_of


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Word(str, enum.Enum):
    A = "a"


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Data:
    a: Any = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 1


class Plain:
    pass


class OwnInt(int):
    pass


class OwnStr(str):
    pass


KINDS: dict[str, Callable[[], Any]] = {
    "enum": lambda: Color.RED,
    "int enum": lambda: Level.LOW,
    "flag": lambda: Access.READ,
    "flags together": lambda: Access.READ | Access.WRITE,
    "no flags": lambda: Access(0),
    "str enum": lambda: Word.A,
    "int": lambda: 3,
    "float": lambda: 1.5,
    "complex": lambda: 1j,
    "str": lambda: "s",
    "bytes": lambda: b"b",
    "None": lambda: None,
    "Ellipsis": lambda: ...,
    "dtype": lambda: torch.float32,
    "device": lambda: torch.device("cpu"),
    "layout": lambda: torch.strided,
    "memory format": lambda: torch.contiguous_format,
    "Size": lambda: torch.Size([2]),
    "NumPy dtype": lambda: np.dtype("f4"),
    "tuple": lambda: (1, 2),
    "list": lambda: [1, 2],
    "dict": lambda: {"a": 1},
    "set": lambda: {1},
    "frozenset": lambda: frozenset([1]),
    "range": lambda: range(3),
    "slice": lambda: slice(1),
    "namedtuple": lambda: Pair(1, 2),
    "dataclass": lambda: Data(),
    "frozen dataclass": lambda: Frozen(),
    "instance": lambda: Plain(),
    "Decimal": lambda: decimal.Decimal(1),
    "Fraction": lambda: fractions.Fraction(1, 2),
    "date": lambda: datetime.date(2020, 1, 1),
    "timedelta": lambda: datetime.timedelta(1),
    "path": lambda: pathlib.Path("a"),
    "pattern": lambda: re.compile("a"),
    "UUID": lambda: uuid.UUID(int=1),
    "class": lambda: Plain,
    "class in C": lambda: int,
    "function in C": lambda: len,
    "function": lambda: KINDS["int"],
    "partial": lambda: functools.partial(max, 1),
    "module": lambda: re,
    "own int": lambda: OwnInt(2),
    "own str": lambda: OwnStr("x"),
    "namespace": lambda: types.SimpleNamespace(a=1),
    "deque": lambda: collections.deque([1]),
    "Counter": lambda: collections.Counter("a"),
    "OrderedDict": lambda: collections.OrderedDict(a=1),
    "defaultdict": lambda: collections.defaultdict(int, a=1),
    "mapping proxy": lambda: types.MappingProxyType({"a": 1}),
    "tensor": lambda: torch.ones(2),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "generator": lambda: torch.Generator(),
    "generic alias": lambda: list[int],
    "union": lambda: int | str,
    "object": lambda: object(),
}


class Box:
    def __init__(self, v: Any) -> None:
        self.v = v

    def __getitem__(self, v: Any) -> int:
        return 1 if v is self.v else 0

    def __contains__(self, v: Any) -> bool:
        return v is self.v

    def __call__(self, v: Any) -> str:
        return type(v).__name__

    def __add__(self, v: Any) -> int:
        return len(type(v).__name__)


def key(v: Any) -> int:
    return len(type(v).__name__)


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "constructor": lambda x, v: x + len(type(Box(v).v).__name__),
    "dataclass": lambda x, v: x + (Data(v).a is v),
    "item": lambda x, v: x + Box(v)[v],
    "contains": lambda x, v: x + (v in Box(v)),
    "call": lambda x, v: x + len(Box(v)(v)),
    "operator": lambda x, v: x + (Box(v) + v),
    "key of sorted": lambda x, v: x + len(sorted([v, v], key=key)),
    "key of max": lambda x, v: x + key(max([v, v], key=key)),
    "map": lambda x, v: x + sum(map(key, [v, v])),
    "filter": lambda x, v: x + len(list(filter(key, [v]))),
    "partial": lambda x, v: x + functools.partial(key, v)(),
    "reduce": lambda x, v: x + functools.reduce(lambda a, b: a + key(b), [v, v], 0),
    "namedtuple": lambda x, v: x + key(Pair(v, 1).a),
}


@pytest.mark.parametrize("kind", KINDS)
def test_as_in_eager_without_breaks(kind: str) -> None:
    x = torch.zeros(2)
    made = KINDS[kind]()

    def outcome(run: Callable[[Any, Any], Any]) -> Any:
        try:
            return run(x, made).tolist()
        except Exception as error:
            return repr(error)

    for way, program in WAYS.items():
        compiled = tatara.compile(program)
        for _ in range(3):
            assert outcome(compiled) == outcome(program), way
        assert [each.reason for each in report_of(compiled).breaks if "comes from" in each.reason] == [], way


def test_another_member_is_another_program() -> None:
    def program(x: Any, v: Any) -> Any:
        return x + v.value if Box(v)[v] and v is not Access.READ else x - v.value

    compiled = tatara.compile(program)
    x = torch.zeros(2)
    for v in (Access.READ, Access.WRITE, Access.READ | Access.WRITE, Access(0), Color.RED, Level.LOW, Access.READ):
        assert compiled(x, v).tolist() == program(x, v).tolist()
