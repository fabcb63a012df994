"""Straight-line arithmetic on tensors: shows that the harness itself works."""

from __future__ import annotations

import random

from .harness import Program
from .registry import program_class


@program_class("arithmetic")
def arithmetic(rng: random.Random) -> Program:
    """A few operators in a row."""
    lines = ["import torch", "def f(x, y):"]
    names = ["x", "y"]
    for k in range(rng.randint(1, 6)):
        op = rng.choice(
            ["{a} + {b}", "{a} * {b}", "torch.sin({a})", "{a} - {n}", "torch.maximum({a}, {b})", "{a}.sum()"]
        )
        lines.append(f"    v{k} = " + op.format(a=rng.choice(names), b=rng.choice(names), n=rng.randint(1, 9)))
        names.append(f"v{k}")
    lines.append(f"    return {names[-1]}, {rng.choice(names)}")
    lines += ["x = torch.randn(3, 4)", "y = torch.randn(4)"]
    return Program("\n".join(lines), ("f(x, y)", "f(x, y)", "f(y, x)", "x.mul_(2)", "f(x, y)"))
