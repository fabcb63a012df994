"""Two builds of Tatara side by side in one run: what a change costs or gains, row by row of the other benchmarks.

Each row is measured in processes that take turns between the builds; rows run on cores of their own, several at a time where
there are many cores. A time is told as a share of eager's in the same process, so that a machine whose speed changes counts for
both; compile times are told in seconds. A figure is the median of the processes, the ratio is new over old: under 1 is faster.
"""

from __future__ import annotations

import argparse
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


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a benchmark, and the figures that are compared."""

    bench: str
    name: str
    options: tuple[str, ...]
    figures: Callable[[dict[str, Any]], dict[str, float]]


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


def _train() -> Iterator[Row]:
    import train

    for model in train.MODELS:
        for what, whole in (("loss", ()), ("step", ("--whole",))):
            # Both builds compile the same program: libraries ask whether they are compiled, and builds before
            # `torch.compiler.is_compiling()` was True say no.
            options = ("--child", model, "--no-rival", "--told", "--steps", "2", *whole)
            yield Row("train", f"{model} {what}", options, _share)
            # Of small inputs: compiling takes as long, and what steps take varies less.
            small = ("--batch", "1", "--length", "16", *(() if whole else ("--after-eager",)))
            yield Row("train", f"{model} cold {what}", (*options, *small, "--cold", "tatara"), _cold)


TABLES = {"models": _models, "kernels": _kernels, "calls": _calls, "train": _train}


def wanted_rows(benches: Iterable[str], only: list[str]) -> list[Row]:
    """The rows of these scripts; with `only`, those whose names contain one of its words."""
    rows = [row for bench in benches for row in TABLES[bench]()]
    return [row for row in rows if not only or any(word in row.name for word in only)]


def measure(row: Row, builds: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Figures by name and build, one for each process. Raises RuntimeError where a process fails."""
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
    parser.add_argument("--rounds", type=int, default=5, help="processes of each build")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time, each on its share of the cores")
    parser.add_argument("--json", help="a file that gets every figure")
    arguments = parser.parse_args()
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
