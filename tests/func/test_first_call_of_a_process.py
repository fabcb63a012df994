"""What a process asks torch once, at the first call, it may ask below a transform or a mode of the program's."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLACES = {
    "grad": "torch.func.grad(lambda w: f(w).sum())(x)",
    "vmap": "torch.func.vmap(f)(x[None])",
    "jvp": "torch.func.jvp(f, (x,), (x,))[1]",
    "inference": "inside(torch.inference_mode())",
    "fake": "inside(torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True))",
}

PROGRAM = """
import torch
import tatara

def program(a):
    return a * a * 3

x = torch.tensor([0.5, -1.0, 2.0])

def inside(mode):
    with mode:
        return f(x)

f = program
expected = {place}
f = tatara.compile(program)
for _ in range(3):
    got = {place}
    assert type(got) is type(expected) and got.shape == expected.shape and got.device == expected.device
    if "Fake" not in type(got).__name__:
        torch.testing.assert_close(got, expected)
for _ in range(3):
    torch.testing.assert_close(f(x), program(x))
assert tatara.stats()["kernels_launched"] > 0
"""


@pytest.mark.parametrize("place", PLACES)
def test_below(place: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(place=PLACES[place])], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr[-2000:]
