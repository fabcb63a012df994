"""`make opinfo`: every sample of every OpInfo entry, compiled, beside eager.

Each pair of entry and dtype is a task of a worker process, so a crash or a hang is one row of the table and not the end of
the sweep. Rows are appended to a file of JSON lines as they come; a sweep that was stopped goes on with `--resume`.
Compared for each sample (samples.py): the exception or the values, dtype, shape, strides, aliasing, and what happened to
the inputs. The state of a row is that of its worst sample: raised (all of them raise eager's exception), native, host (a
call of a host kernel), tape (the graph ran without being compiled), broke (a graph break, or nothing captured), wrong,
crashed. Besides the dtypes there are columns of the float32 samples with autocast on, "autocast", of the entry's samples of
bad input, "errors", and of samples with one operand or number changed, "odd".
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import queue
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from samples import AUTOCAST, EAGER, ERRORS, ODD, check_entry, device
from table import print_summary, write_page

DTYPES = ["bool", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]

COLUMNS = [*DTYPES, AUTOCAST, ERRORS, ODD]

Task = tuple[str, str]
Check = Callable[[Any, str, int | None, Callable[[int], None]], dict[str, Any]]


def entries_by_name() -> dict[str, Any]:
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

    # Each time that samples are made it looks for a unittest on the stack, and opens all sources there.
    common_utils.extract_test_fn = core.extract_test_fn = lambda: None
    return {op.formatted_name: op for op in op_db}


def _worker(tasks: Any, results: Any, at: Any, entries: dict[str, Any] | None, limit: int | None, check: Check) -> None:
    if entries is None:
        entries = entries_by_name()

    def progress(number: int) -> None:
        at.value = number

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # What compiled code prints through C (warnings of deprecated operators) is no part of the table.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    while (task := tasks.get()) is not None:
        name, dtype = task
        row = check(entries[name], dtype, limit, progress)
        # After some errors a GPU answers this process no more.
        row["ends"] = any("CUDA error" in problem for problem in row["wrong"])
        results.put(row)
        if row["ends"]:
            return


class Worker:
    """A process that takes one task after the other."""

    def __init__(self, entries: dict[str, Any], limit: int | None, check: Check = check_entry) -> None:
        # CUDA does not work in a forked process; a fresh one makes the entries anew (8 s).
        on_cpu = device() == "cpu"
        context = mp.get_context("fork" if on_cpu else "spawn")
        self._tasks, self._results = context.Queue(), context.Queue()
        self._sample = context.Value(
            "i", -1, lock=False
        )  # written before each sample: a queue would lag behind a crash
        arguments = (self._tasks, self._results, self._sample, entries if on_cpu else None, limit, check)
        self._process = context.Process(target=_worker, args=arguments, daemon=True)  # type: ignore[attr-defined]
        self._process.start()
        self.task: Task | None = None
        self._since = 0.0
        self._ended = False

    def give(self, task: Task | None) -> None:
        self.task, self._since, self._sample.value = task, time.monotonic(), -1
        self._tasks.put(task)

    def poll(self, time_limit: float) -> dict[str, Any] | None:
        """The finished row, a row for a worker that died or hangs, or nothing yet."""
        assert self.task is not None
        try:
            row: dict[str, Any] = self._results.get(timeout=0.05)
            self._ended = row.pop("ends")
            return row
        except queue.Empty:
            pass
        late = time.monotonic() - self._since > time_limit
        if self._process.is_alive() and not late:
            return None
        code = self._process.exitcode
        self._process.kill()
        self._process.join()
        what = f"took more than {time_limit:.0f} s" if late else f"died with exit code {code}"
        name, dtype = self.task
        number = self._sample.value
        return {
            "name": name,
            "dtype": dtype,
            "state": "crashed",
            "samples": max(0, number + 1),
            "wrong": ["eager itself " + what if number == EAGER else f"sample {number}: {what}"],
            "seconds": time.monotonic() - self._since,
        }

    @property
    def alive(self) -> bool:
        return self._process.is_alive() and not self._ended


def run_tasks(
    tasks: list[Task],
    entries: dict[str, Any],
    jobs: int,
    limit: int | None,
    time_limit: float,
    check: Check = check_entry,
) -> Iterator[dict[str, Any]]:
    """Rows as they come; workers that die are replaced."""
    pending = list(reversed(tasks))
    active: list[Worker] = []
    while pending or active:
        while pending and len(active) < jobs:
            active.append(Worker(entries, limit, check))
            active[-1].give(pending.pop())
        for worker in list(active):
            row = worker.poll(time_limit)
            if row is None:
                continue
            yield row
            if worker.alive and pending:
                worker.give(pending.pop())
            else:
                if worker.alive:
                    worker.give(None)
                active.remove(worker)


def parser_of(description: str | None, columns: list[str], out: str) -> argparse.ArgumentParser:
    """The options that every sweep has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--entries", nargs="*", help="only entries whose name contains one of these; =NAME: exactly")
    parser.add_argument("--dtypes", nargs="*", default=columns, choices=columns)
    parser.add_argument("--samples", type=int, help="at most this many samples of an entry and dtype")
    parser.add_argument("-j", "--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for an entry and dtype")
    parser.add_argument("--out", default=out, help="rows as JSON lines")
    parser.add_argument("--resume", action="store_true", help="keep the rows that are in --out")
    parser.add_argument("--redo", nargs="*", default=[], help="with --resume: states to do again, as wrong crashed")
    parser.add_argument(
        "--page", help="put the rows into this page (docs/status.md), or of modules and optimizers write it"
    )
    return parser


def selected(name: str, parts: list[str] | None) -> bool:
    return parts is None or any(part[1:] == name if part.startswith("=") else part in name for part in parts)


def _has(op: Any, column: str) -> bool:
    if column == ERRORS:
        return op.error_inputs_func is not None
    if column == ODD:
        return True
    dtype = "float32" if column == AUTOCAST else column
    return getattr(torch, dtype) in op.supported_dtypes(device())


def run_all(
    tasks: list[Task], entries: dict[str, Any], arguments: argparse.Namespace, check: Check
) -> list[dict[str, Any]]:
    """Runs the tasks that --out does not hold yet; what fails is printed as it comes."""
    out = Path(arguments.out)
    rows: dict[Task, dict[str, Any]] = {}
    if arguments.resume and out.is_file():
        for line in out.read_text().splitlines():
            row = json.loads(line)
            if row["state"] not in arguments.redo:
                rows[row["name"], row["dtype"]] = row
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as file:
        for row in rows.values():
            file.write(json.dumps(row) + "\n")
        file.flush()
        missing = [task for task in tasks if task not in rows]
        for row in run_tasks(missing, entries, arguments.jobs, arguments.samples, arguments.time_limit, check):
            rows[row["name"], row["dtype"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            if row["wrong"]:
                more = f" (+{len(row['wrong']) - 1})" if row["wrong"][1:] else ""
                print(f"{row['state'].upper()} {row['name']} {row['dtype']}: {row['wrong'][0]}{more}", flush=True)
    return [rows[task] for task in tasks]


def run_having(has: Callable[[Any, str], bool], arguments: argparse.Namespace, check: Any, script: str) -> int:
    """Sweeps over the selected entries that have a dtype; prints and writes what `arguments` ask for. 1 when a row failed."""
    if arguments.page and arguments.entries is not None:
        raise SystemExit("--page takes a whole sweep: leave out --entries")
    warnings.simplefilter("ignore")
    entries = entries_by_name()
    tasks = [
        (name, dtype)
        for dtype in arguments.dtypes
        for name, op in entries.items()
        if has(op, dtype) and selected(name, arguments.entries)
    ]
    rows = run_all(tasks, entries, arguments, check)
    failed = print_summary(rows)
    if arguments.page:
        write_page(Path(arguments.page), rows, sys.argv[1:], script)
    return 1 if failed else 0


def main() -> int:
    parser = parser_of(__doc__, COLUMNS, "build/opinfo.jsonl")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where the samples lie")
    arguments = parser.parse_args()
    os.environ["TATARA_SWEEP_DEVICE"] = arguments.device
    start = time.monotonic()
    status = run_having(_has, arguments, check_entry, "sweep.py")
    print(f"{time.monotonic() - start:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
