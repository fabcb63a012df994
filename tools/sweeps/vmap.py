"""`make opinfo-vmap`: torch.vmap over every OpInfo entry inside of compiled code, beside eager's.

Each tensor of a sample gets a batch of two, itself and itself with all dimensions turned round, in three ways: all tensors
batched in front; the first one alone, along its last dimension; every other one. Compared is what `make opinfo` compares:
exception or values, dtype, shape, strides, aliasing, what happened to the inputs, the state of the random generator.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import samples
import sweep

DTYPES = ["float32", "int64", "complex64"]


def of_tensors(op: Any, sample: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """The entry's function of a sample's tensors alone, and these."""
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        filled = list(flat)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        value, args, kwargs = tree_unflatten(filled, spec)
        return op.op(value, *args, **kwargs)

    return call, [flat[place] for place in places]


def as_sample(op: Any, function: Callable[..., Any], tensors: list[torch.Tensor]) -> tuple[Any, Any]:
    """An entry and a sample of it that stand for the function of these tensors."""
    return SimpleNamespace(op=function, name=op.name), SimpleNamespace(
        input=tensors[0], args=tuple(tensors[1:]), kwargs={}
    )


def _batched(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    other = tensor.flip(*range(tensor.dim())) if tensor.dim() else tensor.clone()
    return torch.stack([tensor, other], dim)


def variations(op: Any, sample: Any) -> Iterator[tuple[Any, Any]]:
    """The ways to batch a sample's tensors."""
    call, tensors = of_tensors(op, sample)
    if any(t.layout != torch.strided for t in tensors):
        return
    seen = set()
    for in_dims in (
        tuple(0 for _ in tensors),
        tuple(t.dim() if i == 0 else None for i, t in enumerate(tensors)),
        tuple(None if i % 2 == 0 else 0 for i, _ in enumerate(tensors)),
    ):
        if in_dims in seen or all(d is None for d in in_dims):
            continue
        seen.add(in_dims)
        batched = [t if d is None else _batched(t, d) for t, d in zip(tensors, in_dims, strict=True)]

        def mapped(*args: torch.Tensor, in_dims: tuple[int | None, ...] = in_dims) -> Any:
            return torch.vmap(call, in_dims=in_dims, randomness="different")(*args)

        yield as_sample(op, mapped, batched)


def check_with(
    make: Callable[[Any, Any], Iterator[tuple[Any, Any]]], made: Any, op: Any, dtype_name: str, progress: Any
) -> dict[str, Any]:
    """The row of an entry whose samples become those that `make` gives."""

    def check(sample: Any, number: int, row: dict[str, Any]) -> str | None:
        for which, (entry, changed) in enumerate(make(op, sample)):
            if problem := samples._check(entry, changed, number, row, progress):
                return f"way {which}: {problem}"
        return None

    return samples.run_samples(op.formatted_name, dtype_name, made, check, 4)


def check_entry(op: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs the samples (at most `limit`) of an entry in a dtype."""
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", getattr(torch, dtype_name), requires_grad=False)
    return check_with(variations, itertools.islice(made, limit), op, dtype_name, progress)


def run(check: Any, dtypes: list[str], has: Callable[[Any, str], bool], name: str, doc: str | None) -> int:
    """The command of a sweep over all entries that have a dtype."""
    arguments = sweep.parser_of(doc, dtypes, f"build/opinfo-{name}.jsonl").parse_args()
    return sweep.run_having(has, arguments, check, f"{name}.py")


def _has(op: Any, dtype: str) -> bool:
    return getattr(torch, dtype) in op.supported_dtypes("cpu")


if __name__ == "__main__":
    sys.exit(run(check_entry, DTYPES, _has, "vmap", __doc__))
