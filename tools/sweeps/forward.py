"""`make opinfo-forward`: torch.func.jvp over every OpInfo entry with forward derivatives inside of compiled code, beside eager's.

The tensors that a sample wants gradients for get random tangents. Compared are results and their tangents: exception or
values, dtype, shape, strides, aliasing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

import samples
from vmap import as_sample, check_with, of_tensors, run

DTYPES = ["float64", "complex128"]


def _differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def tangents_of(op: Any, sample: Any) -> Iterator[tuple[Any, Any]]:
    """The sample as a function of its tensors and of tangents of those that want gradients."""
    call, tensors = of_tensors(op, sample)
    wanted = [i for i, t in enumerate(tensors) if t.requires_grad]
    if not wanted:
        return
    plain = [t.detach() for t in tensors]
    tangents = samples.cotangents([plain[i] for i in wanted], 1)

    def pushed(*args: torch.Tensor) -> Any:
        own = list(args[: len(plain)])

        def results(*primals: torch.Tensor) -> tuple[torch.Tensor, ...]:
            filled = list(own)
            for place, primal in zip(wanted, primals, strict=True):
                filled[place] = primal
            output = sample.output_process_fn_grad(call(*filled))
            return tuple(t for t in samples.leaves(output) if _differentiable(t))

        return torch.func.jvp(results, tuple(own[i] for i in wanted), tuple(args[len(plain) :]))

    yield as_sample(op, pushed, [*plain, *tangents])


def check_entry(op: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs the samples (at most `limit`) of an entry in a dtype."""
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", getattr(torch, dtype_name), requires_grad=True)
    return check_with(tangents_of, itertools.islice(made, limit), op, dtype_name, progress)


def _has(op: Any, dtype: str) -> bool:
    return bool(op.supports_forward_ad) and getattr(torch, dtype) in op.supported_backward_dtypes("cpu")


if __name__ == "__main__":
    sys.exit(run(check_entry, DTYPES, _has, "forward", __doc__))
