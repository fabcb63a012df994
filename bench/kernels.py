"""`make bench-kernels`: single functions compiled by Tatara, beside eager and torch.compile, in one run.

Each function runs in a process of its own with empty caches. Times are medians of rounds in which the three take turns, each
with a call that does not count before the one that does: else who follows eager pays for the pages that eager's freed
temporaries gave back to the system.
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


def first_calls(
    entry: Any, arguments: Any, rival: bool, wait: Callable[[], None]
) -> tuple[dict[str, Any], dict[str, Callable[..., Any]], Any]:
    """What the first calls cost and made, the contenders, and eager's result, which ours was compared with."""
    import torch

    import tatara

    def seconds(call: Callable[..., Any]) -> tuple[Any, float]:
        own = copy.deepcopy(arguments)
        wait()
        start = time.perf_counter()
        value = call(*own)
        wait()
        return value, time.perf_counter() - start

    result: dict[str, Any] = {}
    expected = entry.call(*copy.deepcopy(arguments))
    runs: dict[str, Callable[..., Any]] = {"eager": entry.call, "tatara": tatara.compile(entry.call)}
    actual, result["tatara_cold_s"] = seconds(runs["tatara"])
    torch.testing.assert_close(actual, expected, rtol=2e-3, atol=2e-4)
    stats = tatara.stats()
    counted = ("graphs", "breaks", "fallbacks", "host_calls", "kernels_compiled")
    result.update({key: stats.get(key, 0) for key in counted})
    if rival:
        runs["rival"] = torch.compile(entry.call)
        result["rival_cold_s"] = seconds(runs["rival"])[1]
    return result, runs, expected


def measure(name: str, scale: int, rounds: int, rival: bool) -> dict[str, Any]:
    """Measures one function in this process: milliseconds, and seconds for compiling."""
    import torch

    import functions

    torch.manual_seed(0)
    entry = functions.BY_NAME[name]
    arguments = entry.inputs(scale)
    with torch.no_grad():
        result, runs, _ = first_calls(entry, arguments, rival, lambda: None)
        samples: dict[str, list[float]] = {key: [] for key in runs}
        for run in runs.values():
            run(*arguments)
            run(*arguments)
        for key in harness.in_turns(list(runs), rounds):
            run = runs[key]
            run(*arguments)
            start = time.perf_counter()
            run(*arguments)
            samples[key].append(time.perf_counter() - start)
    return result | {f"{key}_ms": statistics.median(values) * 1e3 for key, values in samples.items()}


COLUMNS = ["function", *harness.TIMES, "graphs", "breaks", "kernels_compiled", "host_calls"]


def run_table(
    script: str,
    description: str | None,
    scale: int,
    columns: list[str],
    measured: Callable[[str, int, int, bool], dict[str, Any]],
    on_gpus: bool = False,
) -> int:
    """The command line of a table of functions: `measured` is called in a process of its own for each, on GPUs as many at a time
    as --gpus says.
    """
    import functions

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--child")
    parser.add_argument("--scale", type=int, default=scale)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-rival", action="store_true")
    parser.set_defaults(gpus=1)
    if on_gpus:
        harness.add_gpus(parser)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measured(arguments.child, arguments.scale, arguments.rounds, not arguments.no_rival)))
        return 0
    names = arguments.names or [f.name for f in functions.FUNCTIONS]
    options = harness.options_of(arguments, "scale", "rounds")
    return harness.run_rows(script, "function", names, options, columns, ("eager", "rival"), arguments.gpus)


if __name__ == "__main__":
    raise SystemExit(run_table(__file__, __doc__, 1, COLUMNS, measure))
