"""`make bench-calls-gpu`: host time of calls on a GPU, beside eager and torch.compile in the same run.

A small call is four pointwise operators on 16 elements. Of models (those of `make bench-models-gpu`) the time is that of calls
back to back: medians over rounds of `CALLS` calls, the GPU being waited for between rounds; "after eager" is a single call that
follows one of eager's, whose data fill the caches. Each row runs in a process of its own.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import harness
import models_gpu

CALLS = 20
SMALL = "small call"


def small() -> tuple[Callable[..., Any], dict[str, Any]]:
    import torch

    def four_operators(x: Any) -> Any:
        return torch.tanh(x * 2 + 1).abs()

    return four_operators, {"x": torch.randn(16, device="cuda")}


def model(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    import torch

    torch.manual_seed(0)
    made = models_gpu.builders()[name]().eval().cuda().half()
    inputs = models_gpu.inputs_of(name, batch=8, length=512)
    return made, {key: value.half() if value.is_floating_point() else value for key, value in inputs.items()}


def _host_us(run: Callable[[], Any], calls: int) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent / calls * 1e6


def measure(name: str, rounds: int, rival: bool) -> dict[str, Any]:
    """Host microseconds a call of one row, in this process."""
    import torch

    import tatara

    function, inputs = small() if name == SMALL else model(name)
    # More calls than this at once of a large model, and its launches wait for the GPU's queue.
    calls = 1000 if name == SMALL else CALLS
    runs: dict[str, Callable[[], Any]] = {"eager": lambda: function(**inputs)}
    compiled = {"tatara": tatara.compile(function), **({"rival": torch.compile(function)} if rival else {})}
    runs |= {way: lambda call=call: call(**inputs) for way, call in compiled.items()}
    samples: dict[str, list[float]] = {way: [] for way in [*runs, "after eager"]}
    with torch.no_grad():
        for run in runs.values():
            for _ in range(4):
                run()
        for way in harness.in_turns(list(runs), rounds):
            runs[way]()
            samples[way].append(_host_us(runs[way], calls))
            if way == "tatara":
                runs["eager"]()
                samples["after eager"].append(_host_us(runs["tatara"], 1))
    return {f"{way}_us": statistics.median(values) for way, values in samples.items()}


def main() -> int:
    rows = [SMALL, *models_gpu.builders()]
    arguments = harness.parser_of(__doc__, "rows", rows, rounds=30).parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.rounds, not arguments.no_rival)))
        return 0
    columns = ["row", "eager_us", "rival_us", "tatara_us", "after eager_us"]
    options = harness.options_of(arguments, "rounds")
    return harness.run_rows(__file__, "row", arguments.rows or rows, options, columns, ())


if __name__ == "__main__":
    raise SystemExit(main())
