"""The first programs of each class of generated programs; `make fuzz` runs thousands."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from generated import harness, registry  # noqa: E402

PROGRAMS = 40
# Loops take a second or two each.
FEWER = {
    "loops": 12,
    "gradients_of_loops": 6,
    "second_gradients_of_loops": 8,
    "numpy_loops": 20,
    "wrapped_numpy_loops": 20,
}
# Classes of which some programs still differ: `make fuzz` runs them.
DIFFERS = {"lifetimes": "objects that other objects hold end later than in eager (6 of 100)"}
# Programs that once differed, and what it was.
FOUND = {
    ("numbers", 295): "a NaN that was a key had another hash in each call",
    ("numbers", 1616): "id() of equal small numbers",
    ("back_to_eager", 3151): "an index out of bounds in a call whose result nobody needs",
    ("control_flow", 351): "the exception that is handled where a graph breaks",
    ("control_flow", 1005): "a generator that ended late behind a break",
    ("levels", 85): "a generator of torch.func that was closed after a look",
}


@pytest.mark.parametrize("name", [name for name in registry.classes() if name not in DIFFERS])
def test_programs_do_what_eager_does(name: str) -> None:
    for seed in range(FEWER.get(name, PROGRAMS)):
        program = registry.make(name, seed)
        try:
            harness.compare(program)
        except harness.Differs as error:
            pytest.fail(f"{name}, seed {seed}: {error}\n{program.text()}")


@pytest.mark.parametrize(("name", "seed"), FOUND, ids=lambda part: str(part))
def test_programs_that_once_differed(name: str, seed: int) -> None:
    harness.compare(registry.make(name, seed))
