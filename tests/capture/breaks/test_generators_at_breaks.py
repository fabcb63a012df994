"""Loops over generators of the program in which each turn breaks the graph (`loss.item()`): what stands between is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tatara
from results import same

SAID: list[str] = []


def _batches(x: Any, size: int) -> Iterator[Any]:
    for i in range(0, len(x), size):
        yield x[i : i + size] * 2
    SAID.append("end")


class Loader:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __iter__(self) -> Iterator[Any]:
        for i in range(0, len(self.x), 2):
            yield self.x[i : i + 2], i


def _step(w: Any, x: Any) -> Any:
    loss = (torch.tanh(x @ w) ** 2).mean() + w.abs().sum()
    (gradient,) = torch.autograd.grad(loss, w)
    with torch.no_grad():
        w.sub_(0.1 * gradient)
    return loss.detach()


def _plain(w: Any, x: Any) -> Any:
    total = 0.0
    for batch in _batches(x, 2):
        total += _step(w, batch).item()
    return total


def _numbered(w: Any, x: Any) -> Any:
    seen = {}
    for n, batch in enumerate(_batches(x, 2)):
        seen[n] = _step(w, batch).item()
    return seen


def _class(w: Any, x: Any) -> Any:
    last = 0.0
    for batch, i in Loader(x):
        last = _step(w, batch).item()
        if i > 4:
            break
    return last


def _expression(w: Any, x: Any) -> Any:
    total = 0.0
    for batch in (b + 1 for b in x.split(2)):
        total += _step(w, batch).item()
    return total


def _held(w: Any, x: Any) -> Any:
    batches = _batches(x, 4)
    first = _step(w, next(batches)).item()
    second = _step(w, next(batches)).item()
    rest = list(batches)
    return first, second, len(rest)


def _zipped(w: Any, x: Any) -> Any:
    total = 0.0
    for a, b in zip(_batches(x, 2), _batches(x.flip(0), 2), strict=True):
        total += _step(w, a - b).item()
    return total


def _raises(w: Any, x: Any) -> Any:
    total = 0.0
    for batch in _batches(x, 2):
        total += _step(w, batch).item()
        if total > 2.0:
            raise ValueError("too much")
    return total


def _as_tensors(value: Any) -> Any:
    if isinstance(value, float):
        return torch.tensor(value)
    if isinstance(value, dict):
        return {key: _as_tensors(each) for key, each in value.items()}
    return tuple(map(_as_tensors, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("program", [_plain, _numbered, _class, _expression, _held, _zipped, _raises])
def test_as_in_eager(program: Callable[..., Any]) -> None:
    def outcome(f: Callable[..., Any], w: Any, x: Any) -> Any:
        SAID.clear()
        try:
            result = f(w, x)
        except ValueError as error:
            result = str(error)
        return _as_tensors(result), w, list(SAID)

    torch.manual_seed(0)
    weights = torch.randn(3, 4)
    mine, theirs = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    compiled = tatara.compile(program)
    for _ in range(4):
        x = torch.randn(8, 3)
        same(outcome(compiled, mine, x), outcome(program, theirs, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", [_plain, _numbered, _class, _expression])
def test_turns_are_compiled(program: Callable[..., Any]) -> None:
    tatara.reset()
    compiled = tatara.compile(program)
    w = torch.randn(3, 4, requires_grad=True)
    for _ in range(4):
        compiled(w, torch.randn(8, 3))
    before = tatara.stats()
    compiled(w, torch.randn(8, 3))
    after = tatara.stats()
    assert after["kernels_launched"] - before["kernels_launched"] >= 4
    assert after["graphs"] == before["graphs"]
