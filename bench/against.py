"""Two builds of Tatara side by side in one run: what a change costs or gains, row by row of the other benchmarks.

Each row is measured in processes that take turns between the builds; rows run on cores of their own, several at a time where
there are many cores. A time is told as a share of eager's in the same process, so that a machine whose speed changes counts for
both; compile times are told in seconds. A figure is the median of the processes, the ratio is new over old: under 1 is faster.

The rows of "steps" are the training steps of "train", in turns of single steps: one process of each build holds the compiled
step, and what the machine does for longer than a step counts for both. A round is then eight steps of each.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import harness

BENCH = pathlib.Path(__file__).resolve().parent
BUILDS = ("old", "new")
RUNS_A_ROUND = 8  # where processes take turns run by run


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a benchmark, and the figures that are compared."""

    bench: str
    name: str
    options: tuple[str, ...]
    # Of what a process measured; None where the processes take turns run by run.
    figures: Callable[[dict[str, Any]], dict[str, float]] | None


def _share(result: dict[str, Any]) -> dict[str, float]:
    return {"run": result["tatara_ms"] / result["eager_ms"]}


def _share_and_cold(result: dict[str, Any]) -> dict[str, float]:
    return {**_share(result), "cold": result["tatara_cold_s"]}


def _cold(result: dict[str, Any]) -> dict[str, float]:
    return {"cold": result["cold"], "processors": result["processors"]}


def _models() -> Iterator[Row]:
    import zoo

    for model in zoo.MODELS:
        yield Row("models", model.name, ("--child", model.name, "--no-rival"), _share_and_cold)


def _kernels() -> Iterator[Row]:
    import functions

    for entry in functions.FUNCTIONS:
        yield Row("kernels", entry.name, ("--child", entry.name, "--no-rival"), _share_and_cold)


def _calls() -> Iterator[Row]:
    yield Row("calls", "calls", ("--json",), lambda result: result)


def _train_options() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Model, what of it is compiled, options of train.py."""
    import train

    for model in train.MODELS:
        for what, whole in (("loss", ()), ("step", ("--whole",))):
            # Both builds compile the same program: libraries ask whether they are compiled, and builds before
            # `torch.compiler.is_compiling()` was True say no.
            yield model, what, ("--child", model, "--no-rival", "--told", *whole)


def _train() -> Iterator[Row]:
    for model, what, options in _train_options():
        yield Row("train", f"{model} {what}", (*options, "--steps", "2"), _share)
        # Of small inputs: compiling takes as long, and what steps take varies less.
        small = ("--batch", "1", "--length", "16", *(("--after-eager",) if what == "loss" else ()))
        yield Row("train", f"{model} cold {what}", (*options, *small, "--cold", "tatara"), _cold)


def _steps() -> Iterator[Row]:
    for model, what, options in _train_options():
        yield Row("train", f"{model} {what}", (*options, "--serve"), None)


TABLES = {"models": _models, "kernels": _kernels, "calls": _calls, "train": _train, "steps": _steps}


def wanted_rows(benches: Iterable[str], only: list[str]) -> list[Row]:
    """The rows of these scripts; with `only`, those whose names contain one of its words."""
    rows = [row for bench in benches for row in TABLES[bench]()]
    return [row for row in rows if not only or any(word in row.name for word in only)]


def _seconds_in_turns(row: Row, builds: dict[str, str], rounds: int) -> dict[str, list[float]]:
    with contextlib.ExitStack() as stack:
        servers = {}
        for build in BUILDS:
            server = harness.Server(str(BENCH / f"{row.bench}.py"), row.options, PYTHONPATH=builds[build])
            servers[build] = stack.enter_context(server)
            server.wait_until_ready()
        times: dict[str, list[float]] = {build: [] for build in BUILDS}
        for build in harness.in_turns(BUILDS, rounds * RUNS_A_ROUND):
            times[build].append(servers[build].seconds())
    return times


def measure(row: Row, builds: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Figures by name and build, one for each process or run. Raises RuntimeError where a process fails."""
    if row.figures is None:
        return {"seconds": _seconds_in_turns(row, builds, rounds)}
    found: dict[str, dict[str, list[float]]] = {}
    for build in harness.in_turns(BUILDS, rounds):
        result = harness.in_process(str(BENCH / f"{row.bench}.py"), row.options, PYTHONPATH=builds[build])
        if "failed" in result:
            raise RuntimeError(f"{row.bench} {row.name}, {build} build: {result['failed']}")
        for name, value in row.figures(result).items():
            found.setdefault(name, {"old": [], "new": []})[build].append(value)
    return found


def measured_rows(rows: list[Row], builds: dict[str, str], rounds: int, jobs: int) -> Iterator[tuple[Row, Any]]:
    """(row, figures), or why there are none."""

    def run(row: Row, _share: int) -> tuple[Row, Any]:
        try:
            return row, measure(row, builds, rounds)
        except RuntimeError as error:
            return row, str(error)

    return harness.in_shares(run, rows, jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the folder that holds the package tatara of the build before: CHECKOUT/python")
    parser.add_argument(
        "--new", default=str(BENCH.parent / "python"), help="the same of the other build (default: this)"
    )
    parser.add_argument("--benches", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--only", nargs="+", default=[], help="rows whose names contain one of these words")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each build, or eight steps of each")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time, each on its share of the cores")
    parser.add_argument("--json", help="a file that gets every figure")
    parser.add_argument(
        "--small-pages",
        action="store_true",
        help="no huge pages for either build: some virtual machines take milliseconds to clear one",
    )
    arguments = parser.parse_args()
    if arguments.small_pages:
        harness.forbid_huge_pages()
    builds = {"old": arguments.old, "new": arguments.new}
    for build, path in builds.items():
        if not pathlib.Path(path, "tatara", "__init__.py").is_file():
            parser.error(f"{build} build: no package tatara in {path}")
        builds[build] = os.path.abspath(path)
    ratios: dict[tuple[str, str], list[float]] = {}
    everything, failures = [], 0
    print("bench | row | figure | old | new | new/old | lowest and highest of turns", flush=True)
    for row, found in measured_rows(
        wanted_rows(arguments.benches, arguments.only), builds, arguments.rounds, arguments.jobs
    ):
        if isinstance(found, str):
            failures += 1
            print(f"{row.bench} | {row.name} | failed: {found}", flush=True)
            continue
        for name, sides in found.items():
            old, new = (statistics.median(sides[build]) for build in BUILDS)
            turns = sorted(b / a for a, b in zip(sides["old"], sides["new"], strict=True))
            ratios.setdefault((row.bench, name), []).append(new / old)
            print(
                f"{row.bench} | {row.name} | {name} | {old:.4g} | {new:.4g} | {new / old:.3f} | {turns[0]:.3f} {turns[-1]:.3f}",
                flush=True,
            )
            everything.append({"bench": row.bench, "row": row.name, "figure": name, **sides})
    for (bench, name), values in ratios.items():
        print(f"{bench}, {name}: new over old {statistics.geometric_mean(values):.3f} over {len(values)} rows")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(everything, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
