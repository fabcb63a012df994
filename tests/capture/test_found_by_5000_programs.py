"""Classes of wrong results that runs of 5,000 generated programs found, each over a table of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara
from results import same

# ---- Sizes from numbers that may be negative -------------------------------------------------------------------------

SIZED: dict[str, Callable[[Any, int], Any]] = {
    "eye": lambda x, n: torch.eye(n % 6),
    "ones": lambda x, n: torch.ones(n % 6, n % 4) * 2,
    "arange": lambda x, n: torch.arange(n % 6) + n // 4,
    "full": lambda x, n: torch.full((n % 5,), n),
    "roll": lambda x, n: x.roll(n % 3, 0),
    "part": lambda x, n: x[n % 3 :] * (n // 2),
    "tril": lambda x, n: torch.ones(4, 4).tril(n % 3 - 1),
    "floor division": lambda x, n: torch.zeros((n // 3) * (n // 3)) + 1,
    "repeated": lambda x, n: x.repeat(n % 3 + 1, 1),
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize(
    "numbers", [(5, 3, -1, -2, -7, 4, -2), (-1, -5, -3, 2, 7, -4), (0, -1, 1, -2, 6)], ids=["down", "up", "around"]
)
def test_sizes_of_numbers_with_signs(name: str, numbers: tuple[int, ...]) -> None:
    f = SIZED[name]
    compiled = tatara.compile(f)
    for n in numbers:
        x = torch.arange(12.0).reshape(4, 3)
        same(compiled(x, n), f(x, n), rtol=0, atol=0)


# ---- Grad mode after an error below code in C ------------------------------------------------------------------------


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Any) -> Any:
        return v * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


FAILING: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda v, i: v[i],
    "index_add": lambda v, i: torch.zeros(4, 3).index_add(0, i, v),
    "embedding": lambda v, i: F.embedding(i, v),
    "gather": lambda v, i: v.gather(0, i[:, None].expand(4, 3)),
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("through", ["map", "sorted", "called"])
def test_grad_mode_after_an_error(name: str, mode: Any, through: str) -> None:
    def inner(v: Any, i: Any) -> Any:
        with mode():
            v = FAILING[name](v, i)
            v = Double.apply(v)  # type: ignore[no-untyped-call]
        return v + 1

    def f(v: Any, i: Any) -> Any:
        if through == "map":
            return list(map(lambda each: inner(each, i), [v]))[0]
        if through == "sorted":
            kept: list[Any] = []
            sorted([1, 2], key=lambda each: kept.append(inner(v, i)) or each)
            return kept[0]
        return inner(v, i)

    good, bad = torch.tensor([0, 1, 3, 2]), torch.tensor([0, 1, 7, 2])
    for outer in (True, False):
        for order in ([good, good, bad, bad, good], [bad, good, bad]):
            compiled = tatara.compile(f)
            for i in order:
                outcomes = []
                for g in (f, compiled):
                    with torch.set_grad_enabled(outer):
                        try:
                            result = g(torch.ones(4, 3), i)
                            outcome: Any = (result.tolist(), result.requires_grad)
                        except Exception as error:
                            outcome = type(error)
                        outcomes.append((outcome, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
                assert outcomes[0] == outcomes[1]


# ---- What code in C reads through iterators, and what an old set gives -----------------------------------------------

TABLES = [{"a": 1}, {"b": 2}]
READERS: dict[str, Callable[[], Any]] = {
    "map of fromkeys": lambda: [dict(each) for each in map(dict.fromkeys, reversed(TABLES))],
    "map of len": lambda: list(map(len, iter(TABLES))),
    "sum of map": lambda: sum(map(len, TABLES)),
    "chain": lambda: sorted(key for each in map(list, reversed(TABLES)) for key in each),
    "zip": lambda: [dict(a) | dict(b) for a, b in zip(reversed(TABLES), TABLES, strict=True)],
    "max of iter": lambda: len(max(iter(TABLES), key=len)),
    "join": lambda: ",".join(map(str, reversed(TABLES))),
    "filter": lambda: len(list(filter(None, map(dict.copy, TABLES)))),
}


@pytest.mark.parametrize("name", READERS)
def test_contents_behind_iterators(name: str) -> None:
    def f(x: Any) -> Any:
        return x + 1, READERS[name]()

    TABLES[:] = [{"a": 1}, {"b": 2}]
    compiled = tatara.compile(f)
    x = torch.ones(2)
    for change in (lambda: None, lambda: TABLES[0].update(c=3), lambda: TABLES[1].clear(), lambda: TABLES.pop()):
        change()
        assert compiled(x)[1] == f(x)[1]


@pytest.mark.parametrize("made", ["{1, 2, 3}", "set(range(5))", "{9, 1}", "{4}", "set('abcdef')"])
def test_what_an_old_set_pops(made: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        held = eval(made)

        def f(x: Any) -> Any:
            popped = held.pop()
            held.add(popped)
            held.add(4)
            return x + 1, popped, sorted(map(str, held))

        g = wrap(f)
        return [g(torch.ones(2))[1:] for _ in range(6)]

    assert run(tatara.compile) == run(lambda f: f)
