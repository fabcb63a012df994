"""What generators of function bodies share: names, blocks, loops and branches. Which statements there are is theirs."""

from __future__ import annotations

import abc
import random


class Body(abc.ABC):
    """Makes the statements of functions."""

    most = 3  # statements of an inner block

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.functions: list[str] = []
        self.names = 0

    @abc.abstractmethod
    def statement(self, v: str, depth: int) -> list[str]:
        """A statement that changes the variable `v`, as lines."""

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def block(self, v: str, depth: int) -> list[str]:
        """Statements that change the variable `v`."""
        lines: list[str] = []
        for _ in range(self.rng.randint(1, self.most if depth else 4)):
            lines += self.statement(v, depth)
        return lines

    def whole(self, v: str) -> list[str]:
        """The body of a program's function: no fewer than three lines."""
        lines = self.block(v, 0)
        while len(lines) < 3:
            lines += self.block(v, 0)
        return lines

    @staticmethod
    def indent(lines: list[str]) -> list[str]:
        return ["    " + line for line in lines]

    def turns(self) -> int:
        """Of a loop."""
        return 2

    def looped(self, v: str, depth: int) -> list[str]:
        step = self.name("k")
        body = self.block(v, depth)
        if self.rng.random() < 0.3:
            body.append(f"if {step} == 1: break")
        return [f"for {step} in range({self.turns()}):", *self.indent(body)]

    def branch(self, test: str, otherwise: float, v: str, depth: int) -> list[str]:
        """An `if`, and with the probability `otherwise` an `else`."""
        lines = [f"if {test}:", *self.indent(self.block(v, depth))]
        if self.rng.random() < otherwise:
            lines += ["else:", *self.indent(self.block(v, depth))]
        return lines
