"""`make bench-train`: training steps of real models compiled by Tatara, beside eager and torch.compile, in one run.

A step is forward, backward, AdamW. What is compiled is the loss, or with --whole the step itself, by both compilers. Each
model runs in a process of its own with empty caches, so that compile times are cold. The losses of twenty steps from the same
weights, batches and seed are compared with eager's; with --noise eager also starts from weights one unit in the last place
apart, which tells what float32 itself does to these losses. Times are medians of rounds in which the three take turns; peak
memory is that of a step in a process of its own, over what it held before, the median of nine.

"Cold" is what the first two steps took more than two usual ones, in a process of its own with empty caches: the median of
--colds processes, in which eager and Tatara take turns (one process for torch.compile). It is told for eager too, whose first
step touches the pages of the optimizer's state, makes the matrix products' kernels and so on: compiling is what a
compiler's first steps take beyond these, and "of rival" is that time over torch.compile's.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import harness
import zoo

MODELS = ["bert", "gpt2", "distilbert", "t5", "qwen3", "vit"]
WAYS = ["eager", "tatara", "rival"]
SEED = 1234
# By this much losses may differ from eager's where nobody measured what noise does to them.
TOLERANCE = 1e-3


def loss_of(model: Any, name: str, device: str = "cpu") -> Callable[..., Any]:
    """The model's own loss where it has one (labels: the input ids), else the squared distance of its leading result from a
    row of numbers.
    """
    import torch
    from torch.nn import functional

    goal = torch.linspace(-1, 1, model.config.hidden_size, device=device)

    def by_labels(**inputs: Any) -> Any:
        return model(**inputs, labels=inputs["input_ids"]).loss

    def by_square(**inputs: Any) -> Any:
        first = zoo.first_tensor(model(**inputs))
        return functional.mse_loss(first, goal.to(first.dtype).expand_as(first))

    return by_labels if name in ("gpt2", "t5", "qwen3") else by_square


def _compiled(way: str, function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    import tatara

    return function if way == "eager" else {"tatara": tatara, "rival": torch}[way].compile(function)


def _stepper(
    way: str, name: str, model: Any, inputs: dict[str, Any], whole: bool, optimizer: Any = None
) -> Callable[[], Any]:
    import torch

    loss = loss_of(model, name)
    if not whole:
        loss = _compiled(way, loss)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = loss(**inputs)
        value.backward()
        optimizer.step()
        return value.detach()

    return _compiled(way, step) if whole else step


def _made(name: str, batch: int, length: int) -> tuple[Any, dict[str, Any]]:
    import torch

    torch.manual_seed(0)
    entry = zoo.BY_NAME[name]
    model = entry.build().train()
    inputs = entry.inputs(batch, length)
    return model, inputs


def _nudged(model: Any) -> Any:
    """A copy whose weights are one unit in the last place off, up or down."""
    import torch

    copied = copy.deepcopy(model)
    with torch.no_grad():
        for p in copied.parameters():
            ends = torch.where(torch.rand_like(p) < 0.5, torch.inf, -torch.inf)
            p.copy_(torch.nextafter(p, ends))
    return copied


def _furthest(losses: list[float], others: list[float]) -> float:
    """The largest relative difference."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others, strict=True))


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Losses and step times of one model, in this process."""
    import torch

    import tatara

    model, inputs = _made(name, arguments.batch, arguments.length)
    steps = arguments.steps
    result: dict[str, Any] = {}
    ways = WAYS[:2] if arguments.no_rival else WAYS
    losses: dict[str, list[float]] = {}
    runs = {}
    for way in ways:
        step = _stepper(way, name, copy.deepcopy(model), inputs, arguments.whole)
        torch.manual_seed(SEED)
        before = tatara.stats()
        losses[way] = [step().item() for _ in range(steps)]
        if way == "tatara":
            after = tatara.stats()
            for key in ("graphs", "breaks", "fallbacks", "recompiles", "host_calls", "kernels_compiled"):
                result[key] = after.get(key, 0) - before.get(key, 0)
        runs[way] = step
    eager = losses["eager"]
    for way in ways[1:]:
        result[f"{way}_loss_error"] = _furthest(losses[way], eager)
    result["losses"] = [eager[0], eager[-1]]
    if arguments.noise:
        step = _stepper("eager", name, _nudged(model), inputs, whole=False)
        torch.manual_seed(SEED)
        result["noise"] = _furthest([step().item() for _ in range(steps)], eager)
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for way in harness.in_turns(ways, arguments.rounds):
        start = time.perf_counter()
        runs[way]()
        samples[way].append(time.perf_counter() - start)
    for way in ways:
        result[f"{way}_ms"] = statistics.median(samples[way]) * 1e3
    return result


def measure_cold(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the first two steps of this process take more than two usual ones, in seconds and in seconds of processors. The second
    is still a first one: a compiler may leave the backward to eager in the first.
    """
    import torch

    model, inputs = _made(name, arguments.batch, arguments.length)
    optimizer = None
    if arguments.after_eager:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        _stepper("eager", name, model, inputs, arguments.whole, optimizer)()
    step = _stepper(arguments.cold, name, model, inputs, arguments.whole, optimizer)
    clocks = {"cold": time.perf_counter, "processors": time.process_time}
    times: dict[str, list[float]] = {clock: [] for clock in clocks}
    for _ in range(5):
        starts = {clock: now() for clock, now in clocks.items()}
        step().item()
        for clock, now in clocks.items():
            times[clock].append(now() - starts[clock])
    return {clock: t[0] + t[1] - 2 * statistics.median(t[2:]) for clock, t in times.items()}


def measure_memory(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Peak memory of training steps, compiled before, over what the process held between them."""
    model, inputs = _made(name, arguments.batch, arguments.length)
    step = _stepper(arguments.memory, name, model, inputs, arguments.whole)
    for _ in range(2):  # the first step of all makes the optimizer's state
        step()
        step()
        model.zero_grad(set_to_none=True)
    return {"peak": harness.peak_of(step, 9, lambda: model.zero_grad(set_to_none=True))}


def serve_steps(name: str, arguments: argparse.Namespace) -> None:
    """Compiles a step, then takes one for each line of the standard input and writes its seconds."""
    model, inputs = _made(name, arguments.batch, arguments.length)
    step = _stepper("tatara", name, model, inputs, arguments.whole)
    for _ in range(3):
        step()
    print(flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, flush=True)


def _tell() -> None:
    import torch

    import tatara

    torch.compiler.is_compiling = tatara.is_compiling


def _child(arguments: argparse.Namespace, *extra: str, caches: str | None = None, **variables: str) -> dict[str, Any]:
    options = harness.options_of(arguments, "batch", "length", "steps", "rounds")
    options += [f"--{flag}" for flag in ("whole", "noise") if getattr(arguments, flag)]
    return harness.in_process(__file__, [*extra, *options], caches, **variables)


def _in_processes(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    ways = WAYS[:2] if arguments.no_rival else WAYS
    row: dict[str, Any] = {"model": name}
    colds: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as caches:
        for turn in range(arguments.colds):
            for way in ways if turn == 0 else WAYS[:2]:
                # What torch.compile left in its caches serves the processes that do not measure how long it takes.
                cold = _child(arguments, "--child", name, "--cold", way, caches=caches if way == "rival" else None)
                if "failed" in cold:
                    return {"model": name, **cold}
                colds[way].append(cold["cold"])
        row.update({f"{way}_cold_s": statistics.median(colds[way]) for way in ways if colds[way]})
        row.update(_child(arguments, "--child", name, caches=caches))
        if "failed" in row or arguments.no_memory:
            return row
        for way in ways:
            memory = _child(arguments, "--child", name, "--memory", way, caches=caches, **harness.COUNTED_MEMORY)
            if "failed" in memory:
                return {"model": name, **memory}
            row[f"{way}_mb"] = memory["peak"] / 1e6
    return row


def _add_compiling(row: dict[str, Any]) -> None:
    """`of rival`: seconds of compiling over torch.compile's, both beyond eager's own first steps."""
    if "rival_cold_s" in row:
        own = row["eager_cold_s"]
        row["of rival"] = (row["tatara_cold_s"] - own) / (row["rival_cold_s"] - own)


LOSSES = ("tatara_loss_error", "rival_loss_error", "noise")
COLUMNS = [
    "model",
    "eager_cold_s",
    *harness.TIMES,
    "of rival",
    *LOSSES,
    "eager_mb",
    "rival_mb",
    "tatara_mb",
    "graphs",
    "breaks",
    "fallbacks",
    "recompiles",
    "kernels_compiled",
    "host_calls",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=None, help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--child")
    parser.add_argument("--memory", choices=WAYS)
    parser.add_argument("--cold", choices=WAYS)
    parser.add_argument("--serve", action="store_true", help="time one step for each line of the standard input")
    parser.add_argument(
        "--colds", type=int, default=3, help="processes whose first steps are timed, each of eager and Tatara"
    )
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20, help="whose losses are compared with eager's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--after-eager",
        action="store_true",
        help="--cold: eager takes a step before, which makes the optimizer's state",
    )
    parser.add_argument(
        "--told",
        action="store_true",
        help="torch.compiler.is_compiling() is True in Tatara's traces, also of builds that do not say so themselves: "
        "libraries take another path then",
    )
    parser.add_argument("--whole", action="store_true", help="compile the step with its optimizer, not the loss")
    parser.add_argument("--noise", action="store_true", help="also eager from weights one unit in the last place off")
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory out")
    arguments = parser.parse_args()
    if arguments.child:
        if arguments.told:
            _tell()
        if arguments.serve:
            serve_steps(arguments.child, arguments)
            return 0
        measured = measure_memory if arguments.memory else measure_cold if arguments.cold else measure
        print(json.dumps(measured(arguments.child, arguments)))
        return 0
    unknown = [name for name in arguments.models or [] if name not in MODELS]
    if unknown:
        parser.error(f"no such models here: {', '.join(unknown)}")
    rows = []

    def measured_rows() -> Iterator[dict[str, Any]]:
        for name in arguments.models or MODELS:
            row = _in_processes(name, arguments)
            _add_compiling(row)
            rows.append(row)
            yield row

    harness.print_rows(measured_rows(), "model", COLUMNS, ("eager", "rival"), scientific=LOSSES)
    bad = [row for row in rows if "failed" in row or row["tatara_loss_error"] > 3 * row.get("noise", TOLERANCE / 3)]
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
