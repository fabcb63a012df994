"""np.random in compiled programs of tensors: streams, states and what is made of them, bit by bit."""

from __future__ import annotations

from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")

from test_mixed_programs import flat, same  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

RNG = np.random.default_rng(3)


def draws_arrays(x: Any) -> Any:
    return np.random.rand(4) + x.numpy(), np.random.randint(0, 9, (2, 2)), np.random.uniform(-1, 1, 3)


def draws_numbers(x: Any) -> Any:
    return x * np.random.rand(), np.random.normal(), np.random.beta(0.4, 0.4)


def mixup(x: Any) -> Any:
    lam = np.random.beta(0.4, 0.4)
    index = np.random.permutation(4)
    return lam * x + (1 - lam) * x[index]


def own_generator(x: Any) -> Any:
    rng = np.random.default_rng(7)
    return x + torch.from_numpy(rng.normal(size=4)).float(), rng.random(), rng


def own_legacy_generator(x: Any) -> Any:
    state = np.random.RandomState(0)
    generator = np.random.Generator(np.random.PCG64(3))
    return state.rand(4) + x.numpy() + generator.random(4)


def generator_of_the_module(x: Any) -> Any:
    y = torch.from_numpy(RNG.standard_normal(4).astype("float32")) + x
    return y, RNG.integers(0, 10, 4), RNG.choice(5, 3), RNG.permutation(3), np.sin(np.random.rand(3))


def seeds(x: Any) -> Any:
    np.random.seed(0)
    return x + torch.from_numpy(np.random.randn(4))


def shuffles(x: Any) -> Any:
    a = np.arange(8)
    np.random.shuffle(a)
    return a, x[a[:2] % 4]


def both_streams(x: Any) -> Any:
    a = torch.randn(3).numpy() + np.random.randn(3)
    return a, torch.from_numpy(np.random.rand(3)) + torch.rand(3)


def noise(x: Any) -> Any:
    values = np.random.normal(0, 0.1, x.shape).astype(np.float32)
    return (x + torch.from_numpy(values)).clamp(0, 1)


def random_mask(x: Any) -> Any:
    return x * torch.from_numpy(np.random.rand(4) < 0.5)


def an_index(x: Any) -> Any:
    return x[np.random.randint(0, 4)]


def a_coin(x: Any) -> Any:
    return x.flip(0) if np.random.rand() < 0.5 else x + 1


def fails_after_a_draw(x: Any) -> Any:
    y = x.numpy()
    try:
        np.linalg.inv(np.zeros((2, 2)) * np.random.rand(2, 2))
    except np.linalg.LinAlgError:
        y = y + 1
    return y + np.random.rand(4)


def states() -> list[Any]:
    legacy = np.random.get_state()
    return [legacy[1].tolist(), legacy[2:], RNG.bit_generator.state, torch.get_rng_state().tolist()]


def compare(program: Any) -> None:
    compiled = tatara.compile(program)
    for seed in range(4):
        results = []
        start = RNG.bit_generator.state
        for function in (program, compiled):
            RNG.bit_generator.state = start
            np.random.seed(seed)
            torch.manual_seed(seed)
            x = torch.rand(4, generator=torch.Generator().manual_seed(5)) + 0.01 * seed
            results.append((flat(function(x)), states()))
        (want, after), (got, state) = results
        assert state == after
        for w, g in zip(want, got, strict=True):
            if isinstance(w, np.random.Generator):
                assert type(g) is type(w) and g.bit_generator.state == w.bit_generator.state
            else:
                same(w, g)


ONE_GRAPH = [
    draws_arrays,
    draws_numbers,
    mixup,
    own_generator,
    own_legacy_generator,
    generator_of_the_module,
    seeds,
    shuffles,
    both_streams,
    noise,
    random_mask,
]


@pytest.mark.parametrize("program", ONE_GRAPH)
def test_draws_are_part_of_the_graph(program: Any) -> None:
    compare(program)
    assert tatara.stats()["breaks"] == 0 and tatara.stats()["recompiles"] == 0


@pytest.mark.parametrize("program", [an_index, a_coin, fails_after_a_draw])
def test_what_a_draw_decides_is_eagers(program: Any) -> None:
    compare(program)


def test_a_generator_among_the_arguments() -> None:
    def program(x: Any, rng: Any) -> Any:
        return x.numpy() + rng.normal(size=3)

    compiled = tatara.compile(program)
    first, second = np.random.default_rng(1), np.random.default_rng(2)
    for rng in (first, second, first, second):
        start = rng.bit_generator.state
        want = program(torch.ones(3), rng)
        rng.bit_generator.state = start
        np.testing.assert_array_equal(compiled(torch.ones(3), rng), want)


def test_a_draw_is_taken_back_where_a_later_call_fails() -> None:
    def program(x: Any, scale: Any) -> Any:
        noise = np.random.rand(2, 2)
        try:
            return np.linalg.inv(x.numpy() * scale) + noise
        except np.linalg.LinAlgError:
            return noise, np.random.rand()

    compiled = tatara.compile(program)
    for scale in (1.0, 2.0, 0.0, 1.0):
        results = []
        for function in (program, compiled):
            np.random.seed(1)
            results.append((flat(function(torch.eye(2), np.array(scale))), np.random.rand()))
        for w, g in zip(results[0][0], results[1][0], strict=True):
            same(w, g)
        assert results[0][1] == results[1][1]
