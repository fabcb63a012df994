"""`tatara.kernel_history()`: every compilation and launch inside a block, as events."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from tatara import _core


@dataclasses.dataclass(frozen=True)
class Event:
    """One thing that happened. `kind` is "graph" (a graph was compiled), "compile" (code of one kernel was made or
    found), "launch" (a kernel ran) or "host_call" (one of torch's own kernels ran).
    """

    kind: str
    name: str
    graph: int
    """number of the compiled graph"""
    run: int
    """launches and calls of torch's kernels of one run of a graph share it; -1 for compilations"""
    step: int
    """position in the graph's plan"""
    kernel: int
    """number of the kernel in its graph; -1 for calls of torch's kernels"""
    operators: tuple[str, ...]
    loops: str
    """compile: the kernel's loops as text"""
    cache: str
    """compile: "compiled" by LLVM, or found in "memory" or on "disk" """
    sizes: tuple[int, ...]
    """launch: values of the kernel's symbolic sizes"""
    iterations: int
    """launch: iterations of the loops that run in parallel"""
    grain: int
    """launch: iterations that a thread takes at a time"""
    items: int
    """launch on a GPU: how many launches of this kernel, each on tensors of its own, are grouped in it; 0: none are"""
    bytes: int
    """memory read and written"""
    start: float
    """seconds on a clock that all events share"""
    microseconds: float
    thread: int

    @property
    def cache_hit(self) -> bool:
        """Whether code was found instead of compiled."""
        return self.cache in ("memory", "disk")

    def __str__(self) -> str:
        what = f"{self.kind} {self.name}"
        if self.kind == "compile":
            what += f" ({self.cache})"
        if self.kind == "launch":
            what += f" for {self.items}" if self.items else f" over {self.iterations}"
            what += f", {self.bytes} bytes"
        return f"{what}: {self.microseconds:.1f} us"


def _event(data: dict[str, Any]) -> Event:
    return Event(**{**data, "operators": tuple(data["operators"]), "sizes": tuple(data["sizes"])})


class History:
    """What happened inside the block, in all threads; readable while the block is open, too."""

    def __init__(self) -> None:
        self._recorder = _core.HistoryRecorder()
        self._events: list[Event] = []
        self._start = dict(_core.stats())
        self._end: dict[str, int] | None = None

    def _open(self) -> None:
        self._recorder.start()

    def _close(self) -> None:
        self._recorder.stop()
        self._end = dict(_core.stats())

    def _count(self, name: str) -> int:
        now = self._end if self._end is not None else dict(_core.stats())
        return int(now[name] - self._start[name])

    @property
    def events(self) -> list[Event]:
        """Everything, in the order in which it ended."""
        self._events += [_event(data) for data in self._recorder.events(len(self._events))]
        return list(self._events)

    def _kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    @property
    def compiles(self) -> list[Event]:
        """One event per kernel of each graph that was compiled, cache hits among them."""
        return self._kind("compile")

    @property
    def launches(self) -> list[Event]:
        """One event per kernel launch."""
        return self._kind("launch")

    @property
    def host_calls(self) -> list[Event]:
        """One event per operator of a compiled graph that torch's own kernel ran."""
        return self._kind("host_call")

    @property
    def compiled(self) -> int:
        """Kernels that LLVM compiled (neither found in memory nor in the disk cache)."""
        return sum(event.cache == "compiled" for event in self.compiles)

    @property
    def launched(self) -> int:
        """Kernel launches."""
        return len(self.launches)

    @property
    def graphs(self) -> int:
        """Graphs captured."""
        return self._count("graphs")

    @property
    def breaks(self) -> int:
        """Graph breaks met while capturing."""
        return self._count("breaks")

    @property
    def recompiles(self) -> int:
        """Calls for which no captured entry fit, though there were some."""
        return self._count("recompiles")

    def __str__(self) -> str:
        return "\n".join(str(event) for event in self.events)


@contextlib.contextmanager
def kernel_history() -> Iterator[History]:
    """Records compilations and launches inside the block. Costs nothing when no block is open."""
    history = History()
    history._open()
    try:
        yield history
    finally:
        history._close()
