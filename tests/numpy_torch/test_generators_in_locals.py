"""Generators of np.random among the variables of a frame that goes on behind a graph break: another one in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


def pause() -> None:
    print("", end="")


def unused(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    r = make(seed)
    x = torch.from_numpy(r.normal(size=3)) + t
    pause()
    return x * 2


def drawn_from(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    r = make(seed)
    x = t * 2
    pause()
    return x + torch.from_numpy(r.normal(size=3))


def drawn_by_a_method(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    draw = make(seed).uniform
    x = t * 2
    pause()
    return x + torch.from_numpy(draw(size=3))


def handed_back(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    r = make(seed)
    x = t * 2
    pause()
    return x * 2, r


def compared(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    r = make(seed)
    s = [r, make(seed)][seed % 2]
    x = t * 2
    pause()
    return x if r is s else x + 1


def asked(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    r = make(seed)
    x = t * 2
    pause()
    return x, type(r).__name__, hasattr(r, "normal"), r.get_state()["state"]["key"][3] if hasattr(r, "get_state") else 0


def twice(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    r = make(seed)
    x = t * 2
    pause()
    x = x + float(r.normal())
    pause()
    return x * 3


def a_key(t: Any, make: Callable[[int], Any], seed: int) -> Any:
    r = make(seed)
    s = [r, make(seed)][seed % 2]
    x = t * 2
    pause()
    return x + {r: 1.0}.get(s, 5.0), s in [r], id(r) == id(s), r == s


@pytest.mark.parametrize("program", [a_key, unused, drawn_from, drawn_by_a_method, handed_back, compared, asked, twice])
@pytest.mark.parametrize("kind", ["RandomState", "default_rng"])
def test_results_are_eagers(program: Callable[..., Any], kind: str) -> None:
    def make(seed: int) -> Any:
        if kind == "default_rng":
            return np.random.default_rng(seed)
        made = np.random.RandomState(seed)
        made.get_state(legacy=False)
        return made

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(plain(each) for each in value)
        if isinstance(value, np.random.Generator | np.random.RandomState):
            return float(value.normal())
        return np.round(value.numpy(), 9).tolist() if isinstance(value, torch.Tensor) else value

    rows = []
    tatara.reset()
    for run in (program, tatara.compile(program)):
        rows.append([])
        for seed in (1, 2, 3, 3, 4, 5, 5):
            try:
                rows[-1].append(plain(run(torch.ones(3, dtype=torch.float64), make, seed)))
            except (TypeError, IndexError) as error:  # get_state() is a tuple
                rows[-1].append(type(error))
    assert rows[0] == rows[1]


def test_one_that_is_no_longer_used_is_another_one_without_a_trace() -> None:
    tatara.reset()
    run = tatara.compile(lambda t: unused(t, np.random.RandomState, 3))
    t = torch.ones(3, dtype=torch.float64)
    for _ in range(4):
        run(t)
    graphs = tatara.stats()["graphs"]
    for _ in range(4):
        run(t)
    assert tatara.stats()["graphs"] == graphs
