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
from typing import Any

import harness


def measure(name: str, scale: int, rounds: int, rival: bool) -> dict[str, Any]:
    """Measures one function in this process: milliseconds, and seconds for compiling."""
    import torch

    import functions
    import tatara

    torch.manual_seed(0)
    entry = functions.BY_NAME[name]
    arguments = entry.inputs(scale)
    result: dict[str, Any] = {"function": name}
    with torch.no_grad():
        expected = entry.call(*copy.deepcopy(arguments))
        compiled = tatara.compile(entry.call)
        ours = copy.deepcopy(arguments)
        start = time.perf_counter()
        actual = compiled(*ours)
        result["tatara_cold_s"] = time.perf_counter() - start
        torch.testing.assert_close(actual, expected, rtol=2e-3, atol=2e-4)
        stats = tatara.stats()
        result.update({key: stats.get(key, 0) for key in ("graphs", "breaks", "host_calls", "kernels_compiled")})
        runs: dict[str, Any] = {"eager": entry.call, "tatara": compiled}
        if rival:
            runs["rival"] = torch.compile(entry.call)
            start = time.perf_counter()
            runs["rival"](*copy.deepcopy(arguments))
            result["rival_cold_s"] = time.perf_counter() - start
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
    result.update({f"{key}_ms": statistics.median(values) * 1e3 for key, values in samples.items()})
    return result


COLUMNS = [
    "function",
    "tatara_cold_s",
    "rival_cold_s",
    "eager_ms",
    "rival_ms",
    "tatara_ms",
    "vs eager",
    "vs rival",
    "graphs",
    "breaks",
    "kernels_compiled",
    "host_calls",
]


def main() -> int:
    import functions

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--child")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-rival", action="store_true")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.scale, arguments.rounds, not arguments.no_rival)))
        return 0
    names = arguments.names or [f.name for f in functions.FUNCTIONS]
    options = harness.options_of(arguments, "scale", "rounds")
    rows = ({"function": name, **harness.in_process(__file__, ["--child", name, *options])} for name in names)
    return 1 if harness.print_rows(rows, "function", COLUMNS, ("eager", "rival")) else 0


if __name__ == "__main__":
    raise SystemExit(main())
