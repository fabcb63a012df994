"""The table of a sweep: totals, the worst rows first, and why graphs break."""

from __future__ import annotations

import datetime
import math
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]

BELOW = 0.95  # of eager's speed
STATES = ("right", "wrong", "raised", "crashed", "timeout", "skipped")
FAILED = ("wrong", "raised", "crashed", "timeout")


def one_graph(row: Row) -> bool:
    """Whether the first size is a single graph of compiled code."""
    return row.get("graphs") == 1 and not row["breaks"] and not row["fallbacks"]


def _counts(rows: list[Row]) -> dict[str, str]:
    states = Counter(row["state"] for row in rows)
    timed = [row for row in rows if "ratio" in row]
    ratios = [row["ratio"] for row in timed]
    cold = sorted(row["cold_s"] for row in timed)
    swept = len(rows) - states["skipped"]
    whole = sum(one_graph(row) for row in rows)
    table = {"classes": str(len(rows)), "run": str(swept), **{state: str(states[state]) for state in STATES}}
    table["one graph"] = f"{whole} ({100 * whole / swept:.0f} %)" if swept else "0"
    table["a graph in eager"] = str(sum(bool(row.get("fallbacks")) for row in rows))
    table["second size broke more"] = str(sum((row.get("second_size") or {}).get("breaks", 0) > 0 for row in rows))
    if timed:
        table["eager / compiled, geomean"] = f"{math.exp(statistics.fmean(map(math.log, ratios))):.2f}"
        table[f"below {BELOW}"] = str(sum(ratio < BELOW for ratio in ratios))
        table["cold median, s"] = f"{statistics.median(cold):.2f}"
        table["cold largest, s"] = f"{cold[-1]:.2f}"
    return table


def finding(row: Row) -> str:
    """What is not as it should be, in a few words."""
    if row["state"] == "wrong":
        return "WRONG " + "; ".join(row["wrong"][:2])
    if row["state"] != "right":
        return row["state"].upper() + " " + row["why"]
    found = [f"in eager: {row['fallbacks'][0]}"] if row["fallbacks"] else []
    if row["breaks"]:
        places = Counter(_reason(b) for b in row["breaks"])
        found.append("; ".join(reason for reason, _ in places.most_common(2)))
    if row.get("traced"):
        found.append("the library computes something else when it is traced")
    if not row["finite"]:
        found.append("eager's values are all NaN somewhere")
    return ", ".join(found)


def _reason(item: dict[str, Any]) -> str:
    name = Path(item["file"]).name
    return f"{item['reason']} ({name}:{item['line']} in {item['function']})"


def _order(row: Row) -> tuple[Any, ...]:
    worst = {"crashed": 0, "timeout": 1, "wrong": 2, "raised": 3}.get(row["state"], 4)
    return worst, not row.get("fallbacks"), row.get("ratio", 0.0) >= BELOW, row.get("ratio", 0.0), row["class"]


def _cell(text: str, most: int = 260) -> str:
    text = re.sub(r"(?<!\w)/\S*/(?=[^/\s]+)", "", re.sub(r"/\S*site-packages/", "", text))  # places on this machine
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")[:most]


def _cut(item: dict[str, Any]) -> str:
    reason = re.sub(r" \(at \S+:\d+ in \S+\)$", "", item["reason"])
    return f"{reason} ({Path(item['file']).name}:{item['line']})"


def reasons(rows: list[Row], what: str = "breaks") -> list[tuple[str, int, str]]:
    """Why graphs break, or are cut ("cuts"): reason and place, in how many rows, and one of these."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    told = _reason if what == "breaks" else _cut
    for row in rows:
        for reason in {told(item) for item in row.get(what, [])}:
            counts[reason] += 1
            example.setdefault(reason, row["class"])
    return [(reason, count, example[reason]) for reason, count in counts.most_common()]


def print_summary(rows: list[Row]) -> int:
    """Prints the totals; returns how many rows failed."""
    for mode in dict.fromkeys(row["mode"] for row in rows):
        print(mode + ": " + ", ".join(f"{k} {v}" for k, v in _counts([r for r in rows if r["mode"] == mode]).items()))
    for reason, count, example in reasons(rows)[:12]:
        print(f"  {count:4} {reason[:150]}, as {example}")
    for reason, count, example in reasons(rows, "cuts")[:12]:
        print(f"  {count:4} in parts: {reason[:150]}, as {example}")
    return sum(row["state"] in FAILED for row in rows)


def _totals(rows: list[Row], modes: list[str]) -> list[str]:
    columns = {mode: _counts([row for row in rows if row["mode"] == mode]) for mode in modes}
    names = dict.fromkeys(name for counts in columns.values() for name in counts)
    lines = ["| | " + " | ".join(modes) + " |", "|---|" + "---:|" * len(modes)]
    lines += [f"| {name} | " + " | ".join(columns[mode].get(name, "") for mode in modes) + " |" for name in names]
    return lines


def write_page(path: Path, rows: list[Row], command: str, processor: str) -> None:
    """docs/zoo.md and its kin."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        "# Zoo",
        "",
        f"Made by `{command}` on {now}, torch {torch.__version__}, {processor}.",
        "Each class of the auto mappings of transformers, small and with random weights, in a process of its own. Compared with",
        "eager, at two sizes and with a padding mask where the model takes one: types and fields of the output, values, in",
        "training loss, gradients and buffers. A difference over the tolerance counts as wrong unless eager's own",
        "result moves as far, in float64 or with parameters changed by a rounding. Where a library computes something else once",
        "`torch.compiler.is_compiling()` is true, as torch.compile has it too, eager is told so and compared once more.",
        "",
        "- **one graph**: no break, nothing in eager;",
        "- **cold**: seconds of the first call, with empty caches;",
        "- **eager / compiled**: medians of calls that take turns;",
        "- **skipped**: no small form of the class runs in eager.",
        "",
        *_totals(rows, modes),
        "",
        "## Why graphs break",
        "",
        "| rows | reason and place | an example |",
        "|---:|---|---|",
        *(f"| {count} | {_cell(reason)} | {example} |" for reason, count, example in reasons(rows)),
        "",
        "## Why graphs are in parts",
        "",
        "Calls that torch runs between compiled parts of one entry, without going back to Python.",
        "",
        "| rows | call, reason and place | an example |",
        "|---:|---|---|",
        *(f"| {count} | {_cell(reason)} | {example} |" for reason, count, example in reasons(rows, "cuts")),
        "",
        "## Rows, the worst first",
        "",
        "| class | mode | state | graphs | breaks | host calls | cold, s | eager, ms | eager / compiled | findings |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in sorted((row for row in rows if row["state"] != "skipped"), key=_order):
        numbers = [
            str(row.get("graphs", "")),
            str(len(row["breaks"])) if "breaks" in row else "",
            str(sum(row["host_calls"].values())) if "host_calls" in row else "",
            f"{row['cold_s']:.2f}" if "cold_s" in row else "",
            f"{row['eager_ms']:.2f}" if "eager_ms" in row else "",
            f"{row['ratio']:.2f}" if "ratio" in row else "",
        ]
        cells = [row["class"], row["mode"], row["state"], *numbers, _cell(finding(row))]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Skipped", "", "| class | mode | why |", "|---|---|---|"]
    for row in sorted((row for row in rows if row["state"] == "skipped"), key=lambda r: (r["class"], r["mode"])):
        lines.append(f"| {row['class']} | {row['mode']} | {_cell(row['why'], 160)} |")
    path.write_text("\n".join(lines) + "\n")
