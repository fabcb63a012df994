"""`tatara.explain`: one report of what was captured, why it broke, what was compiled."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tatara import _api, _core


@dataclasses.dataclass
class Break:
    """A point where the graph ended and the program went on for real."""

    reason: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} in {self.function}: {self.reason}"


@dataclasses.dataclass
class CapturedGraph:
    """One captured graph; `str()` is its text."""

    text: str
    lowered: str
    nodes: int
    fallback: str

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass
class Report:
    """What `tatara.explain(fn)(*args)` found. `result` is the call's own result."""

    result: Any
    graphs: list[CapturedGraph]
    breaks: list[Break]
    kernels: list[dict[str, Any]]
    host_calls: list[dict[str, Any]]
    guards: list[str]
    recompiles: list[str]
    compile_seconds: dict[str, float]
    notes: list[str]

    def __str__(self) -> str:
        lines = [
            f"graphs: {len(self.graphs)}  breaks: {len(self.breaks)}  kernels: {len(self.kernels)}  "
            f"host calls: {len(self.host_calls)}"
        ]
        lines += [f"  {stage}: {seconds * 1e3:.1f} ms" for stage, seconds in self.compile_seconds.items()]
        for i, graph in enumerate(self.graphs):
            lines.append(f"graph {i}: {graph.nodes} operations")
            if graph.fallback:
                lines.append(f"  runs in eager: {graph.fallback}")
            lines += ["  " + line for line in graph.text.splitlines()]
        lines += [f"break: {item}" for item in self.breaks]
        lines += [f"kernel {k.get('name')}: {', '.join(k.get('ops', []))}" for k in self.kernels]
        lines += [f"host call: {h.get('op')} ({h.get('reason')})" for h in self.host_calls]
        lines += [f"recompile: {item}" for item in self.recompiles]
        lines.append(f"guards: {len(self.guards)}")
        return "\n".join(lines)

    def save(self, path: str) -> None:
        """Writes the report as one HTML page."""
        Path(path).write_text(_html(self), encoding="utf-8")


def _section(title: str, items: list[str]) -> str:
    if not items:
        return ""
    rows = "".join(f"<li>{html.escape(item)}</li>" for item in items)
    return f"<h2>{html.escape(title)} ({len(items)})</h2><ul>{rows}</ul>"


def _html(report: Report) -> str:
    graphs = "".join(
        f"<details><summary>graph {i}: {g.nodes} operations"
        f"{' (eager: ' + html.escape(g.fallback) + ')' if g.fallback else ''}</summary>"
        f"<pre>{html.escape(g.text)}</pre><pre>{html.escape(g.lowered)}</pre></details>"
        for i, g in enumerate(report.graphs)
    )
    kernels = "".join(
        f"<details><summary>{html.escape(str(k.get('name')))}: {html.escape(', '.join(k.get('ops', [])))}</summary>"
        f"<pre>{html.escape(str(k.get('loops', '')))}</pre><pre>{html.escape(str(k.get('llvm', '')))}</pre></details>"
        for k in report.kernels
    )
    times = [f"{stage}: {seconds * 1e3:.1f} ms" for stage, seconds in report.compile_seconds.items()]
    host = [f"{h.get('op')}: {h.get('reason')}" for h in report.host_calls]
    body = (
        f"<h1>Tatara report</h1><h2>Graphs ({len(report.graphs)})</h2>{graphs}"
        + _section("Graph breaks", [str(b) for b in report.breaks])
        + f"<h2>Kernels ({len(report.kernels)})</h2>{kernels}"
        + _section("Host calls", host)
        + _section("Recompiles", report.recompiles)
        + _section("Guards", report.guards)
        + _section("Compile time", times)
        + _section("Notes", report.notes)
    )
    style = "body{font:14px sans-serif;margin:2em;max-width:70em}pre{background:#f4f4f4;padding:.6em;overflow:auto}"
    return f"<!doctype html><meta charset=utf-8><title>Tatara report</title><style>{style}</style>{body}\n"


def _parts(compiled: Any) -> list[Any]:
    if hasattr(compiled, "_compiled_forward"):
        return [compiled._compiled_forward, compiled._compiled_call]
    return [compiled] if isinstance(compiled, _core.CompiledFunction) else []


def report_of(compiled: Any, result: Any = None) -> Report:
    """The report of what a compiled function or module has captured so far."""
    report = Report(result, [], [], [], [], [], [], {}, [])
    for part in _parts(compiled):
        data = part._report()
        report.breaks += [Break(b["reason"], b["file"], b["line"], b["function"]) for b in data["breaks"]]
        report.recompiles += data["recompiles"]
        for entry in data["entries"]:
            report.guards += entry["guards"]
            report.compile_seconds["capture"] = report.compile_seconds.get("capture", 0.0) + entry["capture_seconds"]
            details = entry.get("details") or {}
            for stage, seconds in details.get("times", []):
                report.compile_seconds[stage] = report.compile_seconds.get(stage, 0.0) + seconds
            report.kernels += details.get("kernels", [])
            report.host_calls += details.get("host_calls", [])
            report.notes += details.get("notes", [])
            if entry["nodes"]:
                report.graphs.append(CapturedGraph(entry["graph"], entry["lowered"], entry["nodes"], entry["fallback"]))
    return report


def explain(function: Any, **options: Any) -> Callable[..., Report]:
    """`explain(fn)(*args)` compiles, runs and reports. An already compiled function is reported as it is."""
    compiled = function if _parts(function) else _api.compile(function, **options)

    def run(*args: Any, **kwargs: Any) -> Report:
        return report_of(compiled, compiled(*args, **kwargs))

    return run
