"""`tatara.kernel_history()`: what was compiled and launched inside a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tatara import _core


class History:
    """Differences of the counters between entry and exit of the block (or now, while it is open)."""

    def __init__(self) -> None:
        self._start = dict(_core.stats())
        self._end: dict[str, int] | None = None

    def _count(self, name: str) -> int:
        now = self._end if self._end is not None else dict(_core.stats())
        return int(now[name] - self._start[name])

    @property
    def compiled(self) -> int:
        """Kernels compiled (neither from memory nor from the disk cache)."""
        return self._count("kernels_compiled")

    @property
    def launched(self) -> int:
        """Kernel launches."""
        return self._count("kernels_launched")

    @property
    def graphs(self) -> int:
        """Graphs captured."""
        return self._count("graphs")


@contextlib.contextmanager
def kernel_history() -> Iterator[History]:
    """Records compilations and launches inside the block."""
    history = History()
    yield history
    history._end = dict(_core.stats())
