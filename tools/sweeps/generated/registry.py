"""The classes of programs: each is a function from a random number generator to a program."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable

from .harness import Program

Generator = Callable[[random.Random], Program]
_CLASSES: dict[str, Generator] = {}


def program_class(name: str) -> Callable[[Generator], Generator]:
    """Registers a generator of programs under a name."""

    def register(generator: Generator) -> Generator:
        assert name not in _CLASSES, name
        _CLASSES[name] = generator
        return generator

    return register


def classes() -> dict[str, Generator]:
    """All classes, from all modules beside this one whose names begin with `class_`."""
    package = importlib.import_module(__package__ or "generated")
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("class_"):
            importlib.import_module(f"{package.__name__}.{info.name}")
    return dict(sorted(_CLASSES.items()))


def make(name: str, seed: int) -> Program:
    """The program of a class that a seed stands for."""
    return classes()[name](random.Random(f"{name} {seed}"))
