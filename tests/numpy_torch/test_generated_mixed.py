"""Random programs of tensors and arrays that share memory, with writes on both sides, draws and gradients."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")

from test_mixed_programs import flat, same, sharing  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

TENSOR_STEPS = [
    "{n} = {t} * 2 + 1",
    "{n} = torch.sin({t})",
    "{n} = {t} + {u}",
    "{n} = {t}.t()",
    "{n} = {t}[1:3]",
    "{n} = {t}.clone()",
    "{t}.mul_(1.5)",
    "{t}[0] = 2.0",
    "{t}[:, 1].add_(1)",
    "{t}.copy_({u}) if {t}.shape == {u}.shape else None",
    "{n} = torch.rand(4, 4) * {t}.sum()",
    "{n} = {t} - {t}.mean()",
    "{n} = {t}.reshape(-1)[:4].view(2, 2)",
]
ARRAY_STEPS = [
    "{n} = {a} * 2 - 1",
    "{n} = np.sin({a})",
    "{n} = {a}.T",
    "{n} = {a}[1:3]",
    "{n} = {a}.copy()",
    "{a} *= 1.5",
    "{a}[0] = 3.0",
    "{a}[:, 1] += 1",
    "np.multiply({a}, 2, out={a})",
    "{n} = {a} - {a}.mean()",
    "{n} = np.random.rand(*{a}.shape) + {a}",
    "{n} = np.concatenate([{a}, {a}])",
    "{n} = np.cumsum({a}, axis=0)",
    "{n} = np.sort({a}, axis=0)",
]
CROSSINGS = [
    "{b} = {t}.numpy()",
    "{b} = {t}.detach().cpu().numpy()",
    "{b} = np.asarray({t})",
    "{b} = np.maximum({t}.numpy(), 0.3)",
    "{m} = torch.from_numpy({a})",
    "{m} = torch.as_tensor({a})",
    "{m} = torch.tensor({a})",
    "{m} = {t} * np.mean({a})",
    "{m} = {t}[np.array([1, 0])]",
    "{m} = torch.from_numpy({a}.copy()).to({t}.dtype)",
]


def generated(seed: int, gradients: bool) -> str:
    rng = random.Random(seed)
    tensors, arrays, lines = ["x", "y"], ["p"], []
    for i in range(rng.randint(6, 14)):
        kind = rng.choice([TENSOR_STEPS, ARRAY_STEPS, CROSSINGS, CROSSINGS])
        step = rng.choice(kind)
        t, u, a = rng.choice(tensors), rng.choice(tensors), rng.choice(arrays)
        new = f"v{i}"
        line = step.format(t=t, u=u, a=a, n=new, b=new, m=new)
        made = line.startswith(new)
        lines.append(line)
        if made:
            is_array = "{b}" in step or kind is ARRAY_STEPS
            (arrays if is_array else tensors).append(new)
    if gradients:
        lines.append("g = (w * x.detach()).sum() + w[0].sin().sum()")
        lines.append("h = torch.from_numpy(p) if p.ndim else None")
        lines.append("g = g * 2")
    result = ", ".join((["g"] if gradients else []) + tensors + arrays)
    return "def program(x, y, p, w):\n    " + "\n    ".join(lines) + f"\n    return [{result}]\n"


def outcome(function: Any, seed: int) -> Any:
    g = torch.Generator().manual_seed(11)
    x, y = torch.rand(4, 4, generator=g), torch.rand(4, 4, generator=g)
    p = np.random.RandomState(3).rand(4, 4)
    x.add_(seed * 0.1)
    w = torch.linspace(-1, 1, 4).requires_grad_()
    torch.manual_seed(seed)
    np.random.seed(seed)
    try:
        result = flat(function(x, y, p, w))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return [type(error).__name__, x, y, p]
    if result and isinstance(result[0], torch.Tensor) and result[0].requires_grad:
        result[0].backward()
        result.append(w.grad)
    shared = sharing([*result, x, y, p])
    return [*result, x, y, p, shared, np.random.rand(), float(torch.rand(1))]


@pytest.mark.parametrize("block", range(8))
def test_generated_programs(block: int) -> None:
    warnings.simplefilter("ignore")
    for seed in range(block * 15, block * 15 + 15):
        source = generated(seed, seed % 3 == 0)
        space: dict[str, Any] = {"torch": torch, "np": np}
        exec(compile(source, f"<generated {seed}>", "exec"), space)
        program = space["program"]
        tatara.reset()
        compiled = tatara.compile(program)
        for call in range(3):
            want, got = outcome(program, call), outcome(compiled, call)
            try:
                assert len(want) == len(got)
                for w, g in zip(want, got, strict=True):
                    same(w, g, 5e-6)  # sums of float32 that were widened
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, call {call}: {error}\n{source}") from error
