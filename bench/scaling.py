"""`make bench-scaling`: compile time per operator of large programs, by stage, against that of 1,000 operators.

Four mixes, each at several sizes, each run in a process of its own with an empty cache. CPU seconds of the first call less those
of the second, so that other load on the machine counts as little as possible. The stages are seconds of a clock. The sizes take
turns, each as many times as the others, because the speed of a machine changes in minutes and the least of many runs is less than
the least of few. Shown are medians; the ratio of the leasts stands beside.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

SIZES = (1_000, 5_000, 20_000, 50_000)


def pointwise(count: int, rng: random.Random) -> tuple[Callable[..., Any], list[Any]]:
    """A DAG of pointwise operators over recent values."""
    import torch

    plan = [(rng.randrange(6), rng.randrange(8), rng.randrange(8)) for _ in range(count)]

    def run(x: Any, y: Any) -> Any:
        recent = [x, y, x + 1, y + 1, x * 0.5, y * 0.5, x - y, x + y]
        for kind, a, b in plan:
            p, q = recent[a], recent[b]
            if kind == 0:
                value = p + q
            elif kind == 1:
                value = p * 0.5
            elif kind == 2:
                value = torch.tanh(p)
            elif kind == 3:
                value = torch.where(p > 0, p, q)
            elif kind == 4:
                value = torch.maximum(p, q)
            else:
                value = p - q * 0.25
            recent[a] = value
        return recent

    return run, [torch.randn(16, 8), torch.randn(16, 8)]


def between_host_calls(count: int, rng: random.Random) -> tuple[Callable[..., Any], list[Any]]:
    """Pointwise operators with products and sorts between them."""
    import torch

    plan = [(rng.randrange(40), rng.randrange(8), rng.randrange(8)) for _ in range(count)]

    def run(x: Any, w: Any) -> Any:
        recent = [x, w, x + 1, w + 1, x * 0.5, w * 0.5, x - w, x + w]
        for kind, a, b in plan:
            p, q = recent[a], recent[b]
            if kind < 4:
                value = torch.mm(p, w)
            elif kind < 5:
                value = torch.sort(p, dim=1)[0]
            elif kind < 15:
                value = p + q
            elif kind < 25:
                value = torch.sigmoid(p)
            elif kind < 32:
                value = p * q
            else:
                value = torch.relu(p - 0.1)
            recent[a] = value
        return recent

    return run, [torch.randn(8, 8), torch.randn(8, 8) * 0.1]


def wide(count: int, rng: random.Random) -> tuple[Callable[..., Any], list[Any]]:
    """Reductions, views, norms and host calls in a wide DAG, some of whose values are used long after."""
    import torch

    plan = [(rng.randrange(30), rng.randrange(64), rng.randrange(64)) for _ in range(count)]

    def run(x: Any, w: Any) -> Any:
        values = [x * (i + 1) for i in range(64)]
        kept = list(values[:16])
        for i, (kind, a, b) in enumerate(plan):
            p, q = values[a], values[b]
            if kind < 3:
                value = torch.mm(p, w)
            elif kind < 5:
                value = torch.layer_norm(p, (8,))
            elif kind < 8:
                value = p - p.mean(1, keepdim=True)
            elif kind < 10:
                value = p.t().reshape(8, 8)
            elif kind < 12:
                value = torch.cat([p[:4], q[4:]])
            elif kind < 14:
                value = torch.softmax(p, 1)
            elif kind < 16:
                value = p + kept[b % 16]
            elif kind < 22:
                value = p + q.sum(0)
            else:
                value = torch.tanh(p) * q
            values[a] = value
            if i % 97 == 0:
                kept[b % 16] = value
        return values

    return run, [torch.randn(8, 8), torch.randn(8, 8) * 0.1]


def training(count: int, rng: random.Random) -> tuple[Callable[..., Any], list[Any]]:
    """Many small layers forward and backward, then an optimizer that writes to parameters and states in place, as lists."""
    import torch

    layers = max(count // 16, 1)  # the operators of one layer in the graph: forward, backward and update
    parameters = [torch.nn.Parameter(torch.randn(8, 8) * 0.1 + torch.eye(8)) for _ in range(layers)]
    biases = [torch.nn.Parameter(torch.zeros(8)) for _ in range(layers)]
    everything = [*parameters, *biases]
    means = [torch.zeros_like(p) for p in everything]
    squares = [torch.zeros_like(p) for p in everything]
    kinds = [rng.randrange(3) for _ in range(layers)]

    def run(x: Any) -> Any:
        h = x
        for kind, weight, bias in zip(kinds, parameters, biases, strict=True):
            z = torch.addmm(bias, h, weight)
            h = (torch.tanh(z) if kind == 0 else torch.relu(z) if kind == 1 else z * torch.sigmoid(z)) + 0.1 * h
        loss = (h * h).mean()
        gradients = torch.autograd.grad(loss, everything)
        with torch.no_grad():
            torch._foreach_lerp_(means, gradients, 0.1)
            torch._foreach_mul_(squares, 0.999)
            torch._foreach_addcmul_(squares, gradients, gradients, 0.001)
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, 1e-8)
            torch._foreach_addcdiv_(everything, means, roots, -0.001)
        return loss

    return run, [torch.randn(8, 8)]


MIXES = {"pointwise": pointwise, "host calls": between_host_calls, "wide": wide, "training": training}


def measure(mix: str, count: int) -> dict[str, Any]:
    import torch

    import tatara
    from tatara.report._report import report_of

    sys.setrecursionlimit(100_000)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    run, arguments = MIXES[mix](count, random.Random(1))
    warm, few = MIXES[mix](50, random.Random(2))
    with torch.set_grad_enabled(mix == "training"):
        tatara.compile(warm)(*few)  # what a process does once
        compiled = tatara.compile(run)
        start = time.process_time()
        compiled(*arguments)
        first = time.process_time() - start
        start = time.process_time()
        compiled(*arguments)
        second = time.process_time() - start
    report = report_of(compiled)
    return {
        "operators": sum(graph.nodes for graph in report.graphs),
        "graphs": len(report.graphs),
        "kernels": len(report.kernels),
        "fallback": next((graph.fallback for graph in report.graphs if graph.fallback), ""),
        "whole": first - second,
        "run": second,
        **report.compile_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mix", choices=list(MIXES), action="append")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5, help="how many times each size is run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        mix, count = arguments.one.rsplit(":", 1)
        print(json.dumps(measure(mix, int(count))))
        return
    for mix in arguments.mix or MIXES:
        print(f"{mix}: microseconds per operator (ratio to {arguments.sizes[0]}'s by medians; by leasts)")
        runs: dict[int, list[dict[str, Any]]] = {count: [] for count in arguments.sizes}
        failed: dict[int, str] = {}
        for _ in range(arguments.rounds):
            for count in arguments.sizes:
                if count in failed:
                    continue
                with tempfile.TemporaryDirectory() as cache:
                    done = subprocess.run(
                        [sys.executable, __file__, "--one", f"{mix}:{count}"],
                        env={**os.environ, "TATARA_CACHE_DIR": f"{cache}/cache"}, capture_output=True, text=True, check=False,
                    )  # fmt: skip
                if done.returncode == 0:
                    runs[count].append(json.loads(done.stdout.splitlines()[-1]))
                else:
                    failed[count] = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        base: dict[str, tuple[float, float]] = {}
        for count in arguments.sizes:
            if count in failed:
                print(f"  {count}: {failed[count]}")
                continue
            last = runs[count][-1]
            operators = last["operators"]
            line = f"  {operators:6} operators, {last['graphs']} graphs, {last['kernels']} kernels:"
            for stage in (name for name, value in last.items() if isinstance(value, float)):
                each = [run[stage] / operators * 1e6 for run in runs[count]]
                middle, least = statistics.median(each), min(each)
                of, of_least = base.setdefault(stage, (middle, least))
                line += f"  {stage} {middle:.1f} ({middle / of:.2f}; {least / of_least:.2f})"
            print(line + (f"  FALLBACK {last['fallback']}" if last["fallback"] else ""), flush=True)


if __name__ == "__main__":
    main()
