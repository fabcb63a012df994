"""The summary of a sweep, on the terminal and as docs/operators.md."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import torch

STATES = ["raised", "native", "host", "tape", "broke", "wrong", "crashed"]


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


def why(rows: list[dict[str, Any]]) -> str:
    """Host operators, reasons of breaks and of uncompiled graphs, failures: the most frequent first."""
    found: Counter[str] = Counter()
    for row in rows:
        if "skipped" in row:
            found["skipped: " + row["skipped"]] += 1000
        if row["wrong"]:
            found[f"{row['dtype']}: {row['wrong'][0]}"] += 1000000
        found.update({f"`{name}`": n for name, n in row.get("hosts", {}).items()})
        found.update(row.get("reasons", {}))
    text = ", ".join(" ".join(item.split()) for item, _ in found.most_common(4))
    return text.replace("|", "\\|").replace("<", "&lt;")[:300]


_PAGES = {
    "sweep.py": (
        "# Operators",
        "Every sample is compared with eager twice, when it is captured\n"
        "and when the compiled entry is found: exception with its text, values, dtype, shape, strides, aliasing, mutation of\n"
        "inputs and the state of the random generator. `errors` are the samples of bad input.",
    ),
    "gradients.py": (
        "# Gradients",
        "Every sample is compared with eager twice, when it is captured\n"
        "and when the compiled entry is found: results that require grad, gradients of first and second order under random\n"
        "cotangents, which of them are None, dtype, shape, exceptions.",
    ),
    "vmap.py": (
        "# vmap",
        "Every sample is called under `torch.vmap` inside a compiled\n"
        "function, with its tensors batched in up to three ways, and compared with eager's vmap twice, when it is captured and\n"
        "when the compiled entry is found: exception, values, dtype, shape, strides, aliasing, random numbers.",
    ),
    "forward.py": (
        "# Forward derivatives",
        "Every sample of an entry with forward derivatives is called\n"
        "under `torch.func.jvp` inside a compiled function, with random tangents, and compared with eager twice, when it is\n"
        "captured and when the compiled entry is found: exception, values and tangents, dtype, shape, strides, aliasing.",
    ),
}


def made_by(script: str, arguments: list[str]) -> str:
    """The command that makes a page, without the places of its files, which are its user's."""
    places = {"--out", "--page"}
    kept = [
        a for a, before in zip(arguments, ["", *arguments], strict=False) if a not in places and before not in places
    ]
    return " ".join([f"python tests/opinfo/{script}", *kept])


def write_page(
    path: Path, rows: list[dict[str, Any]], entries: int, arguments: list[str], script: str = "sweep.py"
) -> None:
    """docs/operators.md, docs/gradients.md and their kin: what each entry became in each dtype."""
    counts = _counts(rows)
    dtypes = list(counts)
    title, what = _PAGES[script]
    command = made_by(script, arguments)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        title,
        "",
        f"Made by `{command}` on {now}, torch {torch.__version__}, {processor()}, {torch.get_num_threads()} threads.",
        f"torch's own suite (`op_db`, {entries} entries). {what}",
        f"Together {sum(row['samples'] for row in rows)} samples, {sum(row['seconds'] for row in rows):.0f} s in one process.",
        *(
            ["Rows of earlier runs of the same day, on earlier commits, were kept (`--resume`)."]
            * ("--resume" in arguments)
        ),
        "",
        "- **native**: all samples ran as compiled kernels, without a call of an ATen kernel;",
        "- **host**: some sample calls ATen kernels from its compiled plan;",
        "- **tape**: some sample was captured, and ran by torch call by call;",
        "- **broke**: some sample has a graph break or was not captured;",
        "- **raised**: every sample raises eager's own exception;",
        "- **wrong**, **crashed**: defects.",
        "",
        "| dtype | entries | samples | " + " | ".join(STATES) + " |",
        "|---|" + "---:|" * (2 + len(STATES)),
    ]
    for dtype, c in counts.items():
        total = sum(c[s] for s in STATES)
        lines.append(f"| {dtype} | {total} | {c['samples']} | " + " | ".join(str(c[s]) for s in STATES) + " |")
    lines += ["", "| entry | " + " | ".join(dtypes) + " | ATen kernels and reasons |", "|---" * (len(dtypes) + 2) + "|"]
    by_name: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_name.setdefault(row["name"], {})[row["dtype"]] = row
    for name in sorted(by_name):
        states = [by_name[name][d]["state"] if d in by_name[name] else "" for d in dtypes]
        lines.append(f"| {name} | " + " | ".join(states) + f" | {why(list(by_name[name].values()))} |")
    path.write_text("\n".join(lines) + "\n")
