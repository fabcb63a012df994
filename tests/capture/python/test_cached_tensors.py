"""Functions with a cache (functools.lru_cache) that get or make tensors."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


def test_a_cached_tensor_is_the_same_in_every_call() -> None:
    @functools.lru_cache
    def mask(n: int) -> Any:
        return torch.arange(float(n)) * 2

    def program(x: Any) -> Any:
        return x + mask(3), mask(3)

    tatara.reset()
    run = tatara.compile(program)
    x = torch.ones(3)
    results = [run(x) for _ in range(3)]
    assert all(made is mask(3) for _, made in results)
    mask(3)[0] = 7.0
    assert torch.equal(run(x)[0], program(x)[0])


def test_a_tensor_is_a_key_by_identity() -> None:
    calls = []

    @functools.lru_cache
    def double(x: Any) -> Any:
        calls.append(1)
        return x * 2

    def program(x: Any) -> Any:
        return double(x) + 1

    tatara.reset()
    run = tatara.compile(program)
    x = torch.ones(3)
    first = run(x)
    x.add_(1)
    assert torch.equal(run(x), first)  # the cache still has the old product
    assert len(calls) == 1
    assert double.cache_info().misses == 1
    assert torch.equal(run(torch.ones(3)), first)
    assert len(calls) == 2
