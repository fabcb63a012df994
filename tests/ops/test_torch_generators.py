"""torch.Generator made, seeded, read and set in compiled code: eager's numbers, eager's states, one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import numpy as np
import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


def _made(x: Any, g: Any) -> Any:
    return x + torch.rand(3, generator=torch.Generator())


def _made_and_seeded(x: Any, g: Any) -> Any:
    made = torch.Generator(device="cpu").manual_seed(42)
    return x + torch.randn(3, generator=made), torch.randperm(5, generator=made), torch.randint(9, (2,), generator=made)


def _seeded(x: Any, g: Any) -> Any:
    g.manual_seed(7)
    return x * torch.rand(3, generator=g), g.initial_seed()


def _state(x: Any, g: Any) -> Any:
    state = g.get_state()
    first = torch.rand(3, generator=g)
    g.set_state(state)
    return x + first, torch.rand(3, generator=g), state


def _copied(x: Any, g: Any) -> Any:
    other = torch.Generator()
    other.set_state(g.get_state())
    return x + torch.rand(3, generator=other), torch.rand(3, generator=g)


def _two(x: Any, g: Any) -> Any:
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    a = torch.rand(3, generator=one)
    return x + a, torch.rand(3, generator=other), torch.rand(3, generator=one), torch.rand(3)


def _default(x: Any, g: Any) -> Any:
    state = torch.default_generator.get_state()
    a = torch.rand(3)
    torch.default_generator.set_state(state)
    return x + a, torch.rand(3)


def _given_back(x: Any, g: Any) -> Any:
    return x + 1, torch.Generator().manual_seed(3).initial_seed()


def _initial(x: Any, g: Any) -> Any:
    return x + torch.rand(3), torch.initial_seed() % 1000


def _next_seed(x: Any, g: Any) -> Any:
    torch.manual_seed(torch.initial_seed() + 1)
    return x + torch.rand(3)


def _with_gradients(x: Any, g: Any) -> Any:
    noise = torch.randn(3, generator=g.manual_seed(5))
    return (x * noise).sin().sum()


PROGRAMS = [_made, _made_and_seeded, _seeded, _state, _copied, _two, _default, _given_back, _initial, _next_seed]
WITH_HISTORY = [_made, _made_and_seeded, _seeded, _state, _two, _with_gradients]


def _run(f: Callable[..., Any], seed: int, g: Any, x: Any) -> Any:
    torch.manual_seed(seed)
    result = f(x, g)
    return result, g.get_state(), torch.get_rng_state()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("anew", [False, True], ids=["one generator", "one for each call"])
def test_numbers_and_states(program: Callable[..., Any], anew: bool) -> None:
    compiled = tatara.compile(program, fullgraph=True)
    ours, theirs = torch.Generator(), torch.Generator()
    for seed in (3, 3, 4, 5, 3, 8):
        if anew:
            ours, theirs = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        x = torch.linspace(0, 1, 3)
        same(_run(compiled, seed, ours, x), _run(program, seed, theirs, x.clone()))


@pytest.mark.parametrize("program", WITH_HISTORY, ids=lambda f: f.__name__)
def test_gradients(program: Callable[..., Any]) -> None:
    compiled = tatara.compile(program)
    ours, theirs = torch.Generator(), torch.Generator()
    for seed in range(5):
        x, y = (torch.linspace(0, 1, 3).requires_grad_() for _ in range(2))
        a, b = _run(compiled, seed, ours, x), _run(program, seed, theirs, y)
        same(a, b)
        for result, leaf in ((a[0], x), (b[0], y)):
            (result if isinstance(result, torch.Tensor) else result[0]).sum().backward()
            assert leaf.grad is not None
        same(x.grad, y.grad)


def test_each_call_gets_a_generator_of_its_own() -> None:
    compiled = tatara.compile(lambda x: (x + 1, torch.Generator().manual_seed(4)))
    made = [compiled(torch.ones(2))[1] for _ in range(4)]
    assert len({id(g) for g in made}) == 4
    for g in made:
        same(torch.rand(3, generator=g), torch.rand(3, generator=torch.Generator().manual_seed(4)))


def test_a_random_seed() -> None:
    def f(x: Any) -> Any:
        number = torch.seed()
        a = torch.rand(3)
        torch.manual_seed(number)
        return x + a, torch.rand(3), number

    compiled = tatara.compile(f)
    seeds = set()
    for _ in range(5):
        a, b, number = compiled(torch.zeros(3))
        same(a, b)
        same(torch.initial_seed(), number)
        seeds.add(number)
    assert len(seeds) == 5


def test_calls_that_are_taken_back_leave_the_state() -> None:
    def f(x: Any, n: Any, g: Any) -> Any:
        a = torch.rand(3, generator=g.manual_seed(int(g.initial_seed()) + 1))
        return (x + a)[: n.item()] if n.item() > 1 else a

    compiled = tatara.compile(f)
    ours, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for n in (2, 2, 2, 1, 2, 0, 3, 1):
        same(compiled(torch.ones(3), torch.tensor(n), ours), f(torch.ones(3), torch.tensor(n), theirs))
        same(ours.get_state(), theirs.get_state())


# ---- Whole numbers that NumPy draws ------------------------------------------------------------------------------------


def _column(x: Any) -> Any:
    return (x * 2)[:, np.random.randint(0, 4)]


def _span(x: Any) -> Any:
    start = np.random.randint(0, 3)
    return x[:, start : start + 2].sin()


def _first_of_all(x: Any) -> Any:
    n = int(np.random.randint(5))
    return x * n + n


def _rolled(x: Any) -> Any:
    return torch.roll(x * 2, np.random.randint(-3, 3), 1)


@pytest.mark.parametrize("program", [_column, _span, _first_of_all, _rolled], ids=lambda f: f.__name__)
def test_whole_numbers_by_numpy(program: Callable[[Any], Any]) -> None:
    compiled = tatara.compile(program)
    for seed in range(3):
        np.random.seed(seed)
        compiled(torch.arange(12.0).reshape(3, 4))
    with counts() as grown:
        for seed in range(8):
            np.random.seed(seed)
            ours = compiled(torch.arange(12.0).reshape(3, 4))
            mine = np.random.rand()
            np.random.seed(seed)
            same(ours, program(torch.arange(12.0).reshape(3, 4)))
            assert mine == np.random.rand()
    assert grown["breaks"] == 0
