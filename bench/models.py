"""`make bench-models`: real models compiled by Tatara, beside eager and torch.compile, in one run.

Each model runs in a process of its own with empty caches, so that compile times are cold. Times are medians of rounds in
which the three take turns; the error is the largest difference from a float64 run, as a multiple of eager's.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from typing import Any

import harness
import zoo


def _median_ms(samples: list[float]) -> float:
    return statistics.median(samples) * 1e3


def measure(name: str, batch: int, length: int, rounds: int, rival: bool) -> dict[str, Any]:
    """Measures one model in this process. Times in milliseconds, compile times in seconds."""
    import torch

    import tatara

    torch.manual_seed(0)
    entry = zoo.BY_NAME[name]
    model = entry.build().eval()
    inputs = entry.inputs(batch, length)
    result: dict[str, Any] = {"model": name}
    with torch.no_grad():
        reference = zoo.first_tensor(
            model.double()(**{k: v.double() if v.is_floating_point() else v for k, v in inputs.items()})
        )
        model.float()
        eager = zoo.first_tensor(model(**inputs))
        compiled = tatara.compile(model)
        before = tatara.stats()
        start = time.perf_counter()
        output = zoo.first_tensor(compiled(**inputs))
        result["tatara_cold_s"] = time.perf_counter() - start
        error = (output.double() - reference).abs().max().item()
        eager_error = (eager.double() - reference).abs().max().item()
        result["error_ratio"] = error / eager_error if eager_error else (0.0 if error == 0 else math.inf)
        result["max_error"] = error
        after = tatara.stats()
        for key in ("graphs", "breaks", "host_calls", "kernels_compiled"):
            result[key] = after.get(key, 0) - before.get(key, 0)
        runs = {"eager": lambda: model(**inputs), "tatara": lambda: compiled(**inputs)}
        if rival:
            other = torch.compile(model)
            start = time.perf_counter()
            other(**inputs)
            result["rival_cold_s"] = time.perf_counter() - start
            runs["rival"] = lambda: other(**inputs)
        samples: dict[str, list[float]] = {key: [] for key in runs}
        for run in runs.values():
            run()
            run()
        for key in harness.in_turns(list(runs), rounds):
            run = runs[key]
            start = time.perf_counter()
            run()
            samples[key].append(time.perf_counter() - start)
    for key, values in samples.items():
        result[f"{key}_ms"] = _median_ms(values)
    return result


COLUMNS = ["model", *harness.TIMES, "error_ratio", "graphs", "breaks", "kernels_compiled", "host_calls"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=None, help="names from the zoo (default: all)")
    parser.add_argument("--child")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    if arguments.child:
        print(
            json.dumps(
                measure(arguments.child, arguments.batch, arguments.length, arguments.rounds, not arguments.no_rival)
            )
        )
        return 0
    names = arguments.models or [m.name for m in zoo.MODELS]
    options = harness.options_of(arguments, "batch", "length", "rounds")
    return harness.run_rows(__file__, "model", names, options, COLUMNS, ("eager", "rival"))


if __name__ == "__main__":
    raise SystemExit(main())
