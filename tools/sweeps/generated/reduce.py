"""Makes a program that differs smaller: steps and lines are left out as long as the same kind of difference stays."""

from __future__ import annotations

import ast
import dataclasses
import time

from . import harness
from .harness import Program


def _kind(error: harness.Differs) -> tuple[object, ...]:
    """What differs, without where and by how much, so that reducing does not end at another fault."""
    text = str(error).split("): ", 1)[-1]
    found, _, compiled = text.partition(", compiled ")
    heads = []
    for part in (found.removeprefix("eager "), compiled):
        head = part.split("tensor(")[0].split(",")
        heads.append(tuple(word for word in head[1:] if not word.strip(" ()").lstrip("-").isdigit()))
    return tuple(heads)


def difference(program: Program) -> tuple[object, ...] | None:
    """The kind of difference between the compiled program and eager's; None: none, or it is no program."""
    try:
        ast.parse(program.source)
        harness.compare(program)
    except harness.Differs as error:
        return _kind(error)
    except Exception:  # a program without its parts: of no interest
        return None
    return None


def reduce(program: Program, seconds: float) -> Program:
    """The smallest program found in this time that differs in the same way."""
    end = time.monotonic() + seconds
    wanted = difference(program)
    if wanted is None:
        return program
    size = max(len(program.source.splitlines()), len(program.steps)) // 2
    while size >= 1 and time.monotonic() < end:
        smaller = False
        for part in ("steps", "source"):
            at = 0
            while time.monotonic() < end:
                items = list(program.steps) if part == "steps" else program.source.splitlines()
                if at >= len(items):
                    break
                left = items[:at] + items[at + size :]
                tried = dataclasses.replace(program, **{part: tuple(left) if part == "steps" else "\n".join(left)})
                if difference(tried) == wanted:
                    program, smaller = tried, True
                else:
                    at += size
        if not smaller:
            size //= 2
    return program
