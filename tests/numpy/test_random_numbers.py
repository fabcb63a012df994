"""np.random in compiled NumPy programs: streams, states and errors bit by bit, with or without torch."""

from __future__ import annotations

from typing import Any

import pytest
from util import same

import numpy as np
import tatara

RNG = np.random.default_rng(3)


def draws(x: np.ndarray) -> Any:
    return np.random.rand(4) + x, np.random.randint(0, 9, (2, 2)), np.random.normal(size=x.shape) * 2


def own_generators(x: np.ndarray) -> Any:
    rng = np.random.default_rng(7)
    legacy = np.random.RandomState(0)
    return np.sin(rng.normal(size=4) + x), legacy.rand(2), np.random.Generator(np.random.PCG64(1)).integers(0, 9, 3)


def of_the_module(x: np.ndarray) -> Any:
    return RNG.standard_normal(4) + x, RNG.permutation(4), x[RNG.permutation(4)]


def seeds_and_shuffles(x: np.ndarray) -> Any:
    np.random.seed(1)
    a = np.arange(6)
    np.random.shuffle(a)
    return a * 2, x + np.random.rand(4)


def random_walk(x: np.ndarray) -> Any:
    steps = np.where(np.random.rand(100) < 0.5, -1.0, 1.0)
    return np.cumsum(steps) + x[0]


def compare(program: Any, *more: Any) -> None:
    tatara.reset()
    compiled = tatara.compile(program)
    for seed in range(4):
        outcomes = []
        start = RNG.bit_generator.state
        for function in (program, compiled):
            RNG.bit_generator.state = start
            np.random.seed(seed)
            result = function(np.linspace(0, 1, 4) + seed, *more)
            legacy = np.random.get_state()
            outcomes.append((result, (legacy[1].tolist(), legacy[2:]), RNG.bit_generator.state))
        same(outcomes[0][0], outcomes[1][0])
        assert outcomes[0][1:] == outcomes[1][1:]


@pytest.mark.parametrize("program", [draws, own_generators, of_the_module, seeds_and_shuffles, random_walk])
def test_draws_are_part_of_the_graph(program: Any) -> None:
    compare(program)
    assert tatara.stats()["breaks"] == 0 and tatara.stats()["recompiles"] == 0


def test_numbers_of_python_are_eagers() -> None:
    def program(x: np.ndarray) -> Any:
        i = np.random.randint(0, 4)
        return x[i] * np.random.rand(), np.random.choice([1, 2, 3])

    compare(program)


def test_a_failure_behind_a_draw_takes_it_back() -> None:
    def program(x: np.ndarray, scale: float) -> Any:
        noise = np.random.rand(2, 2)
        try:
            return np.linalg.inv(np.eye(2) * (x[0] - x[0] + scale)) + noise
        except np.linalg.LinAlgError:
            return noise, np.random.rand(2)

    for scale in (1.0, 0.0):
        compare(program, np.array(scale))


def test_a_draw_that_raises() -> None:
    def program(x: np.ndarray) -> Any:
        try:
            return np.random.normal(0, -1, 3) + x[:3]
        except ValueError as error:
            return str(error), np.random.rand(2)

    compare(program)
