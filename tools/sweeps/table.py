"""The summary of a sweep on the terminal, and docs/status.md: what each operator is when it is run, differentiated, batched
and differentiated forward.

The page is made of two files beside it. status.csv has a row for each operator, with a column for each sweep and dtype and one
for the reasons of each sweep; status-runs.csv says how each column was made.

usage: table.py     makes the page anew from the two files (the sweeps do so themselves: `make status`)
"""

from __future__ import annotations

import csv
import datetime
import io
import platform
import sys
from collections import Counter
from pathlib import Path
from typing import Any

STATES = ["raised", "native", "host", "tape", "broke", "wrong", "crashed"]
# The program of each sweep, its column in the page, and what it compares.
SWEEPS = {
    "sweep.py": ("run", "Values, exceptions, dtype, shape, strides, aliasing, mutation of inputs, random generator."),
    "gradients.py": ("grad", "Gradients of first and second order under random cotangents; which are None."),
    "vmap.py": ("vmap", "`torch.vmap` with tensors batched in up to three ways."),
    "forward.py": ("jvp", "`torch.func.jvp` with random tangents."),
}
RUN_COLUMNS = ["sweep", "dtype", "samples", "seconds", "command", "made", "torch", "processor", "threads"]
BETWEEN = " / "  # reasons in status.csv
PAGE = Path(__file__).resolve().parents[2] / "docs" / "status.md"
HEAD = """# Status of operators

Each entry of torch's own suite (`op_db`) in four columns: run, differentiated (grad), batched (vmap), differentiated forward (jvp).
Every sample is compared with eager twice: when it is captured, and when the compiled entry is found. A cell is the worst state over all dtypes.
An empty cell has no samples. [status.csv](status.csv) has the state in each dtype and more reasons.

- **native**: all samples ran as compiled kernels, without a call of an ATen kernel;
- **host**: some sample calls ATen kernels from its compiled plan;
- **tape**: some sample was captured, and ran by torch call by call;
- **broke**: some sample has a graph break or was not captured;
- **raised**: every sample raises eager's own exception;
- **wrong**, **crashed**: defects.

`make status` runs the sweeps and makes this page. `errors` are the samples of bad input, `autocast` those of float32 with autocast on.
"""


def _counts(rows: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    table: dict[str, Counter[str]] = {}
    for row in rows:
        table.setdefault(row["dtype"], Counter())[row["state"]] += 1
        table[row["dtype"]]["samples"] += row["samples"]
    return table


def print_summary(rows: list[dict[str, Any]]) -> int:
    """Prints one line per dtype; returns the number of rows that are wrong or crashed."""
    print(f"{'dtype':10}" + "".join(f"{s:>9}" for s in ["entries", "samples", *STATES]))
    for dtype, counts in _counts(rows).items():
        entries = sum(counts[s] for s in STATES)
        print(f"{dtype:10}{entries:9}{counts['samples']:9}" + "".join(f"{counts[s]:9}" for s in STATES))
    failed = sum(row["state"] in ("wrong", "crashed") for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return failed


def processor() -> str:
    """The name of the machine's processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def reasons(rows: list[dict[str, Any]]) -> list[str]:
    """ATen operators, reasons of breaks and of uncompiled graphs, failures: the most frequent four first."""
    found: Counter[str] = Counter()
    for row in rows:
        if "skipped" in row:
            found["skipped: " + row["skipped"]] += 1000
        if row["wrong"]:
            found[f"{row['dtype']}: {row['wrong'][0]}"] += 1000000
        found.update({f"`{name}`": n for name, n in row.get("hosts", {}).items()})
        found.update(row.get("reasons", {}))
    return [" ".join(item.split()) for item, _ in found.most_common(4)]


def _cell(text: str) -> str:
    """As a cell of a table of a page."""
    return text[:300].replace("|", "\\|").replace("<", "&lt;")


def why(rows: list[dict[str, Any]]) -> str:
    """The reasons as a cell."""
    return _cell(", ".join(reasons(rows)))


def made_by(script: str, arguments: list[str]) -> str:
    """The command that makes a column, without the places of its files, which are its user's."""
    places = {"--out", "--page"}
    kept = [
        a for a, before in zip(arguments, ["", *arguments], strict=False) if a not in places and before not in places
    ]
    return " ".join([f"python tools/sweeps/{script}", *kept])


Table = list[dict[str, str]]


def _read(path: Path) -> Table:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, columns: list[str], rows: Table) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())


def _files(page: Path) -> tuple[Path, Path]:
    """status.csv and status-runs.csv of a page."""
    return page.with_suffix(".csv"), page.with_name(page.stem + "-runs.csv")


def _columns(runs: Table, sweep: str) -> list[str]:
    return [f"{sweep} {run['dtype']}" for run in runs if run["sweep"] == sweep]


def _worst(row: dict[str, str], columns: list[str]) -> str:
    """The worst state of some columns."""
    return max((row[column] for column in columns if row[column]), key=STATES.index, default="")


def render(page: Path) -> str:
    """The text of the page, of what is in its two files."""
    rows, runs = (_read(path) for path in _files(page))
    sweeps = [(sweep, what) for sweep, what in SWEEPS.values() if _columns(runs, sweep)]
    lines = [
        HEAD,
        "| sweep | dtype | entries | samples | " + " | ".join(STATES) + " |",
        "|---|---|" + "---:|" * (2 + len(STATES)),
    ]
    for run in runs:
        counts = Counter(row[f"{run['sweep']} {run['dtype']}"] for row in rows)
        total = sum(counts[state] for state in STATES)
        states = " | ".join(str(counts[state]) for state in STATES)
        lines.append(f"| {run['sweep']} | {run['dtype']} | {total} | {run['samples']} | {states} |")
    lines += ["", "| sweep | compares | made by | on | seconds in one process |", "|---|---|---|---|---:|"]
    for sweep, what in sweeps:
        run = next(run for run in runs if run["sweep"] == sweep)
        where = f"{run['made']}, torch {run['torch']}, {run['processor']}, {run['threads']} threads"
        lines.append(f"| {sweep} | {what} | `{run['command']}` | {where} | {run['seconds']} |")
    names = [sweep for sweep, _ in sweeps]
    lines += [
        "",
        "| operator | " + " | ".join(names) + " | ATen kernels and reasons |",
        "|---" * (len(names) + 2) + "|",
    ]
    for row in rows:
        states = " | ".join(_worst(row, _columns(runs, sweep)) for sweep in names)
        of_reason: dict[str, list[str]] = {}
        for sweep in names:
            for reason in row[f"why {sweep}"].split(BETWEEN)[:2]:
                of_reason.setdefault(reason, []).append(sweep)
        text = "; ".join(f"{reason} ({', '.join(of)})" for reason, of in of_reason.items() if reason)
        lines.append(f"| {row['operator']} | {states} | {_cell(text)} |")
    return "\n".join(lines) + "\n"


def write_page(page: Path, rows: list[dict[str, Any]], arguments: list[str], script: str) -> None:
    """Puts the rows of a whole sweep in place of its last ones, in the files of the page, and makes the page."""
    import torch

    sweep = SWEEPS[script][0]
    table, runs = (_read(path) for path in _files(page))
    by_name = {row["operator"]: row for row in table}
    for row in table:
        row.update(dict.fromkeys([*_columns(runs, sweep), f"why {sweep}"], ""))
    made = {
        "sweep": sweep,
        "command": made_by(script, arguments),
        "made": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "processor": processor(),
        "threads": str(torch.get_num_threads()),
        "seconds": f"{sum(row['seconds'] for row in rows):.0f}",
    }
    new_runs = [{**made, "dtype": d, "samples": str(c["samples"])} for d, c in _counts(rows).items()]
    runs = [run for name, _ in SWEEPS.values() for run in (new_runs if name == sweep else runs) if run["sweep"] == name]
    of_name: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_name.setdefault(row["name"], []).append(row)
    for name, found in of_name.items():
        states = {f"{sweep} {row['dtype']}": row["state"] for row in found}
        by_name.setdefault(name, {"operator": name}).update({**states, f"why {sweep}": BETWEEN.join(reasons(found))})
    names = [name for name, _ in SWEEPS.values()]
    columns = ["operator", *(c for name in names for c in _columns(runs, name)), *(f"why {name}" for name in names)]
    kept = [{c: row.get(c, "") for c in columns} for _, row in sorted(by_name.items())]
    kept = [row for row in kept if any(row[c] for c in columns[1:])]
    _write(_files(page)[0], columns, kept)
    _write(_files(page)[1], RUN_COLUMNS, runs)
    page.write_text(render(page))


if __name__ == "__main__":
    PAGE.write_text(render(PAGE))
    sys.exit(0)
