"""`make modules`: every entry of torch's `module_db`, compiled, beside eager, forward and backward.

Each sample of an entry makes a module and calls it four times with the same input, in training and in evaluation mode with
gradients, and in evaluation mode without. Compared after each call: the exception or the results (values, dtype, shape,
strides, which require grad), gradients of parameters and inputs under random cotangents (in the third call added to those of
the second), inputs and buffers afterwards. Nothing may be compiled after the second call.
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

import samples
import steps
import sweep
import tatara

DTYPES = ["float32", "float64"]
CALLS = 4
# training, gradients
MODES = {"train": (True, True), "eval": (False, True), "no_grad": (False, False)}
HEAD = """
# Modules

torch's own suite of modules (`module_db`). Every sample runs in training and evaluation mode with gradients, and in
evaluation mode without. Each makes four calls. Compared with eager: results, gradients of parameters and inputs, buffers,
exceptions.
"""


def entries_by_name() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.formatted_name: info for info in module_db}


def _samples(info: Any, dtype: torch.dtype) -> Iterator[tuple[str, Any]]:
    """The modes take turns, so that a limit leaves some of each."""
    by_mode = []
    for mode, (training, gradients) in MODES.items():
        if mode == "eval" and not info.train_and_eval_differ:
            continue
        torch.manual_seed(0)
        made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=gradients, training=training)
        by_mode.append([(mode, item) for item in made if item.forward_input is not None])
    for turn in itertools.zip_longest(*by_mode):
        yield from (sample for sample in turn if sample is not None)


def _stepper(module: Any, call: Callable[..., Any], given: Any, gradients: bool, seed: int) -> steps.Step:
    """Calls with fresh copies of the input, and goes backward."""

    def step(number: int) -> dict[str, Any]:
        args, kwargs = samples.fresh(given)
        if number != 2:
            module.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        with torch.set_grad_enabled(gradients):
            result = call(*args, **kwargs)
        roots = [t for t in samples.leaves(result) if t.requires_grad]
        done: dict[str, Any] = {
            "forward": (samples.detached(result), [t.requires_grad for t in samples.leaves(result)])
        }
        if roots:
            torch.autograd.backward(roots, samples.cotangents(roots, seed))
            tensors = [*module.parameters(), *samples.leaves((args, kwargs))]
            done["backward"] = [None if t.grad is None else t.grad.clone() for t in tensors if t.is_leaf]
        inputs = samples.detached((args, kwargs))
        done["state"] = (inputs, {k: v.detach().clone() for k, v in module.state_dict().items()})
        return done

    return step


def check_sample(
    info: Any, dtype: torch.dtype, sample: tuple[str, Any], number: int, row: dict[str, Any]
) -> str | None:
    mode, item = sample
    training, gradients = MODES[mode]
    steps.new_row(row)
    torch.manual_seed(number)
    module = info.module_cls(*item.constructor_input.args, **item.constructor_input.kwargs).to(dtype).train(training)
    given = (tuple(item.forward_input.args), dict(item.forward_input.kwargs))
    ours = copy.deepcopy(module)
    double = copy.deepcopy(module).double()
    compiled = tatara.compile(ours)

    def exact() -> steps.Step:
        return _stepper(double, double, samples.fresh_wide(given), gradients, number)

    problem = steps.compare_steps(
        _stepper(module, module, given, gradients, number),
        _stepper(ours, compiled, given, gradients, number),
        exact,
        [compiled],
        CALLS,
        row,
    )
    return f"{mode} {item.desc}: {problem}" if problem else None


def check_entry(info: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs the samples (at most `limit`) of an entry in a dtype."""
    dtype = getattr(torch, dtype_name)

    def check(sample: Any, number: int, row: dict[str, Any]) -> str | None:
        return check_sample(info, dtype, sample, number, row)

    return steps.check_cases(info.formatted_name, dtype_name, _samples(info, dtype), limit, progress, check)


def main() -> int:
    arguments = sweep.parser_of(__doc__, DTYPES, "build/modules.jsonl").parse_args()

    def takes(info: Any, dtype: str) -> bool:
        return getattr(torch, dtype) in info.dtypes

    return steps.run("modules.py", arguments, entries_by_name(), takes, check_entry, HEAD)


if __name__ == "__main__":
    sys.exit(main())
