"""Generated loops over ints, floats and elements of arrays: results, errors, arrays, locals and warnings are the plain program's."""

from __future__ import annotations

import copy
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara

pytestmark = pytest.mark.filterwarnings("ignore:tatara")

PROGRAMS = int(os.environ.get("TATARA_GENERATED_LOOPS", "200"))
GROUPS = 10
INTS = [0, 1, 2, 3, -1, -2, 7, 63, 64, 255, 2**31, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, 2**64, 10**30]
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, -1e300, 5e-324, float("inf"), float("-inf"), float("nan")]
HELPERS = """
def pick(p, q):
    if p > q:
        return p
    elif p == q:
        return 0
    return q - 1

def steps(p):
    k = 0
    while p > 1:
        if k >= 20:
            return k
        p = p // 2
        k += 1
    return k
"""


class Writer:
    """Writes one program. Its ints are p, q, r and the counters, its floats x, y, s, its arrays a (floats) and b (ints)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.counters: list[str] = []
        self.depth = 0
        self.wild = self.random.random() < 0.3  # indices and values that are often wrong

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def index(self) -> str:
        places = [f"{c} % 8" for c in self.counters] + ["0", "3", "-1", "(p % 8)"]
        if self.wild:
            places += [*self.counters, "p", "9", "-9"]
        return self.one(*places)

    def int(self, depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.3:
            constant = str(self.one(*(INTS if self.random.random() < 0.1 else INTS[:10])))
            return self.one("p", "q", "r", *self.counters, constant, f"int(b[{self.index()}])")
        a, b = self.int(depth - 1), self.int(depth - 1)
        kind = self.random.randrange(16)
        if kind < 8:
            return f"({a} {self.one('+', '-', '*', '&', '|', '^')} {b})"
        if kind < 10:
            return f"({a} {self.one('//', '%')} {self.one('3', '7', '-2', b)})"
        if kind < 12:
            return f"({a} {self.one('<<', '>>')} {self.one('1', '3', '40', f'({b} & 7)')})"
        if kind == 12:
            return f"({a} if {self.condition()} else {b})"
        if kind == 13:
            return f"{self.one('max', 'min', 'pick')}({a}, {b})"
        if kind == 14:
            return self.one(f"abs({a})", f"(-{a})", f"(~{a})", f"steps({a})")
        return f"int({self.float(depth - 1)})" if self.wild else f"({a} + 1)"

    def float(self, depth: int = 2) -> str:
        if depth == 0 or self.random.random() < 0.3:
            constant = str(self.one(0.5, 2.0, -1.25, 3.0))
            return self.one("x", "y", "s", constant, f"float(a[{self.index()}])")
        a, b = self.float(depth - 1), self.float(depth - 1)
        kind = self.random.randrange(10)
        if kind < 6:
            return f"({a} {self.one('+', '-', '*', '*')} {b})"
        if kind == 6:
            return f"({a} / {self.one('4.0', '1.5', b)})"
        if kind == 7:
            return f"({a} if {self.condition()} else {b})"
        if kind == 8:
            return f"float({self.int(depth - 1)})"
        return self.one(f"abs({a})", f"max({a}, {b})", f"({a} + {self.int(0)})")

    def condition(self) -> str:
        sign = self.one("<", "<=", ">", ">=", "==", "!=")
        kind = self.random.randrange(8)
        if kind < 3:
            return f"{self.int(1)} {sign} {self.int(1)}"
        if kind < 5:
            return f"{self.float(1)} {sign} {self.float(1)}"
        if kind == 5:
            return (
                f"({self.int(0)} {sign} {self.int(0)} {self.one('and', 'or')} {self.float(0)} {sign} {self.float(0)})"
            )
        if kind == 6:
            return f"not {self.int(1)}"
        return f"{self.int(0)} < {self.int(0)} <= {self.int(0)}"

    def put(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def statement(self, level: int) -> None:
        kind = self.random.randrange(20)
        if kind < 5:
            self.put(f"{self.one('p', 'q', 'r')} {self.one('=', '=', '+=', '^=')} {self.int()}")
        elif kind < 9:
            self.put(f"{self.one('x', 'y', 's')} {self.one('=', '+=', '*=')} {self.float()}")
        elif kind < 11:
            self.put(f"a[{self.index()}] {self.one('=', '+=')} {self.float()}")
        elif kind < 12:
            self.put(f"b[{self.index()}] = {self.int(1)} % 1000")
        elif kind < 16:
            self.branch(level)
        elif kind < 18 and level < 2:
            self.loop(level)
        elif self.counters and self.random.random() < 0.5:
            self.put(f"if {self.condition()}:")
            leave = "return p, x" if self.random.random() < 0.2 else "raise ValueError(p, q)"
            self.depth += 1
            self.put(self.one("break", "continue", "break", "continue", leave))
            self.depth -= 1
        else:
            self.put("u = p + 1" if self.random.random() < 0.8 else "q = u")

    def block(self, level: int, most: int) -> None:
        self.depth += 1
        for _ in range(self.random.randrange(1, most + 1)):
            self.statement(level)
        self.depth -= 1

    def branch(self, level: int) -> None:
        self.put(f"if {self.condition()}:")
        self.block(level, 2)
        if self.random.random() < 0.3:
            self.put(f"elif {self.condition()}:")
            self.block(level, 2)
        if self.random.random() < 0.5:
            self.put("else:")
            self.block(level, 2)

    def loop(self, level: int) -> None:
        name = f"i{len(self.counters)}"
        turns = self.one(17, 20, 40) if level == 0 else self.one(3, 5)
        kind = self.random.randrange(8)
        counters = [name]
        if kind < 3:
            whole = self.counters and self.random.random() < 0.4
            self.put(f"for {name} in range({self.counters[-1] if whole else turns}):")
        elif kind == 3:
            self.put(f"for {name} in range({turns}, {self.one(-3, 0, 2)}, -1):")
        elif kind == 4:
            self.put(f"for {name}, x in enumerate(a):")
        elif kind == 5:
            self.put(f"for x, {name} in zip(a, {self.one('range(30)', 'range(3, 40, 2)')}):")
        else:
            self.put(f"{name} = 0")
            self.put(f"while {name} < {turns}{self.one('', f' and {self.condition()}')}:")
            self.depth += 1
            self.put(f"{name} += 1")
            self.depth -= 1
        self.counters += counters
        self.block(level + 1, 4)
        self.counters.pop()
        if self.random.random() < 0.2:
            self.put("else:")
            self.block(level, 1)

    def text(self) -> str:
        for _ in range(self.random.randrange(1, 3)):
            self.loop(0)
        return (
            "def program(a, b, p, q, x, y):\n    r, s = 1, 0.0\n"
            + "\n".join(self.lines)
            + "\n    return p, q, r, x, y, s\n"
        )

    def arguments(self) -> list[Any]:
        values = random.Random(self.random.random())
        ints, floats = (INTS, FLOATS) if self.wild else (INTS[:10], FLOATS[:5])
        return [
            np.array([values.choice(floats) for _ in range(24)]),
            np.array([values.choice(INTS[:10]) for _ in range(24)]),
            values.choice(ints),
            values.choice(ints),
            values.choice(floats),
            values.choice(floats),
        ]


def _seen(value: Any) -> Any:
    """What can be seen of a value, NaNs and types included."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, [repr(item) for item in value.tolist()]
    if isinstance(value, (tuple, list)):
        return type(value), [_seen(item) for item in value]
    return type(value), repr(value)


def _outcome(f: Callable[..., Any], name: str, arguments: list[Any]) -> Any:
    """Result or error, the frame's locals at the error, arrays, warnings."""
    given = copy.deepcopy(arguments)
    locals_then: Any = None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = _seen(f(*given))
        except Exception as error:
            result = (type(error), str(error))
            trace = error.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code.co_name == name:
                    locals_then = {key: _seen(value) for key, value in trace.tb_frame.f_locals.items()}
                trace = trace.tb_next
    told = [(w.category, str(w.message)) for w in said if "tatara" not in str(w.message)]
    return result, locals_then, [_seen(each) for each in given], told


@pytest.mark.parametrize("group", range(GROUPS))
def test_generated_loops_do_what_the_plain_ones_do(group: int) -> None:
    before = tatara.stats()
    for seed in range(group, PROGRAMS, GROUPS):
        writer = Writer(seed)
        text = writer.text()
        names: dict[str, Any] = {"np": np}
        exec(compile(HELPERS + text, f"program_{seed}", "exec"), names)
        compiled = tatara.compile(names["program"])
        for arguments in (writer.arguments(), writer.arguments()):
            for turn in range(2):
                got = _outcome(compiled, "program", arguments)
                expected = _outcome(names["program"], "program", arguments)
                where = f"seed {seed}, turn {turn}, {arguments}\n{text}"
                assert got[:3] == expected[:3], where
                # What nobody uses is not computed, and does not warn.
                assert all(said in expected[3] for said in got[3]), where
    now = tatara.stats()
    # Most are native: else this test shows nothing.
    assert now["native_loop_runs"] - before["native_loop_runs"] > PROGRAMS // GROUPS
