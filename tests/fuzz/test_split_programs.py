"""Random programs with calls that the compiler refuses in between, in inference and in training, beside eager.

A program is straight code over a growing list of tensors: pointwise operators, views, in-place writes, reductions, stretches
without gradients, and operators of a library. What is compiled before, between and behind those runs as one entry. Values, dtypes, shapes,
strides, which results are views and share memory, which require grad, the inputs after the run and the gradients must agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
Step = tuple[str, int, int, int]


@torch.library.custom_op("tatara_fuzz::opaque", mutates_args=())
def _opaque(x: Tensor) -> Tensor:
    return x.clone() * 2


_opaque.register_fake(lambda x: torch.empty_like(x, memory_format=torch.preserve_format))
_opaque.register_autograd(lambda ctx, g: g * 2)


@torch.library.custom_op("tatara_fuzz::negate", mutates_args={"x"})
def _negate(x: Tensor) -> None:
    x.neg_()


def _negated(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x.detach().clone()
        _negate(y)
    return y


def _without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2 - 1


_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "sin": torch.sin,
    "square": lambda a: a * a * 0.1,
    "where": lambda a: torch.where(a > 0, a, a - 1),
    "clone": torch.clone,
    "detach": torch.detach,
    "opaque": _opaque,
    "negated": _negated,
    "no_grad": _without_gradients,
    "softmax": lambda a: a.softmax(-1) if a.dim() else a.exp(),
}
_VIEW: dict[str, Callable[[Tensor, int], Tensor]] = {
    "t": lambda a, _k: a.transpose(0, -1) if a.dim() > 1 else a.view(-1),
    "select": lambda a, k: a[k % a.shape[0]] if a.dim() > 1 and a.shape[0] else a.view(a.shape),
    "slice": lambda a, k: a[k % 2 :: 1 + k % 2] if a.dim() else a.view(1),
    "expand": lambda a, _k: a.unsqueeze(0).expand(2, *a.shape) if a.dim() < 3 else a,
    "reshape": lambda a, _k: a.reshape(-1),
}
_REDUCE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda a, k: a.sum(k % a.dim()) if a.dim() else a.sum(),
    "amax": lambda a, k: a.amax(k % a.dim()) if a.dim() and a.numel() else a,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"add": torch.add, "mul": torch.mul, "max": torch.maximum}
_INPLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add_": lambda a, b: a.add_(b),
    "copy_": lambda a, b: a.copy_(b),
    "mul_": lambda a, b: a.mul_(b),
}
_ALL = [*_UNARY, *_VIEW, *_REDUCE, *_BINARY, *_INPLACE, "opaque", "opaque", "opaque", "negated"]
_SHAPES = [(3,), (4, 3), (1, 3), (2, 4, 3), (5, 1), (17, 33)]


def _line(step: Step, count: int) -> str:
    """The step as a line of code that makes `v<count>`, or writes."""
    name, i, j, k = step
    a, b = f"v{i % count}", f"v{j % count}"
    if name in _INPLACE:
        return f"{name}({a}, {b})"
    arguments = f"{a}, {k}" if name in _VIEW or name in _REDUCE else f"{a}, {b}" if name in _BINARY else a
    return f"v{count} = {name}({arguments})"


_NAMES = {**_UNARY, **_VIEW, **_REDUCE, **_BINARY, **_INPLACE}


def _inputs(shapes: list[tuple[int, ...]], needs: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randn(shape, generator=generator).requires_grad_(needs and i % 2 == 0) for i, shape in enumerate(shapes)
    ]


def _make_program(seed: int, needs: bool) -> tuple[str, list[tuple[int, ...]]]:
    """The source of a program that eager runs, and the shapes of its inputs."""
    chance = random.Random(seed)
    shapes = [chance.choice(_SHAPES) for _ in range(chance.randint(1, 3))]
    world: dict[str, Any] = dict(_NAMES)
    lines: list[str] = []
    values = _inputs(shapes, needs)
    world.update({f"v{i}": value for i, value in enumerate(values)})
    for _ in range(chance.randint(10, 30)):
        step = (chance.choice(_ALL), chance.randrange(9), chance.randrange(9), chance.randrange(4))
        if step[0] in _INPLACE:
            a, b = values[step[1] % len(values)], values[step[2] % len(values)]
            # Of a tensor with itself, or one that repeats in memory, torch says nothing that programs rely on.
            if any(s == 0 for s in a.stride()) or a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
                continue
        line = _line(step, len(values))
        try:
            exec(line, world)
        except RuntimeError:
            continue
        if step[0] not in _INPLACE:
            made = world[f"v{len(values)}"]
            if made.numel() > 5000 or made.dim() > 4:
                continue
            values.append(made)
        lines.append(line)
    inputs = ", ".join(f"v{i}" for i in range(len(shapes)))
    made_names = ", ".join(f"v{i}" for i in range(len(shapes), len(values)))
    return "\n    ".join([f"def program({inputs}):", *lines, f"return [{made_names}]"]), shapes


def _results(run: Callable[..., Any], shapes: list[tuple[int, ...]], needs: bool) -> Any:
    """Results, inputs after the run, gradients or why there are none."""
    inputs = _inputs(shapes, needs)
    torch.manual_seed(0)
    results = run(*inputs)
    roots = [each for each in results if each.requires_grad]
    leaves = [each for each in inputs if each.requires_grad and each.is_leaf]
    gradients: list[Tensor | None] = []
    error = ""
    if roots and leaves:
        try:
            total = sum((each.square().sum() for each in roots), torch.zeros(()))
            gradients = list(torch.autograd.grad(total, leaves, allow_unused=True))
        except RuntimeError as problem:
            error = str(problem).split(":")[0]
    return inputs, results, gradients, error


def _storages(tensors: list[Tensor]) -> list[int]:
    pointers = [each.untyped_storage().data_ptr() for each in tensors]
    return [pointers.index(each) for each in pointers]


def _check(found: Any, expected: Any) -> None:
    for ours, theirs in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
        assert (ours.dtype, ours.shape, ours.requires_grad) == (theirs.dtype, theirs.shape, theirs.requires_grad)
        assert all(n <= 1 or a == b for n, a, b in zip(theirs.shape, ours.stride(), theirs.stride(), strict=True))
        # What is a view of a tensor that nobody else has may be that tensor.
        assert theirs._is_view() or not ours._is_view()
        torch.testing.assert_close(ours.detach(), theirs.detach(), equal_nan=True, atol=1e-4, rtol=1e-4)
    assert _storages([*found[0], *found[1]]) == _storages([*expected[0], *expected[1]])
    if expected[
        3
    ]:  # a write has spoiled what eager saved: where it stands behind a graph, our graph may have saved less
        return
    assert found[3] == ""
    for ours, theirs in zip(found[2], expected[2], strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, equal_nan=True, atol=1e-3, rtol=1e-3)


def run_program(seed: int, needs: bool) -> None:
    source, shapes = _make_program(seed, needs)
    world: dict[str, Any] = dict(_NAMES)
    exec(source, world)
    program = world["program"]
    expected = _results(program, shapes, needs)
    compiled = tatara.compile(program)
    for _ in range(3):
        _check(_results(compiled, shapes, needs), expected)
    tatara.reset()


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_program_equals_eager(seed: int, needs: bool) -> None:
    run_program(seed, needs)
