"""`make zoo`: every model class of transformers' auto mappings (or models of timm), small, compiled, beside eager.

usage: python -m architectures [--classes PART ...] [--timm] [--device cuda --dtype float16] [--resume] [--page docs/zoo.md]

A row is a class in inference or training. Rows are appended to a file of JSON lines as they come; a sweep that was stopped
goes on with --resume. The exit status is 1 when a row is wrong, raised, crashed or took too long.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

# Children are forks: this process must not touch CUDA.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

from architectures import page, population, rows, workers

ROOT = Path(__file__).resolve().parents[3]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--classes", nargs="*", help="only those whose name contains one of these; =NAME: exactly")
    made.add_argument("--tasks", nargs="*", help="only those of these mappings, as causal_lm")
    made.add_argument("--timm", action="store_true", help="timm's models instead, the smallest ones of each family")
    made.add_argument("--families", type=int, default=3, help="with --timm: so many models of each family")
    made.add_argument("--part", default="0/1", help="K/N: every Nth class, from the Kth on")
    made.add_argument("--inference-only", action="store_true")
    made.add_argument("--training-only", action="store_true")
    made.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    made.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16", "float64"])
    made.add_argument("--autocast", default="", choices=["", "float16", "bfloat16"])
    made.add_argument("--use-cache", action="store_true", help="leave use_cache of configurations as it is")
    made.add_argument("--seconds", type=float, default=0.5, help="of timed calls a row")
    made.add_argument("--time-limit", type=float, default=240.0, help="seconds a row")
    made.add_argument("-j", "--jobs", type=int, default=1)
    made.add_argument("--threads", type=int, help="of each row (default: the cores that each job has)")
    made.add_argument("--out", help="rows as JSON lines (default: build/zoo-DEVICE.jsonl)")
    made.add_argument("--resume", action="store_true", help="keep the rows that are in --out")
    made.add_argument("--redo", nargs="*", default=[], help="with --resume: states to do again, as wrong crashed")
    made.add_argument("--page", help="write the table here")
    made.add_argument(
        "--page-only", action="store_true", help="run nothing: the summary and table of the rows in --out"
    )
    return made


def _selected(name: str, parts: list[str] | None) -> bool:
    return parts is None or any(part[1:] == name if part.startswith("=") else part in name for part in parts)


def _tasks(arguments: argparse.Namespace) -> list[workers.Task]:
    found = population.timm_models(arguments.families) if arguments.timm else population.classes()
    chosen = [
        a
        for name, a in found.items()
        if _selected(name, arguments.classes)
        and (arguments.tasks is None or any(task in arguments.tasks for task in a.tasks))
    ]
    part, parts = map(int, arguments.part.split("/"))
    modes = [
        mode
        for mode in rows.MODES
        if not (arguments.inference_only and mode != rows.INFERENCE)
        and not (arguments.training_only and mode != rows.TRAINING)
    ]
    return [(architecture, mode) for architecture in chosen[part::parts] for mode in modes]


def _processor(device: str) -> str:
    if device == "cuda":
        import torch

        return str(torch.cuda.get_device_name())
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _command(given: list[str]) -> str:
    """Without the places of its files, which are its user's."""
    places = ("--out", "--page")
    kept = [a for a, before in zip(given, ["", *given], strict=False) if a not in places and before not in places]
    return " ".join(["python -m architectures", *kept])


def run_all(tasks: list[workers.Task], arguments: argparse.Namespace, out: Path) -> list[dict[str, Any]]:
    """Runs the tasks that the file does not hold yet; a line is printed for each row."""
    done: dict[tuple[str, str], dict[str, Any]] = {}
    if (arguments.resume or arguments.page_only) and out.is_file():
        for line in out.read_text().splitlines():
            row = json.loads(line)
            if row["state"] not in arguments.redo:
                done[row["class"], row["mode"]] = row
    if arguments.page_only:
        return list(done.values())
    out.parent.mkdir(parents=True, exist_ok=True)
    options = rows.Options(
        arguments.device, arguments.dtype, arguments.autocast, arguments.seconds, arguments.use_cache
    )
    measure = functools.partial(_measure, options)
    threads = arguments.threads or max(1, (os.cpu_count() or 1) // arguments.jobs)
    missing = [(a, mode) for a, mode in tasks if (a.name, mode) not in done]
    # The rows of an interrupted rewriting would be lost.
    kept = out.with_suffix(".part")
    kept.write_text("".join(json.dumps(row) + "\n" for row in done.values()))
    kept.replace(out)
    with out.open("a") as file:
        for row in workers.run_tasks(missing, measure, arguments.jobs, arguments.time_limit, threads):
            done[row["class"], row["mode"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(_line(row), flush=True)
    return [done[a.name, mode] for a, mode in tasks]


def _measure(options: rows.Options, architecture: population.Architecture, mode: str, stage: Any) -> dict[str, Any]:
    rows.quiet()
    return rows.measure(architecture, mode, options, stage=stage)


def _line(row: dict[str, Any]) -> str:
    name = f"{row['class']} {row['mode']}"
    if row["state"] in ("skipped", "raised", "crashed", "timeout"):
        return f"{name}: {row['state']}: {' '.join(row['why'].split())[:200]}"
    text = f"{row['graphs']} graphs, {len(row['breaks'])} breaks, {row['cold_s']:.2f} s, {row.get('ratio', 0.0):.2f} of eager"
    return f"{name}: {row['state']}, {text}" + (f": {row['wrong'][0]}" if row["wrong"] else "")


def main() -> int:
    """Sweeps, prints the summary and writes the page."""
    arguments = parser().parse_args()
    kind = "timm" if arguments.timm else "zoo"
    out = Path(arguments.out) if arguments.out else ROOT / "build" / f"{kind}-{arguments.device}.jsonl"
    start = time.monotonic()
    found = run_all([] if arguments.page_only else _tasks(arguments), arguments, out)
    failed = page.print_summary(found)
    if arguments.page:
        place = Path(arguments.page)
        page.write_page(
            place if place.is_absolute() else ROOT / place, found, _command(sys.argv[1:]), _processor(arguments.device)
        )
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
