"""The first programs of each class of generated programs; `make fuzz` runs thousands."""

from __future__ import annotations

import pathlib
import sys

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from generated import harness, registry  # noqa: E402

PROGRAMS = 40
# Classes of which some programs still differ: `make fuzz` runs them.
DIFFERS = {"lifetimes": "objects that other objects hold end later than in eager (6 of 100)"}


@pytest.mark.parametrize("name", [name for name in registry.classes() if name not in DIFFERS])
def test_programs_do_what_eager_does(name: str) -> None:
    for seed in range(PROGRAMS):
        program = registry.make(name, seed)
        try:
            harness.compare(program)
        except harness.Differs as error:
            pytest.fail(f"{name}, seed {seed}: {error}\n{program.text()}")
