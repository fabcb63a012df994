"""Counts of CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tatara


@contextmanager
def counted(launched: int | None = None, recorded: int | None = None) -> Iterator[None]:
    """The block launches and records so many CUDA graphs (None: any number), and nothing falls back."""
    before = tatara.stats()
    yield
    after = tatara.stats()
    assert after["fallbacks"] == before["fallbacks"]
    if launched is not None:
        assert after["cuda_graphs_launched"] - before["cuda_graphs_launched"] == launched
    if recorded is not None:
        assert after["cuda_graphs_recorded"] - before["cuda_graphs_recorded"] == recorded
