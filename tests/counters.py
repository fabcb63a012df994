"""How much the counters of tatara.stats() grow over a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tatara


@contextlib.contextmanager
def counts() -> Iterator[dict[str, int]]:
    """Gives a dictionary that has a number for each counter when the block has ended."""
    before = tatara.stats()
    grown: dict[str, int] = {}
    yield grown
    grown.update({name: value - before[name] for name, value in tatara.stats().items()})
