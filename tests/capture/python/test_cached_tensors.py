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


def _tried(draw: bool) -> tuple[Any, Any]:
    """A program that asks a cached function, which tries types by making tensors."""

    @functools.lru_cache
    def dtypes(names: tuple[str, ...]) -> Any:
        return {name: torch.empty(0, dtype=getattr(torch, name)).dtype for name in names}

    @functools.lru_cache
    def widest(names: tuple[str, ...]) -> Any:
        found = dtypes(names)
        made = torch.rand(2, dtype=found[names[0]]) if draw else torch.ones(2, dtype=found[names[0]])
        return tuple(found.values()), made.dim()

    def program(x: Any) -> Any:
        (first, _), dim = widest(("float64", "float32"))
        return x.to(first) + dim

    return program, (dtypes, widest)


def test_a_cached_answer_for_which_tensors_were_made() -> None:
    program, cached = _tried(False)
    x = torch.ones(3)
    expected = program(x)
    for each in cached:
        each.cache_clear()
    tatara.reset()
    assert not tatara.explain(program)(x).breaks
    run = tatara.compile(program)
    for _ in range(3):
        assert torch.equal(run(x), expected)
    for each in cached:
        each.cache_clear()
    assert torch.equal(run(x), expected)
    assert [each.cache_info().misses for each in cached] == [1, 1]


def test_a_cached_answer_for_which_random_numbers_were_drawn() -> None:
    x = torch.ones(3)
    states = []
    for compiled in (False, True):
        program, _ = _tried(True)
        run = tatara.compile(program) if compiled else program
        torch.manual_seed(3)
        for _ in range(4):
            run(x)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)
