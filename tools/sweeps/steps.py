"""What the sweeps over modules and optimizers share: steps in eager and compiled, and what each entry became in them."""

from __future__ import annotations

import argparse
import datetime
import functools
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

import samples
import sweep
import tatara
from table import STATES, made_by, print_summary, processor, why

STATS = ("graphs", "breaks", "recompiles", "fallbacks")
COUNTED = (*STATS, "again")
# Steps that may compile: the first sees each number once, the second what may differ. The parts between breaks, inside of
# functions that a part calls, may be reached one step later.
SETTLED = 2
# Of many operators and steps in a row (samples.compare).
SLACK = 8

Step = Callable[[int], dict[str, Any]]


def _taken(step: Step, number: int) -> tuple[dict[str, Any], BaseException | None]:
    try:
        return step(number), None
    except Exception as error:  # noqa: BLE001 - the exception is the result that is compared
        return {}, error


def compare_steps(
    eager: Step, ours: Step, exact: Callable[[], Step], compiled: Sequence[Any], count: int, row: dict[str, Any]
) -> str | None:
    """Takes `count` steps both ways, each a tree of results by what they are ("forward", "backward", "state").

    `exact` makes the steps in double precision. Returns the first difference; what the steps became is counted in the
    row, also whether one after the second compiled something ("again").
    """
    before = tatara.stats()
    settled: dict[str, int] = {}
    precise: list[dict[str, Any]] = []

    def in_double(number: int, part: str) -> Any:
        if not precise:
            step = exact()
            precise.extend(_taken(step, i)[0] for i in range(count))
        return precise[number].get(part)

    problem, failed = None, False
    for number in range(count):
        theirs, expected = _taken(eager, number)
        made, error = _taken(ours, number)
        problem = samples.same_error(error, expected)
        failed = failed or expected is not None
        for part, value in theirs.items():
            row["checked"][part] += 1
            precisely = functools.partial(in_double, number, part)
            differs = samples.compare(made.get(part), value, precisely, True, SLACK)
            if differs and not problem:
                problem = f"{part}: {differs}"
        if problem:
            problem = f"step {number}: {problem}"
            break
        if number + 1 == (SETTLED if tatara.stats()["breaks"] == before["breaks"] else SETTLED + 1):
            settled = tatara.stats()
    after = tatara.stats()
    for key in STATS:
        row[key] = row.get(key, 0) + after[key] - before[key]
    state = "raised" if failed else max((samples.state_of(c, before, row) for c in compiled), key=STATES.index)
    row["counts"][state] += 1
    if problem is None and any(after[key] > settled.get(key, after[key]) for key in ("graphs", "recompiles")):
        row["again"] += 1
        row["reasons"]["compiled again after the second step"] += 1
    return problem


def new_row(row: dict[str, Any]) -> None:
    """What the rows of these sweeps hold besides."""
    row.setdefault("checked", Counter())
    row.setdefault("again", 0)


def failed(rows: list[dict[str, Any]]) -> int:
    """Rows that are wrong or crashed, or compile again and again."""
    return sum(row["state"] in ("wrong", "crashed") or row.get("again", 0) > 0 for row in rows)


def totals(rows: list[dict[str, Any]]) -> str:
    """One line about all rows."""
    states = Counter(row["state"] for row in rows)
    counts = {key: sum(row.get(key, 0) for row in rows) for key in COUNTED}
    found = ", ".join(f"{states[s]} {s}" for s in STATES if states[s])
    return f"{len(rows)} rows: {found}; " + ", ".join(f"{n} {key}" for key, n in counts.items())


def write_page(path: Path, rows: list[dict[str, Any]], head: str, script: str, arguments: Sequence[str]) -> None:
    """A table of one line per entry."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    command = made_by(script, list(arguments))
    columns = list(dict.fromkeys(row["dtype"] for row in rows))
    parts = list(dict.fromkeys(part for row in rows for part in row.get("checked", {})))
    lines = [
        head.strip(),
        "",
        f"Made by `{command}` on {now}, torch {torch.__version__}, {processor()}.",
        "",
        f"{totals(rows)}.",
        "",
        "- **native**: compiled kernels alone;",
        "- **host**: with calls of ATen kernels;",
        "- **tape**: captured, but run by torch call by call;",
        "- **broke**: a graph break, or code that was not captured;",
        "- **raised**: eager's own exception.",
        "",
        f"The worst sample counts. {', '.join(parts)}: how often each was compared. again: samples in which a step after the",
        "second compiled something.",
        "",
        "| entry | " + " | ".join([*columns, "samples", *parts, *COUNTED]) + " | ATen kernels, reasons, defects |",
        "|---" * (len(columns) + 1) + "|" + "---:|" * (len(parts) + len(COUNTED) + 1) + "---|",
    ]
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["name"], {})[row["dtype"]] = row
    for name, of_entry in by_name.items():
        mine = list(of_entry.values())
        numbers = [sum(r["samples"] for r in mine)]
        numbers += [sum(r.get("checked", {}).get(part, 0) for r in mine) for part in parts]
        numbers += [sum(r.get(key, 0) for r in mine) for key in COUNTED]
        states = [of_entry[c]["state"] if c in of_entry else "" for c in columns]
        lines.append(f"| {name} | " + " | ".join([*states, *map(str, numbers)]) + f" | {why(mine)} |")
    path.write_text("\n".join(lines) + "\n")


def check_cases(
    name: str,
    dtype_name: str,
    cases: Iterable[Any],
    limit: int | None,
    progress: Callable[[int], None],
    check: samples.Check,
) -> dict[str, Any]:
    """The row of an entry: at most `limit` of its cases go through `check`."""

    def one(case: Any, number: int, row: dict[str, Any]) -> str | None:
        progress(number)
        return check(case, number, row)

    return samples.run_samples(name, dtype_name, itertools.islice(cases, limit), one, 8)


def run(
    script: str,
    arguments: argparse.Namespace,
    entries: dict[str, Any],
    takes: Callable[[Any, str], bool],
    check: sweep.Check,
    head: str,
) -> int:
    """The sweep of `script` over the entries in each dtype that they take; the exit status."""
    warnings.simplefilter("ignore")
    tasks = [
        (name, dtype)
        for name, info in entries.items()
        for dtype in arguments.dtypes
        if takes(info, dtype) and sweep.selected(name, arguments.entries)
    ]
    rows = sweep.run_all(tasks, entries, arguments, check)
    print_summary(rows)
    print(totals(rows))
    if arguments.page:
        write_page(Path(arguments.page), rows, head, script, sys.argv[1:])
    return 1 if failed(rows) else 0
