"""Random tensor programs (views, in-place writes, broadcasts, dtypes, reductions), compiled, beside eager.

A program is a list of steps over a growing list of tensors. It runs twice on equal inputs, in eager and compiled; values, dtypes,
shapes, strides, aliasing between results and inputs, and the inputs after the run must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
tatara = pytest.importorskip("tatara")

Tensor = Any
Step = tuple[str, int, int, int]

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": lambda a: -a,
    "abs": torch.abs,
    "square": lambda a: a * a,
    "to_f32": lambda a: a.to(torch.float32),
    "to_f64": lambda a: a.to(torch.float64),
    "to_bf16": lambda a: a.to(torch.bfloat16),
    "sign": torch.sign,
    "relu": torch.relu,
    "where": lambda a: torch.where(a > 0, a, a - 1),
    "contiguous": lambda a: a.contiguous(),
    "clone": lambda a: a.clone(),
}

_VIEW: dict[str, Callable[[Tensor, int], Tensor]] = {
    "t": lambda a, _k: a.transpose(0, -1) if a.dim() > 1 else a.view(-1),
    "select": lambda a, k: a[k % a.shape[0]] if a.dim() > 1 and a.shape[0] else a.view(a.shape),
    "slice": lambda a, k: a[k % 2 :: 1 + k % 2] if a.dim() else a.view(1),
    "unsqueeze": lambda a, k: a.unsqueeze(k % (a.dim() + 1)) if a.dim() < 4 else a,
    "expand": lambda a, _k: a.unsqueeze(0).expand(2, *a.shape) if a.dim() < 3 else a,
    "reshape": lambda a, _k: a.reshape(-1),
    "flip": lambda a, _k: a.flip(0) if a.dim() else a,
    "diagonal": lambda a, _k: a.diagonal() if a.dim() == 2 else a,
}

_REDUCE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda a, k: a.sum(k % a.dim()) if a.dim() else a.sum(),
    "sum_keep": lambda a, k: a.sum(k % a.dim(), keepdim=True) if a.dim() else a.sum(),
    "amax": lambda a, k: a.amax(k % a.dim()) if a.dim() and a.numel() else a,
    "cumsum": lambda a, k: a.cumsum(k % a.dim()) if a.dim() else a,
    "argmax": lambda a, _k: a.argmax() if a.numel() else a,
}

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": torch.maximum,
    "less": lambda a, b: a < b,
}

_INPLACE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add_": lambda a, b: a.add_(b),
    "copy_": lambda a, b: a.copy_(b),
    "mul_": lambda a, b: a.mul_(b),
    "zero_": lambda a, _b: a.zero_(),
}

_ALL = [*_UNARY, *_VIEW, *_REDUCE, *_BINARY, *_INPLACE]


def _apply(values: list[Tensor], step: Step) -> None:
    """Runs one step; steps that eager refuses (shapes that do not broadcast, say) leave the values alone."""
    name, i, j, k = step
    a, b = values[i % len(values)], values[j % len(values)]
    if name in _UNARY:
        if a.dtype == torch.bool and name in ("neg", "sign", "relu", "abs", "where", "square"):
            return
        values.append(_UNARY[name](a))
    elif name in _VIEW:
        values.append(_VIEW[name](a, k))
    elif name in _REDUCE:
        if a.dtype == torch.bool and name in ("amax", "argmax"):
            return
        values.append(_REDUCE[name](a, k))
    elif a.dtype != torch.bool and b.dtype != torch.bool:
        try:
            shape = torch.broadcast_shapes(a.shape, b.shape)
        except RuntimeError:
            return
        if name in _BINARY:
            if len(shape) <= 4:
                values.append(_BINARY[name](a, b))
        elif shape == a.shape and torch.can_cast(torch.result_type(a, b), a.dtype):
            overlapping = any(s == 0 and n > 1 for s, n in zip(a.stride(), a.shape))
            if not overlapping:
                _INPLACE[name](a, b)


def _program(steps: list[Step]) -> Callable[..., list[Tensor]]:
    def run(*inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for step in steps:
            _apply(values, step)
        return values[len(inputs) :]

    return run


_DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.float16]

_steps = st.lists(
    st.tuples(st.sampled_from(_ALL), st.integers(0, 7), st.integers(0, 7), st.integers(0, 3)), min_size=1, max_size=8
)
_inputs = st.lists(
    st.tuples(st.sampled_from([(), (3,), (4, 3), (1, 3), (2, 4, 3), (5, 1), (17, 33)]), st.sampled_from(_DTYPES)),
    min_size=1,
    max_size=3,
)


def _make(spec: list[tuple[tuple[int, ...], Any]]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(-4, 5, shape, generator=generator).to(dtype) for shape, dtype in spec]


def _storages(tensors: list[Tensor]) -> list[int]:
    """Storage of each tensor, as the position of the first tensor that shares it (empty storages share nothing)."""
    pointers = [t.untyped_storage().data_ptr() or -1 - n for n, t in enumerate(tensors)]
    return [pointers.index(p) for p in pointers]


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(_steps, _inputs)
def test_program_equals_eager(steps: list[Step], spec: list[tuple[tuple[int, ...], Any]]) -> None:
    program = _program(steps)
    eager_inputs, our_inputs = _make(spec), _make(spec)
    with torch.no_grad():
        expected = program(*eager_inputs)
        compiled = tatara.compile(program)
        actual = compiled(*our_inputs)
        again_inputs = _make(spec)
        again = compiled(*again_inputs)
    for results, inputs in ((actual, our_inputs), (again, again_inputs)):
        assert len(results) == len(expected)
        for ours, theirs in zip([*results, *inputs], [*expected, *eager_inputs]):
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            for d, size in enumerate(theirs.shape):
                assert size <= 1 or theirs.numel() == 0 or ours.stride(d) == theirs.stride(d)
            torch.testing.assert_close(ours, theirs, equal_nan=True)
        assert _storages([*inputs, *results]) == _storages([*eager_inputs, *expected])
    tatara.reset()
