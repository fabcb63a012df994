"""`make opinfo-consumed`: every OpInfo entry with a kernel that reads its results, in one graph, beside eager's.

What an operator gives may be right where it leaves a graph and wrong where kernels read it: results that are lazily conjugated,
laid out in another way than was inferred, or views. Compared is what `make opinfo` compares.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

import samples
import vmap

DTYPES = ["bool", "int64", "float32", "complex64"]


def _read(tensor: torch.Tensor) -> torch.Tensor:
    """By a kernel, and another one that reads it turned round."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        return tensor
    turned = tensor.t() if tensor.dim() == 2 else tensor
    return torch.stack([turned.logical_not(), turned]) if tensor.dtype == torch.bool else turned + turned


def variations(op: Any, sample: Any) -> Iterator[tuple[Any, Any]]:
    """The sample, whose results are read beside what they are."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = op.op(*args, **kwargs)
        return result, [_read(tensor) for tensor in samples.leaves(result)]

    yield SimpleNamespace(op=call, name=op.name), sample


def check_entry(op: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs the samples (at most `limit`) of an entry in a dtype."""
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", getattr(torch, dtype_name), requires_grad=False)
    return vmap.check_with(variations, itertools.islice(made, limit), op, dtype_name, progress)


if __name__ == "__main__":
    sys.exit(vmap.run(check_entry, DTYPES, vmap._has, "consumed", __doc__))
