"""Tuples that iterators and functions in C make and hand to functions in Python: one graph, and in each call what eager gives."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import same

Pair = collections.namedtuple("Pair", "a b")


def _updated(xs: list[Any], ys: list[Any]) -> Any:
    return list(map(lambda p: p[1] - 0.1 * p[0], zip(xs, ys, strict=True)))


def _kept(xs: list[Any], ys: list[Any]) -> Any:
    """The tuples themselves go on."""
    pairs = list(map(lambda p: p, zip(xs, ys, strict=True)))
    return pairs[0][0] * 2, [p[1] + 1 for p in pairs], len(pairs)


def _numbered(xs: list[Any], ys: list[Any]) -> Any:
    return sum(map(lambda p: (p[1][0] * p[1][1]).sum() * p[0], enumerate(zip(xs, ys, strict=True))))


def _largest(xs: list[Any], ys: list[Any]) -> Any:
    return max(zip(xs, ys, strict=True), key=lambda p: p[0].shape[0])[1] * 2


def _ordered(xs: list[Any], ys: list[Any]) -> Any:
    return sorted(zip(xs, ys, strict=True), key=lambda p: -p[0].shape[0])[0][1] * 2


def _filtered(xs: list[Any], ys: list[Any]) -> Any:
    return list(filter(lambda p: p[0].dim() == 1, zip(xs, ys, strict=True)))[0][0] + 1


def _reduced(xs: list[Any], ys: list[Any]) -> Any:
    return functools.reduce(lambda total, p: total + (p[0] * p[1]).sum(), zip(xs, ys, strict=True), 0)


def _items(xs: list[Any], ys: list[Any]) -> Any:
    named = {"a": xs[0], "b": ys[0]}
    made = dict(map(lambda item: (item[0], item[1] * 2), named.items()))
    return made["b"] + sorted(named.items(), key=lambda item: item[0], reverse=True)[0][1]


def _combined(xs: list[Any], ys: list[Any]) -> Any:
    return [p[0] - p[1] for p in map(lambda p: (p[0], p[1] * 2), itertools.combinations([x.sum() for x in xs], 2))]


def _grouped(xs: list[Any], ys: list[Any]) -> Any:
    return [sum(v[1].sum() for v in group) for _, group in itertools.groupby(enumerate(xs), key=lambda p: p[0] // 2)]


def _transposed(xs: list[Any], ys: list[Any]) -> Any:
    pairs = Pair(*zip(*[(x, y) for x, y in zip(xs, ys, strict=True)], strict=True))
    return torch.cat(pairs.a) * 2, torch.cat(pairs.b)


FORMS = [
    _updated,
    _kept,
    _numbered,
    _largest,
    _ordered,
    _filtered,
    _reduced,
    _items,
    _combined,
    _grouped,
    _transposed,
]


def _tensors(*sizes: int) -> tuple[list[Any], list[Any]]:
    return [torch.randn(n) for n in sizes], [torch.randn(n) for n in sizes]


@pytest.mark.parametrize("program", FORMS)
def test_one_graph(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    torch.manual_seed(0)
    for sizes in ((3, 3, 3), (3, 3, 3), (4, 2, 5), (1, 6, 2)):
        xs, ys = _tensors(*sizes)
        same(compiled(xs, ys), program(xs, ys))
    with counts() as stats:
        xs, ys = _tensors(3, 3, 3)
        same(compiled(xs, ys), program(xs, ys))
    assert (stats["breaks"], tatara.explain(program)(xs, ys).breaks) == (0, [])


def test_tuples_that_are_older() -> None:
    """They lie in a list that is not an argument: later calls see what is in it by then."""
    pairs = [(1, 2), (3, 4)]

    def f(x: Any) -> Any:
        return x * sum(map(lambda p: p[0] * p[1], pairs))

    compiled = tatara.compile(f)
    for _ in range(3):
        x = torch.randn(4)
        same(compiled(x), f(x))
        pairs[0] = (pairs[0][0] + 1, 5)
    held = iter(pairs)

    def g(x: Any) -> Any:
        return x * sum(map(lambda p: p[0] * p[1], held))

    mine, theirs = iter(pairs), iter(pairs)
    for turn in (mine, theirs):
        held = turn
        results = [(tatara.compile(g) if turn is mine else g)(torch.ones(2)) for _ in range(2)]
        assert [r.tolist() for r in results] == [[14.0 + pairs[0][0] * 5 - 2] * 2, [0.0, 0.0]] or turn is not mine


def test_steps_of_parameters_as_in_meta_learning() -> None:
    """The inner steps of MAML: `map` over `zip` of gradients and weights, with second derivatives behind them."""

    def step(weights: list[Any], x: Any, y: Any) -> Any:
        fast = weights
        for _ in range(2):
            loss = torch.nn.functional.mse_loss(torch.tanh(x @ fast[0]) @ fast[1], y)
            grads = torch.autograd.grad(loss, fast, create_graph=True)
            fast = list(map(lambda p: p[1] - 0.1 * p[0], zip(grads, fast, strict=True)))
        outer = torch.nn.functional.mse_loss(torch.tanh(x @ fast[0]) @ fast[1], y)
        outer.backward()
        return outer.detach()

    torch.manual_seed(0)
    ours = [torch.randn(3, 5, requires_grad=True), torch.randn(5, 1, requires_grad=True)]
    theirs = [w.detach().clone().requires_grad_() for w in ours]
    compiled = tatara.compile(step)
    for _ in range(4):
        x, y = torch.randn(6, 3), torch.randn(6, 1)
        same(compiled(ours, x, y), step(theirs, x, y), rtol=1e-4, atol=1e-5)
        same([w.grad for w in ours], [w.grad for w in theirs], rtol=1e-4, atol=1e-5)
    assert tatara.explain(step)(ours, x, y).breaks == []
