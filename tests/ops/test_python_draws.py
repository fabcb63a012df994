"""Numbers drawn by Python's `random` in compiled code: eager's numbers, eager's state, one graph."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

REALS: dict[str, Callable[[Any], float]] = {
    "random": lambda r: r.random(),
    "uniform": lambda r: r.uniform(-1, 2),
    "gauss": lambda r: r.gauss(0, 1),
    "normalvariate": lambda r: r.normalvariate(1, 2),
    "lognormvariate": lambda r: r.lognormvariate(0, 0.5),
    "expovariate": lambda r: r.expovariate(lambd=2.0),
    "betavariate": lambda r: r.betavariate(0.4, 0.4),
    "gammavariate": lambda r: r.gammavariate(2, 1),
    "vonmisesvariate": lambda r: r.vonmisesvariate(0, 4),
    "paretovariate": lambda r: r.paretovariate(3),
    "weibullvariate": lambda r: r.weibullvariate(1, 2),
    "triangular": lambda r: r.triangular(0, 1, 0.3),
}
WHOLE: dict[str, Callable[[Any], int]] = {
    "randint": lambda r: r.randint(0, 3),
    "randrange": lambda r: r.randrange(0, 6, 2),
    "getrandbits": lambda r: r.getrandbits(2),
}


def _check(program: Callable[..., Any], calls: int = 6, breaks: int = 0) -> None:
    """`program(x, r)` with the module's functions and with generators that each side has."""
    for source in (random, None):
        compiled = tatara.compile(program)
        ours, theirs = (random.Random(5), random.Random(5)) if source is None else (source, source)
        with counts() as grown:
            for seed in range(calls):
                results = []
                for function, r in ((compiled, ours), (program, theirs)):
                    random.seed(seed)
                    torch.manual_seed(seed)
                    results.append((function(torch.linspace(0, 1, 12).reshape(3, 4), r), random.getstate()))
                same(*results)
                assert ours.getstate() == theirs.getstate()
        assert (grown["breaks"], grown["fallbacks"]) == (breaks, 0)


@pytest.mark.parametrize("name", REALS)
def test_reals(name: str) -> None:
    draw = REALS[name]
    _check(lambda x, r: (x.sin() * draw(r) + 1, x + draw(r)))


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name: str) -> None:
    draw = WHOLE[name]
    _check(lambda x, r: ((x * 2).roll(draw(r), 1), x + draw(r)))


def test_draws_of_all_kinds_stay_in_order() -> None:
    def program(x: Any, r: Any) -> Any:
        a, i, b = r.random(), r.randint(1, 9), r.gauss(0, 1)
        noise = torch.rand(3, 4)
        j, c, d = r.randrange(4), r.random(), r.gauss(0, 1)
        return x * a + i, x * b + noise, x * c + j, x * d, a, b, c, d, i, j

    _check(program)


def test_a_crop() -> None:
    def program(x: Any, r: Any) -> Any:
        top, left = r.randint(0, 1), r.randint(0, 2)
        return x[top : top + 2, left : left + 2].sin() * 2

    _check(program)


def test_seeds() -> None:
    def program(x: Any, r: Any) -> Any:
        r.seed(3)
        a = r.gauss(0, 1)
        return x * a + r.random(), x + r.randint(0, 5)

    _check(program)


def test_a_generator_of_each_call() -> None:
    def program(x: Any, r: Any) -> Any:
        own = random.Random(7)
        return x * own.random() + own.randint(0, 5), x * own.gauss(0, 1)

    _check(program)


def test_gradients() -> None:
    def program(x: Any, weight: Any) -> Any:
        scale, turn = random.uniform(0.5, 1.5), random.randint(0, 3)
        return (x * weight * scale).roll(turn, 0).sin().sum()

    compiled = tatara.compile(program)
    sides = [(function, torch.ones(4, requires_grad=True)) for function in (compiled, program)]
    with counts() as grown:
        for seed in range(6):
            results = []
            for function, weight in sides:
                random.seed(seed)
                loss = function(torch.arange(4.0), weight)
                loss.backward()
                results.append((loss, weight.grad, random.getstate()))
            same(*results)
    assert (grown["breaks"], grown["fallbacks"]) == (0, 0)


def test_calls_that_are_taken_back_leave_the_state() -> None:
    """What a decision takes back has drawn before it, by all three ways that a state changes."""

    def program(x: Any, n: Any) -> Any:
        a, b, i = random.random(), random.gauss(0, 1), random.randint(0, 9)
        return (x * a + b)[: n.item()] + i if n.item() > 1 else x * b

    compiled = tatara.compile(program)
    for seed, n in enumerate((2, 2, 2, 1, 2, 0, 3, 1)):
        results = []
        for function in (compiled, program):
            random.seed(seed)
            results.append((function(torch.ones(3), torch.tensor(n)), random.getstate()))
        same(*results)


def test_branches() -> None:
    """A branch by a number breaks the graph, once it has fallen both ways."""

    def program(x: Any) -> Any:
        if random.random() < 0.5:
            x = x.flip(0)
        return x * random.choice([0.5, 2.0, 3.0])

    compiled = tatara.compile(program)
    for seed in range(24):
        results = []
        for function in (compiled, program):
            random.seed(seed)
            results.append((function(torch.arange(3.0)), random.getstate()))
        same(*results)


class Own(random.Random):
    """Draws otherwise: its code is the program's."""

    def random(self) -> float:
        return 0.25


def test_classes_of_the_program() -> None:
    compiled, own = tatara.compile(lambda x, r: x * r.random() + r.uniform(0, 2)), Own(3)
    for _ in range(4):
        same(compiled(torch.ones(3), own), torch.full((3,), 0.75))
