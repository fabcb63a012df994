"""`make bench-kernels-gpu`: the functions of `make bench-kernels` on a GPU, beside eager and torch.compile, in one run.

Each function runs in a process of its own with empty caches. Times are those of the GPU: events around replays of a CUDA graph
of one call, medians of rounds in which the three take turns. The share of the copy rate is the least traffic (each input read
once, each output written once) over the time, relative to a large copy on the same GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import harness
import kernels

REPLAYS = 5


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in _tensors(item)]
    return []


def _bytes(*values: Any) -> int:
    storages = {t.untyped_storage().data_ptr(): t.numel() * t.element_size() for v in values for t in _tensors(v)}
    return sum(storages.values())


def replay_of(call: Callable[[], Any]) -> Callable[[], float]:
    """A CUDA graph of one call; what is returned replays it and gives the milliseconds that one replay took."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()
    graph.replay()

    def timed() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        assert kept is not NotImplemented  # the graph writes into what the call returned
        return begin.elapsed_time(end) / REPLAYS

    return timed


def product_times(
    ways: dict[str, Callable[..., Any]], operands: Sequence[Any], work: float, rounds: int
) -> dict[str, Any]:
    """Of each way the milliseconds of a replay, the median of rounds in turns, and its rate; `work` in 10^12 operations."""
    replays = {way: replay_of(lambda f=function: f(*operands)) for way, function in ways.items()}
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for way in harness.in_turns(list(ways), rounds):
        samples[way].append(replays[way]())
    row: dict[str, Any] = {}
    for way, taken in samples.items():
        median = statistics.median(taken)
        row |= {f"{way}_ms": median, f"{way}_tflops": work / median * 1e3}
    return row


def beside_eager(
    name: str, work: float, program: Callable[..., Any], operands: Sequence[Any], rounds: int
) -> dict[str, Any]:
    """A row with the times of a product in eager and compiled, or with how far its result is off."""
    import tatara

    ways = {"eager": program, "tatara": tatara.compile(program)}
    results = {}
    for way, function in ways.items():
        function(*operands)
        results[way] = function(*operands).float()
    difference = (results["eager"] - results["tatara"]).abs().max() / results["eager"].abs().max()
    if not difference <= 0.01:
        return {"program": name, "failed": f"off by {float(difference):.2g}"}
    results.clear()
    return {"program": name} | product_times(ways, operands, work, rounds)


def copy_rate() -> float:
    """Bytes read and written a second by a large copy."""
    import torch

    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(REPLAYS):
            target.copy_(source)  # outside of a graph, whose copies are slower
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / REPLAYS)
    return 2 * source.numel() * 4 / (statistics.median(times[2:]) * 1e-3)


def measure(name: str, scale: int, rounds: int, rival: bool) -> dict[str, Any]:
    """Measures one function in this process: milliseconds, and seconds for compiling."""
    import torch

    import functions

    torch.manual_seed(0)
    entry = functions.BY_NAME[name]
    with torch.device("cuda"):
        arguments = entry.inputs(scale)
    with torch.no_grad():
        result, runs, expected = kernels.first_calls(entry, arguments, rival, torch.cuda.synchronize)
        traffic = _bytes(arguments, expected)
        del expected
        timers = {key: replay_of(lambda run=run: run(*arguments)) for key, run in runs.items()}
        samples: dict[str, list[float]] = {key: [] for key in runs}
        for key in harness.in_turns(list(runs), rounds):
            samples[key].append(timers[key]())
        result.update({f"{key}_ms": statistics.median(values) for key, values in samples.items()})
        result["of copy"] = traffic / (result["tatara_ms"] * 1e-3) / copy_rate()
    return result


COLUMNS = ["function", *harness.TIMES, "of copy", "breaks", "fallbacks", "kernels_compiled", "host_calls"]


if __name__ == "__main__":
    raise SystemExit(kernels.run_table(__file__, __doc__, 8, COLUMNS, measure, on_gpus=True))
