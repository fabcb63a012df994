"""`make bench-train`: training steps of real models compiled by Tatara, beside eager and torch.compile, in one run.

A step is forward, backward, AdamW. What is compiled is the loss, or with --whole the step itself, by both compilers. Each
model runs in a process of its own with empty caches, so that compile times are cold. The losses of twenty steps from the same
weights, batches and seed are compared with eager's; with --noise eager also starts from weights one unit in the last place
apart, which tells what float32 itself does to these losses. Times are medians of rounds in which the three take turns; peak
memory is that of three steps in a process of its own, over what it held before.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
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
        return functional.mse_loss(first, goal.expand_as(first))

    return by_labels if name in ("gpt2", "t5", "qwen3") else by_square


def _compiled(way: str, function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    import tatara

    return function if way == "eager" else {"tatara": tatara, "rival": torch}[way].compile(function)


def _stepper(way: str, name: str, model: Any, inputs: dict[str, Any], whole: bool) -> Callable[[], Any]:
    import torch

    loss = loss_of(model, name)
    if not whole:
        loss = _compiled(way, loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

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
    """Losses, compile times and step times of one model, in this process."""
    import torch

    import tatara

    model, inputs = _made(name, arguments.batch, arguments.length)
    steps = arguments.steps
    result: dict[str, Any] = {"model": name}
    ways = WAYS[:2] if arguments.no_rival else WAYS
    losses: dict[str, list[float]] = {}
    runs = {}
    for way in ways:
        step = _stepper(way, name, copy.deepcopy(model), inputs, arguments.whole)
        torch.manual_seed(SEED)
        before = tatara.stats()
        start = time.perf_counter()
        losses[way] = [step().item()]
        result[f"{way}_first_s"] = time.perf_counter() - start
        # The second step is still a first one: the backward of the first traced call is eager's.
        start = time.perf_counter()
        losses[way] += [step().item()]
        result[f"{way}_second_s"] = time.perf_counter() - start
        losses[way] += [step().item() for _ in range(steps - 2)]
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
    for way in ways[1:]:
        usual = result[f"{way}_ms"] / 1e3
        result[f"{way}_cold_s"] = result[f"{way}_first_s"] + result[f"{way}_second_s"] - 2 * usual
    return result


def measure_memory(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Peak memory of training steps, compiled before, over what the process held between them."""
    model, inputs = _made(name, arguments.batch, arguments.length)
    step = _stepper(arguments.memory, name, model, inputs, arguments.whole)
    for _ in range(2):  # the first step of all makes the optimizer's state
        step()
        step()
        model.zero_grad(set_to_none=True)
    return {"peak": harness.peak_of(step, 3, lambda: model.zero_grad(set_to_none=True))}


def _child(arguments: argparse.Namespace, *extra: str, **variables: str) -> dict[str, Any]:
    options = harness.options_of(arguments, "batch", "length", "steps", "rounds")
    options += [f"--{flag}" for flag in ("whole", "noise") if getattr(arguments, flag)]
    return harness.in_process(__file__, [*extra, *options], **variables)


def _in_processes(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    row = {"model": name, **_child(arguments, "--child", name)}
    if "failed" in row or arguments.no_memory:
        return row
    for way in WAYS[:2] if arguments.no_rival else WAYS:
        memory = _child(arguments, "--child", name, "--memory", way, **harness.COUNTED_MEMORY)
        if "failed" in memory:
            return {"model": name, **memory}
        row[f"{way}_mb"] = memory["peak"] / 1e6
    return row


LOSSES = ("tatara_loss_error", "rival_loss_error", "noise")
COLUMNS = [
    "model",
    *harness.TIMES,
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


def _print_table(rows: list[dict[str, Any]]) -> None:
    print(" | ".join(COLUMNS))
    for row in rows:
        if "failed" in row:
            print(f"{row['model']} | failed: {row['failed']}")
            continue
        harness.add_ratios(row, ("eager", "rival"))
        print(harness.line(row, COLUMNS, scientific=LOSSES))
    for column in ("vs eager", "vs rival"):
        mean = harness.geomean(rows, column)
        if mean is not None:
            print(f"geomean {column}: {mean:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=None, help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--child")
    parser.add_argument("--memory", choices=WAYS)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20, help="whose losses are compared with eager's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--whole", action="store_true", help="compile the step with its optimizer, not the loss")
    parser.add_argument("--noise", action="store_true", help="also eager from weights one unit in the last place off")
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory out")
    arguments = parser.parse_args()
    if arguments.child:
        measured = measure_memory if arguments.memory else measure
        print(json.dumps(measured(arguments.child, arguments)))
        return 0
    unknown = [name for name in arguments.models or [] if name not in MODELS]
    if unknown:
        parser.error(f"no such models here: {', '.join(unknown)}")
    rows = [_in_processes(name, arguments) for name in arguments.models or MODELS]
    _print_table(rows)
    bad = [row for row in rows if "failed" in row or row["tatara_loss_error"] > 3 * row.get("noise", TOLERANCE / 3)]
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
