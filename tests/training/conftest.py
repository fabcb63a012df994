from __future__ import annotations

from collections.abc import Iterator

import pytest

import tatara


@pytest.fixture
def fresh() -> Iterator[None]:
    """No entries from other tests, and the same random numbers in each."""
    torch = pytest.importorskip("torch")
    tatara.reset()
    torch.manual_seed(0)
    yield
    tatara.reset()
