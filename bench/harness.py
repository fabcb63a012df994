"""What the benchmarks share: a process with empty caches for each row, turns between contenders, tables of ratios."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import ctypes
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

# Columns of a table whose rows time this compiler beside eager and torch.compile.
TIMES = ["tatara_cold_s", "rival_cold_s", "eager_ms", "rival_ms", "tatara_ms", "vs eager", "vs rival"]


# For processes whose memory is measured: what is freed goes back at once, so that what is resident is what is allocated, and
# outputs kept for later calls, which would count as held between steps, are let go of.
COUNTED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "TATARA_KEEP_OUTPUTS_MB": "0",
}


def forbid_huge_pages() -> None:
    """Of this process and those that it starts (prctl(2), PR_SET_THP_DISABLE). OSError where the system refuses."""
    disable = 41
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(disable, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")


def _environment(caches: str, variables: dict[str, str]) -> dict[str, str]:
    """Of a process that keeps what it compiles in this directory."""
    return {
        **os.environ,
        "TATARA_CACHE_DIR": f"{caches}/tatara",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/rival",
        "HF_HUB_OFFLINE": "1",
        **variables,
    }


def in_process(script: str, options: Iterable[str], caches: str | None = None, **variables: str) -> dict[str, Any]:
    """Runs a script with compile caches in the directory `caches`, or with empty ones, and these variables of the environment.
    The JSON of its last line; {"failed": reason} when it fails.
    """
    with tempfile.TemporaryDirectory() as empty:
        environment = _environment(caches or empty, variables)
        command = [sys.executable, script, *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


class Server:
    """A process, with empty caches, that prints a line when it is ready, and then the seconds of a run for each line it is
    given: so that two programs, both loaded, take turns run by run. A context manager, whose end ends the process.
    """

    def __init__(self, script: str, options: Iterable[str], **variables: str) -> None:
        self._caches = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, script, *options],
            env=_environment(self._caches.name, variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.communicate()
        self._caches.cleanup()

    def _answer(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"the process ended early: {' '.join(map(str, self._process.args))}")
        return line

    def wait_until_ready(self) -> None:
        """Raises RuntimeError where the process ended before."""
        self._answer()

    def seconds(self) -> float:
        """Of one run. Raises RuntimeError where the process ended."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # which the missing answer tells
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return float(self._answer())


def _resident(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def peak_of(step: Callable[[], object], times: int, between: Callable[[], object] = lambda: None) -> float:
    """Peak bytes of a call of `step`, which was called before, over what the process holds between calls, when `between` has let
    go of what a call leaves. Scratch memory that the compiler keeps from call to call counts as the calls'.

    The median of `times` calls: the kernel counts the pages of a peak per CPU and is off by up to 32 pages of each.
    """
    import tatara

    # Free memory that the C library keeps is nobody's; but the pages that any call's small objects take again belong to both
    # sides of the difference: how many there are tells how scattered the heap is, not what a call needs.
    ctypes.CDLL(None).malloc_trim(0)
    step()
    peaks = []
    for _ in range(times):
        between()
        before = _resident("VmRSS") - tatara.stats()["scratch_bytes"]
        with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
            clear.write("5")
        step()
        peaks.append(_resident("VmHWM") - before)
    return statistics.median(peaks)


def in_shares(run: Callable[[Any, int], Any], items: Iterable[Any], shares: int) -> Iterator[Any]:
    """run(item, share) of each item, one at a time on each share of the machine's cores, which processes that it starts inherit;
    results in order.
    """
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    cores = sorted(os.sched_getaffinity(0))
    for share in range(shares):
        free.put(share)

    def run_one(item: Any) -> Any:
        share = free.get()
        os.sched_setaffinity(
            0, cores[share * len(cores) // shares : (share + 1) * len(cores) // shares]
        )  # of this thread
        try:
            return run(item, share)
        finally:
            free.put(share)

    with concurrent.futures.ThreadPoolExecutor(shares) as pool:
        yield from pool.map(run_one, items)


def on_gpus(script: str, rows: Iterable[Iterable[str]], gpus: int) -> Iterator[dict[str, Any]]:
    """in_process() of each row's options, one row at a time on each GPU of the machine, with its share of the cores; results in
    order.
    """

    def run(options: Iterable[str], gpu: int) -> dict[str, Any]:
        return in_process(script, options, **({} if gpus == 1 else {"CUDA_VISIBLE_DEVICES": str(gpu)}))

    return in_shares(run, rows, gpus)


def parser_of(description: str | None, name: str, values: Sequence[str], rounds: int) -> argparse.ArgumentParser:
    """The command line of a benchmark whose rows are some of `values`: --child measures one of them in this process."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(name, nargs="*", help=f"of {', '.join(values)} (default: all)")
    parser.add_argument("--child")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--no-rival", action="store_true", help="leave torch.compile out")
    return parser


def add_gpus(parser: argparse.ArgumentParser) -> None:
    """--gpus, for on_gpus()."""
    parser.add_argument("--gpus", type=int, default=1, help="so many rows at a time, each on a GPU of its own")


def options_of(arguments: Any, *names: str) -> list[str]:
    """The options of these names as this process was given them, and --no-rival."""
    options = [text for name in names for text in (f"--{name}", str(getattr(arguments, name)))]
    return options + (["--no-rival"] if arguments.no_rival else [])


def in_turns(keys: Sequence[str], rounds: int) -> Iterator[str]:
    """Every key once a round, each in each place in turn: who runs first after a large block was freed pays for its pages."""
    for round_number in range(rounds):
        turn = round_number % len(keys)
        yield from [*keys[turn:], *keys[:turn]]


def add_ratios(row: dict[str, Any], others: Iterable[str]) -> None:
    """`vs NAME`, for each contender that was measured: its time over ours."""
    for other in others:
        if f"{other}_ms" in row:
            row[f"vs {other}"] = row[f"{other}_ms"] / row["tatara_ms"]


def line(row: dict[str, Any], columns: Iterable[str], scientific: Iterable[str] = ()) -> str:
    """A row of a table; what was not measured is a dash."""

    def cell(column: str) -> str:
        value = row.get(column, "-")
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1e}" if column in scientific else f"{value:.3f}"

    return " | ".join(cell(column) for column in columns)


def geomean(rows: Iterable[dict[str, Any]], column: str) -> float | None:
    """Of the rows that have the column; None without any."""
    values = [row[column] for row in rows if column in row]
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def print_rows(
    rows: Iterable[dict[str, Any]],
    name: str,
    columns: Sequence[str],
    others: Sequence[str],
    scientific: Iterable[str] = (),
) -> int:
    """Prints each row as it comes, then the geometric means. The number that failed."""
    print(line({column: column for column in columns}, columns), flush=True)
    done = []
    for row in rows:
        done.append(row)
        if "failed" in row:
            print(f"{row[name]} | failed: {row['failed']}", flush=True)
            continue
        add_ratios(row, others)
        print(line(row, columns, scientific), flush=True)
    for other in others:
        mean = geomean(done, f"vs {other}")
        if mean is not None:
            print(f"geomean against {'torch.compile' if other == 'rival' else other}: {mean:.3f}")
    return sum("failed" in row for row in done)


def run_rows(
    script: str,
    name: str,
    values: Iterable[str],
    options: Sequence[str],
    columns: Sequence[str],
    others: Sequence[str],
    gpus: int = 1,
) -> int:
    """Prints the rows that `script --child VALUE` measures in processes of their own, as many at a time as there are `gpus`;
    1 when one failed, else 0.
    """
    wanted = list(values)
    runs = on_gpus(script, [["--child", value, *options] for value in wanted], gpus)
    rows = ({name: value, **row} for value, row in zip(wanted, runs))
    return 1 if print_rows(rows, name, columns, others) else 0


def run_cases(
    script: str,
    description: str | None,
    name: str,
    values: Sequence[str],
    measure: Callable[[str, int, bool], dict[str, Any]],
    columns: Sequence[str],
    others: Sequence[str],
    rounds: int,
) -> int:
    """The command line of a benchmark whose rows `measure(row, rounds, with the rival)` measures in processes of their own; the
    positional argument is named `name` + "s".
    """
    arguments = parser_of(description, f"{name}s", values, rounds).parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.rounds, not arguments.no_rival)))
        return 0
    wanted = getattr(arguments, f"{name}s") or values
    return run_rows(script, name, wanted, options_of(arguments, "rounds"), columns, others)
