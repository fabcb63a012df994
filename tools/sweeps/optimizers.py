"""`make optimizers`: every entry of torch's `optim_db`, compiled, beside eager, ten steps with schedulers.

Each configuration of an entry is tried with each implementation (single tensors, foreach, fused) and, in turn, the entry's
schedulers beside one that changes the rate in every step. What is compiled is the step alone, with gradients from outside,
and a whole training step: forward, backward and optimizer. Compared after each step: parameters, the optimizer's state, rates,
the result of the step, exceptions. Nothing may be compiled after the second step.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

import samples
import steps
import sweep
import tatara

DTYPES = ["float32", "float64"]
STEPS = 10
SHAPES = [(3, 4), (4, 2), (2, 5)]
WAYS = ("step", "train")
HEAD = """
# Optimizers

torch's own suite of optimizers (`optim_db`). Every configuration makes ten steps with schedulers: once with the step alone
compiled, and once with a whole training step. Compared with eager: parameters, state, rates, the step's result, exceptions.
"""


class Case(NamedTuple):
    """One configuration, how it is implemented, what is compiled, and its schedulers."""

    item: Any
    options: dict[str, Any]
    way: str
    schedulers: list[Any]

    def __str__(self) -> str:
        return f"{self.way} {self.item.desc} {self.options or ''}".strip()


def entries_by_name() -> dict[str, Any]:
    from torch.testing._internal.common_optimizers import optim_db

    return {info.name: info for info in optim_db}


def _implementations(info: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}]
    if "foreach" in info.supported_impls:
        found += [{"foreach": True}, {"foreach": False}]
    if "fused" in info.supported_impls and "cpu" in info.supports_fused_on:
        found.append({"fused": True})
    return found


def cases(info: Any, dtype: torch.dtype) -> Iterator[Case]:
    """What is tried of an entry."""
    ways = WAYS[1:] if info.step_requires_closure else WAYS[:1] if info.only_supports_sparse_grads else WAYS
    schedulers = itertools.cycle([*info.scheduler_inputs, []])
    for item in info.optim_inputs_func("cpu", dtype):
        for options in _implementations(info):
            yield from (Case(item, options, way, list(next(schedulers))) for way in ways)


def _forward(parameters: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for p in parameters:
        x = torch.tanh(x @ p)
    return (x * x).mean()


def _stepper(info: Any, case: Case, dtype: torch.dtype, compiler: Callable[[Any], Any]) -> steps.Step:
    """Steps of a run of its own, which begins as all others do."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    parameters = [torch.nn.Parameter(random(*shape)) for shape in SHAPES]
    config = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in case.item.kwargs.items()}
    optimizer = info.optim_cls(parameters, **config, **case.options)
    schedulers = [make(optimizer) for make in case.schedulers]
    schedulers.append(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97))

    def train(x: torch.Tensor) -> Any:
        if info.step_requires_closure:
            return optimizer.step(lambda: loss_of(x))
        loss = loss_of(x)
        optimizer.step()
        return loss

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = _forward(parameters, x)
        loss.backward()
        return loss

    run = compiler(train if case.way == "train" else lambda: optimizer.step())

    def step(number: int) -> dict[str, Any]:
        if case.way == "train":
            loss = run(random(5, SHAPES[0][0]))
        else:
            for p in parameters:
                grad = random(*p.shape)
                p.grad = (grad * (grad > 0)).to_sparse() if info.only_supports_sparse_grads else grad
            loss = run()
        for scheduler in schedulers:
            plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            scheduler.step(*([1.0] if plateau else []))
        held = optimizer.state_dict()
        rates = [{k: v for k, v in group.items() if k != "params"} for group in held["param_groups"]]
        return {
            "forward": samples.detached(loss),
            "parameters": [p.detach().clone() for p in parameters],
            "state": _copied((held["state"], rates), dtype),
        }

    return step


def _copied(tree: Any, dtype: torch.dtype) -> Any:
    """Tensors that later steps do not write to; floats, which may come from tensors, are compared as these are."""

    def copy(value: Any) -> Any:
        if isinstance(value, float):
            return torch.tensor(value, dtype=dtype)
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    return torch.utils._pytree.tree_map(copy, tree)


def check_case(info: Any, dtype: torch.dtype, case: Case, row: dict[str, Any]) -> str | None:
    steps.new_row(row)
    compiled: list[Any] = []

    def compiler(function: Any) -> Any:
        compiled.append(tatara.compile(function))
        return compiled[-1]

    def plain(function: Any) -> Any:
        return function

    problem = steps.compare_steps(
        _stepper(info, case, dtype, plain),
        _stepper(info, case, dtype, compiler),
        lambda: _stepper(info, case, torch.float64, plain),
        compiled,
        STEPS,
        row,
    )
    return f"{case}: {problem}" if problem else None


def check_entry(info: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs the cases (at most `limit`) of an entry in a dtype."""
    dtype = getattr(torch, dtype_name)

    def check(case: Case, number: int, row: dict[str, Any]) -> str | None:
        return check_case(info, dtype, case, row)

    return steps.check_cases(info.name, dtype_name, cases(info, dtype), limit, progress, check)


def main() -> int:
    arguments = sweep.parser_of(__doc__, DTYPES, "build/optimizers.jsonl").parse_args()
    return steps.run("optimizers.py", arguments, entries_by_name(), lambda info, dtype: True, check_entry, HEAD)


if __name__ == "__main__":
    sys.exit(main())
