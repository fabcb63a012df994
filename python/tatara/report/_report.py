"""Reports of what was captured, why it broke, what was compiled and what each step took."""

from __future__ import annotations

import functools
import os
from typing import Any

from tatara import _core
from tatara.report._history import Event, History
from tatara.report._model import Break, CapturedGraph, HostCall, Kernel, ReportData


class Report(ReportData):
    """What `tatara.explain(fn)(*args)` found. `result` is the call's own result."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as one self-contained HTML page."""
        from tatara.report._html import save_reports

        save_reports(path, {self.name: self})


def parts_of(compiled: Any) -> list[Any]:
    """The compiled functions behind a callable or a module; none where it is not compiled."""
    if hasattr(type(compiled), "_tatara_parts"):
        return list(compiled._tatara_parts())
    while isinstance(compiled, functools.partial):
        compiled = compiled.func
    compiled = getattr(compiled, "__func__", compiled)
    return [compiled] if isinstance(compiled, _core.CompiledFunction) else []


def _name_of(compiled: Any) -> str:
    while isinstance(compiled, functools.partial):
        compiled = compiled.func
    original = getattr(compiled, "_orig_mod", None)
    if original is not None:
        return type(original).__name__
    return str(getattr(compiled, "__qualname__", None) or type(compiled).__name__)


def _microseconds(events: list[Event]) -> float | None:
    return sum(event.microseconds for event in events) if events else None


def _add_graph(report: Report, entry: dict[str, Any], history: History | None) -> None:
    details = entry.get("details") or {}
    index = len(report.graphs)
    events = history.events if history is not None and details else []
    mine = [event for event in events if event.graph == details["id"]]
    runs: dict[int, list[Event]] = {}
    for event in mine:
        if event.kind in ("launch", "host_call"):
            runs.setdefault(event.run, []).append(event)
    run = min(runs.values(), key=lambda steps: sum(step.microseconds for step in steps), default=[])
    compiles = [event for event in mine if event.kind == "compile"]
    graph = CapturedGraph(
        index=index,
        text=entry["graph"],
        lowered=entry["lowered"],
        nodes=entry["nodes"],
        fallback=entry["fallback"],
        problem=entry.get("problem", ""),
        launches=entry.get("launches", ""),
        end=entry["end"],
        guards=entry["guards"],
        hits=entry["hits"],
        capture_seconds=entry["capture_seconds"],
        stages=details.get("times", []),
        notes=details.get("notes", []),
        details=details,
        run=run,
        compiles=compiles,
    )
    report.graphs.append(graph)
    steps = details.get("steps", [])
    for number, kernel in enumerate(details.get("kernels", [])):
        report.kernels.append(
            Kernel(
                name=kernel["name"],
                graph=index,
                operators=kernel["ops"],
                bytes_read=kernel["bytes_read"],
                bytes_written=kernel["bytes_written"],
                loops=kernel["loops"],
                llvm=kernel["llvm"],
                cache=next((event.cache for event in compiles if event.kernel == number), ""),
                microseconds=_microseconds([event for event in run if event.kernel == number]),
                launches=sum(step.get("kernel") == number for step in steps),
                nodes=kernel["nodes"],
            )
        )
    for number, step in enumerate(steps):
        if step["kind"] == "host":
            took = _microseconds([event for event in run if event.step == number])
            report.host_calls.append(HostCall(step["op"], index, step["reason"], step["file"], step["line"], took))
    report.notes += [f"{subject}: {text}" for subject, text in graph.notes]


def _add_parts(report: Report, entry: dict[str, Any], history: History | None) -> None:
    """What is compiled of a graph is a graph each; torch's calls in between are told with the first of them."""
    index = len(report.graphs)
    details = entry["details"]
    for text, lowered, nodes, part in details["parts"]:
        _add_graph(report, {**entry, "graph": text, "lowered": lowered, "nodes": nodes, "details": part}, history)
    if not details["parts"]:
        _add_graph(report, {**entry, "details": None}, history)
    for step in details["between"]:
        report.host_calls.append(HostCall(step["op"], index, step["reason"], step["file"], step["line"], None))


def report_of(compiled: Any, result: Any = None, history: History | None = None) -> Report:
    """The report of what a compiled function or module has captured so far."""
    report = Report(result, _name_of(compiled), [], [], [], [], [], [], {}, [])
    for part in parts_of(compiled):
        data = part._report()
        report.breaks += [Break(b["reason"], b["file"], b["line"], b["function"]) for b in data["breaks"]]
        report.recompiles += data["recompiles"]
        for entry in data["entries"]:
            report.guards += entry["guards"]
            details = entry.get("details") or {}
            parts = [part for *_, part in details.get("parts", []) if part]
            stages = [("capture", entry["capture_seconds"])]
            stages += [time for part in (parts or [details]) for time in part.get("times", [])]
            for stage, seconds in stages:
                report.compile_seconds[stage] = report.compile_seconds.get(stage, 0.0) + seconds
            if "parts" in details:
                _add_parts(report, entry, history)
            elif entry["nodes"]:
                _add_graph(report, entry, history)
    return report
