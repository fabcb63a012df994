"""The memory of a first call, which runs what was traced with the host: a result lives as long as in eager, not as the trace."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import forked
import tatara

SIZE = 4 << 20  # bytes of one tensor
STEPS = 48

PROGRAMS = {
    "chain": """
for _ in range(STEPS):
    x = torch.sin(x) + 1
return x
""",
    "variables": """
for _ in range(STEPS // 3):
    a = torch.sin(x)
    b = a * 2
    x = a - b
return x, b
""",
    "views": """
for _ in range(STEPS // 3):
    y = (x + 1).view(1024, -1).t()
    x = torch.cos(y.reshape(-1)).view_as(x)
return x
""",
    "parts": """
for _ in range(STEPS // 4):
    a, b = torch.sin(x).chunk(2)
    x = torch.cat([b * 2, a])
return x
""",
    "in_place": """
for _ in range(STEPS // 3):
    y = x * 0.5
    y.add_(1).mul_(x)
    x = y.relu()
return x
""",
    "inner_functions": """
def inner(v, depth):
    w = torch.tanh(v)
    return inner(w + v, depth - 1) if depth else w
for _ in range(6):
    x = inner(x, 6)
return x
""",
    "kept_for_a_while": """
kept = []
for _ in range(STEPS):
    kept.append(torch.exp(-x * x))
    x = sum(kept[-2:])
    if len(kept) > 2:
        kept.pop(0)
return x, kept
""",
    "weights": """
for layer in layers:
    x = torch.nn.functional.gelu(layer(x.view(-1, 1024)))
return x.view(-1)
""",
    "several_results": """
for _ in range(STEPS // 4):
    values, places = torch.sort(x.view(1024, -1), dim=1)
    x = values.reshape(-1) + places.reshape(-1)[:1]
return x
""",
    "numbers": """
total = 0.0
for _ in range(STEPS // 2):
    x = torch.cos(x) - 1
    total = total + float((x * 2 + 1).sum())
return x, total
""",
    "before_a_break": """
for _ in range(STEPS // 2):
    x = torch.sin(x) + 1
unknown(x)
for _ in range(STEPS // 2):
    x = torch.cos(x) - 1
return x
""",
    "caught_error": """
for _ in range(STEPS // 2):
    x = torch.sin(x) + 1
try:
    x @ torch.ones(3, 3)
except RuntimeError:
    x = x * 2
for _ in range(STEPS // 2):
    x = torch.cos(x) - 1
return x
""",
}

RUN = """
import ctypes, json, sys
import torch
import tatara
SIZE, STEPS = {size}, {steps}
ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD: what is freed goes back to the system at once
torch.set_num_threads(1)
torch.manual_seed(0)
tatara.compile(lambda x: x * 2 + 1)(torch.rand(100))  # what compiling takes once for a process
layers = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(12))
unknown = tatara.disable(lambda x: x.sum())

def peak(run):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is what is there now
    def high():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
    before = high()
    result = run()
    return high() - before, result

answers = {{}}
for name, text in json.loads(sys.argv[1]).items():
    scope = dict(globals())
    exec("def program(x):\\n" + "".join("    " + line + "\\n" for line in text.strip().splitlines()), scope)
    program = scope["program"]
    compiled = tatara.compile(program)
    x = torch.rand(SIZE // 4)
    with {mode}:
        program(x)
        eager, expected = peak(lambda: program(x))
        first, result = peak(lambda: compiled(x))
        torch.testing.assert_close(result, expected)
        second, result = peak(lambda: compiled(x))
        torch.testing.assert_close(result, expected)
    answers[name] = [eager, first, second]
print(json.dumps(answers))
"""


@pytest.mark.parametrize("mode", ["torch.no_grad()", "torch.inference_mode()"])
def test_first_calls_take_about_the_memory_of_eager(mode: str, tmp_path: Path) -> None:
    source = RUN.format(size=SIZE, steps=STEPS, mode=mode)
    environment = {**os.environ, "TATARA_CACHE_DIR": str(tmp_path / "cache")}
    done = forked.run(["-c", source, json.dumps(PROGRAMS)], env=environment)
    assert done.returncode == 0, done.stderr
    for name, (eager, first, second) in json.loads(done.stdout.splitlines()[-1]).items():
        # What was traced takes 24 to 96 times SIZE, where all of it is kept.
        assert first <= eager + 10 * SIZE, (name, eager / SIZE, first / SIZE)
        assert second <= eager + 10 * SIZE, (name, eager / SIZE, second / SIZE)


class Holder:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class Noting(Holder):
    """What it holds is read when the object ends."""

    seen: list[float]

    def __del__(self) -> None:
        self.seen.append(float(self.value.detach().sum()))


def made(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def in_a_list(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    world.append(made(x))
    return x + 1


def in_an_attribute(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    holder = Holder(made(x))
    world.append(holder)
    return x + 1


def in_a_closure(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    value = made(x)
    world.append(lambda: value)
    return x + 1


def in_a_generator(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    def steps() -> Any:
        value = made(x)
        yield value + 1
        yield value + 2

    generator = steps()
    world.append(next(generator))
    world.append(generator)
    return x + 1


def a_view_alone(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    world.append(made(x).view(2, -1)[1])
    return x + 1


def its_base_alone(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    base = made(x)
    base[1:].mul_(2)
    world.append(base)
    return x + 1


def in_an_exception(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    try:
        raise ValueError(made(x))
    except ValueError as error:
        world.append(error)
    return x + 1


def in_an_object_that_ends(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    Noting.seen = world
    Noting(made(x))
    return x + 1


def behind_a_weak_reference(x: torch.Tensor, world: list[Any]) -> torch.Tensor:
    value = made(x)
    reference = weakref.ref(value)
    del value
    world.append(reference() is None)
    return x + 1


def flat(entry: Any) -> Any:
    if isinstance(entry, torch.Tensor):
        return entry.tolist()
    if isinstance(entry, Holder):
        return entry.value.tolist()
    if isinstance(entry, BaseException):
        return flat(entry.args[0])
    if callable(entry):
        return flat(entry())
    return [flat(each) for each in entry] if hasattr(entry, "__next__") else entry


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        in_a_list, in_an_attribute, in_a_closure, in_a_generator, a_view_alone, its_base_alone, in_an_exception,
        in_an_object_that_ends, behind_a_weak_reference,
    ],
)  # fmt: skip
def test_what_the_program_keeps_has_its_value(program: Callable[..., torch.Tensor], gradients: bool) -> None:
    compiled = tatara.compile(program)
    with torch.set_grad_enabled(gradients):
        for call in range(3):
            x = torch.arange(4.0) + call
            x.requires_grad_(gradients)
            expected_world: list[Any] = []
            world: list[Any] = []
            expected, result = program(x, expected_world), compiled(x, world)
            torch.testing.assert_close(result, expected)
            assert [flat(each) for each in world] == [flat(each) for each in expected_world]
