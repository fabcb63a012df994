"""What a report is made of, as plain data: the pages and pictures are made from it."""

from __future__ import annotations

import dataclasses
import linecache
import re
from pathlib import Path
from typing import Any

from tatara.report._history import Event

# What a user can do about a break, by what its reason says. The first that matches counts.
_HINTS = (
    (
        r"call of __bool__|truth of an array",
        "A branch needs the value of a tensor. torch.where(condition, a, b) keeps both sides in one graph.",
    ),
    (
        r"call of (item|__int__|__float__|__index__|__complex__|tolist|numpy|__array__)\b",
        "A Python value is made from a tensor's. Tensors without dimensions take part in arithmetic as they are.",
    ),
    (
        r"call of (print|\w*\.?(write|warn|log|info|debug|warning))\b",
        "Output shows values, so they must exist at that point. The graph goes on after it.",
    ),
    (
        r"an object that existed before the trace|assignment to (the global|a closure variable|a tensor's attribute)",
        "Something from outside is changed, which happens for real. Return the new value instead, or leave it: the graph "
        "goes on after it.",
    ),
    (r"TorchScript|generator functions", "Its code cannot be traced: give tatara.compile the Python code around it."),
    (r"the (result|frame) holds", "Such an object cannot be made again on later calls. Return tensors and containers."),
    (r"nb_func|call of ", "Tatara does not know what this C function does, so it is called for real."),
)


@dataclasses.dataclass(frozen=True)
class Break:
    """A point where a graph ended and the program went on for real."""

    reason: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} in {self.function}: {self.reason}"

    @property
    def hint(self) -> str:
        """What it means, and what to do about it; may be empty."""
        return next((text for pattern, text in _HINTS if re.search(pattern, self.reason)), "")

    def source(self, around: int = 2) -> list[tuple[int, str]]:
        """Lines of the program about the break, with their numbers; empty when the source is not there."""
        lines = linecache.getlines(self.file)
        first, last = max(1, self.line - around), min(len(lines), self.line + around)
        return [(n, lines[n - 1].rstrip("\n")) for n in range(first, last + 1)]


@dataclasses.dataclass
class Kernel:
    """One kernel of a graph."""

    name: str
    graph: int
    """position of its graph in `Report.graphs`"""
    operators: list[str]
    """operators fused into it"""
    bytes_read: int
    bytes_written: int
    loops: str
    llvm: str
    """empty when the code came from a cache and nobody asked before"""
    cache: str
    """"compiled", "memory" or "disk"; empty when it was compiled before the report was asked for"""
    microseconds: float | None
    """of its launches in the measured run"""
    launches: int
    nodes: list[int]
    """nodes of the lowered graph"""

    @property
    def bytes(self) -> int:
        """Memory that a launch moves, under the sizes of the first call."""
        return self.bytes_read + self.bytes_written

    def __str__(self) -> str:
        took = "" if self.microseconds is None else f", {self.microseconds:.1f} us"
        return f"{self.name}: {', '.join(self.operators)} ({self.bytes:,} bytes{took})"


@dataclasses.dataclass
class HostCall:
    """An operator of a graph that torch's own kernel runs."""

    operator: str
    graph: int
    reason: str
    file: str
    line: int
    microseconds: float | None

    def __str__(self) -> str:
        place = f" at {Path(self.file).name}:{self.line}" if self.file else ""
        took = "" if self.microseconds is None else f", {self.microseconds:.1f} us"
        return f"{self.operator}{place}: {self.reason}{took}"


@dataclasses.dataclass
class CapturedGraph:
    """One captured graph; `str()` is its text as captured, `lowered` the text that kernels were made from."""

    index: int
    text: str
    lowered: str
    nodes: int
    fallback: str
    """why the graph runs in eager; empty when it was compiled"""
    problem: str
    """why its last run went back to eager; empty when none did"""
    launches: str
    """on a GPU: how its steps are launched, and why"""
    end: str
    """"return" or "break" """
    guards: list[str]
    hits: int
    capture_seconds: float
    stages: list[tuple[str, float]]
    notes: list[tuple[str, str]]
    """choices of the scheduler: (value, what and why)"""
    details: dict[str, Any]
    """the plan as data, for the pictures; empty when nothing was compiled"""
    run: list[Event]
    """the quickest of the measured runs, step by step"""
    compiles: list[Event]

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass
class ReportData:
    """What a report says, and its text."""

    result: Any
    name: str
    graphs: list[CapturedGraph]
    breaks: list[Break]
    kernels: list[Kernel]
    host_calls: list[HostCall]
    guards: list[str]
    recompiles: list[str]
    """per recompile: the guard that failed"""
    compile_seconds: dict[str, float]
    """by stage: capture, rewrite, schedule, code, load"""
    notes: list[str]
    """what did not fuse and why, and other choices"""

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {len(self.graphs)} graphs, {len(self.breaks)} breaks, {len(self.kernels)} kernels, "
            f"{len(self.host_calls)} host calls, {len(self.recompiles)} recompiles, {len(self.guards)} guards"
        ]
        if self.compile_seconds:
            stages = ", ".join(f"{stage} {seconds * 1e3:.1f}" for stage, seconds in self.compile_seconds.items())
            lines.append(f"compile time in ms: {stages}")
        for graph in self.graphs:
            lines.append(f"graph {graph.index}: {graph.nodes} operations, ends in a {graph.end}")
            if graph.fallback:
                lines.append(f"  runs in eager: {graph.fallback}")
            if graph.problem:
                lines.append(f"  a run went back to eager: {graph.problem}")
            if graph.launches:
                lines.append(f"  its steps are launched {graph.launches}")
            lines += ["  " + line for line in graph.text.splitlines()]
        for item in self.breaks:
            lines.append(f"break: {item}")
            if item.hint:
                lines.append(f"  {item.hint}")
        lines += [f"kernel {item}" for item in self.kernels]
        lines += [f"host call {item}" for item in self.host_calls]
        lines += [f"recompile: {item}" for item in self.recompiles]
        lines += [f"note: {item}" for item in self.notes]
        return "\n".join(lines)
