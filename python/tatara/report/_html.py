"""The report as one self-contained HTML page."""

from __future__ import annotations

import importlib.resources
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tatara._errors import InvalidArgument
from tatara._version import __version__
from tatara.report import _svg
from tatara.report._model import CapturedGraph, ReportData


def _traffic(graph: CapturedGraph) -> dict[int, int]:
    """Value -> bytes, for the lowered graph."""
    sizes = {i["value"]: i["bytes"] for i in graph.details.get("inputs", [])}
    for node in graph.details.get("nodes", []):
        sizes.update(zip(node["outputs"], node["bytes"], strict=True))
    return sizes


def _unfused_bytes(graph: CapturedGraph, nodes: list[int], sizes: dict[int, int]) -> int:
    """What the operators would move one by one; views move nothing."""
    total = 0
    every = graph.details.get("nodes", [])
    for n in nodes:
        if n < len(every) and not every[n]["view"]:
            total += sum(max(sizes.get(v, 0), 0) for v in (*every[n]["inputs"], *every[n]["outputs"]))
    return total


def _places(graph: CapturedGraph, nodes: list[int]) -> list[str]:
    """Lines of the program that the nodes come from."""
    every = graph.details.get("nodes", [])
    found = dict.fromkeys(
        f"{Path(every[n]['file']).name}:{every[n]['line']}" for n in nodes if n < len(every) and every[n]["file"]
    )
    return list(found)


def _steps(report: ReportData, graph: CapturedGraph) -> list[dict[str, Any]]:
    kernels = [kernel for kernel in report.kernels if kernel.graph == graph.index]
    sizes = _traffic(graph)
    took = {event.step: event.microseconds for event in graph.run}
    slowest = max(took.values(), default=0.0)
    rows = []
    for number, step in enumerate(graph.details.get("steps", [])):
        time = took.get(number)
        row: dict[str, Any] = {"number": number, "time": time, "share": time / slowest if time and slowest else 0.0}
        if step["kind"] == "launch":
            kernel = kernels[step["kernel"]]
            apart = _unfused_bytes(graph, kernel.nodes, sizes)
            row.update(
                key=f"k{step['kernel']}",
                fill=_svg.fill(step["kernel"]),
                stroke=_svg.stroke(step["kernel"]),
                name=f"{step['kernel']} {kernel.name}",
                operators=kernel.operators,
                read=_svg.bytes_text(kernel.bytes_read),
                written=_svg.bytes_text(kernel.bytes_written),
                apart=_svg.bytes_text(apart) if apart > kernel.bytes else "",
                rate=kernel.bytes / time / 1e3 if time else None,
                places=_places(graph, kernel.nodes),
                kernel=kernel,
            )
        else:
            row.update(
                key=f"s{number}",
                fill="#4b5563",
                stroke="#1f2937",
                name=step["op"] + (f".{step['overload']}" if step["overload"] else ""),
                operators=[],
                reason=step["reason"],
                places=[f"{Path(step['file']).name}:{step['line']}"] if step["file"] else [],
                host=True,
            )
        rows.append(row)
    return rows


def _graph_context(report: ReportData, graph: CapturedGraph) -> dict[str, Any]:
    buffers = graph.details.get("buffers", [])
    arena = [b for b in buffers if b["home"] == "arena" and b["bytes"] > 0]
    steps = _steps(report, graph)
    nodes = graph.details.get("nodes", [])
    return {
        "graph": graph,
        "picture": _svg.graph_svg(graph),
        "too_many": len(nodes) if len(nodes) > _svg.MAX_NODES else 0,
        "stages": _svg.stages_svg(graph),
        "run": _svg.run_svg(graph.run),
        "run_time": sum(event.microseconds for event in graph.run),
        "kernel_time": sum(event.microseconds for event in graph.run if event.kind == "launch"),
        "host_time": sum(event.microseconds for event in graph.run if event.kind == "host_call"),
        "arena": _svg.arena_svg(graph),
        "arena_bytes": graph.details.get("arena_bytes", 0),
        "arena_sum": sum(b["bytes"] for b in arena),
        "arena_count": len(arena),
        "steps": steps,
        "launches": sum("kernel" in step for step in steps),
        "hosts": sum("host" in step for step in steps),
    }


def _program_context(name: str, report: ReportData) -> dict[str, Any]:
    total = sum(report.compile_seconds.values())
    return {
        "name": name,
        "report": report,
        "graphs": [_graph_context(report, graph) for graph in report.graphs],
        "compile_ms": total * 1e3,
        "operators": sum(len(graph.details.get("nodes", [])) for graph in report.graphs),
        "eager": [graph for graph in report.graphs if graph.fallback or graph.problem],
        "run_time": sum(event.microseconds for graph in report.graphs for event in graph.run),
    }


def _versions() -> str:
    parts = [f"tatara {__version__}", f"Python {platform.python_version()}"]
    torch = sys.modules.get("torch")
    if torch is not None:
        parts.append(f"torch {torch.__version__}")
    return ", ".join([*parts, platform.platform()])


def render(reports: Mapping[str, ReportData]) -> str:
    """The page's text."""
    try:
        import jinja2
    except ImportError as error:
        raise InvalidArgument("writing a report needs Jinja2: pip install 'tatara[report]'") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["bytes"] = _svg.bytes_text
    environment.filters["duration"] = _svg.time_text
    text = importlib.resources.files("tatara.report").joinpath("templates/report.html").read_text(encoding="utf-8")
    programs = [_program_context(name, report) for name, report in reports.items()]
    return environment.from_string(text).render(programs=programs, versions=_versions())


def save_reports(path: str | os.PathLike[str], reports: Mapping[str, ReportData]) -> None:
    """Writes one page with a tab per report."""
    Path(path).write_text(render(reports), encoding="utf-8")
