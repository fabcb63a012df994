"""The state of the random generator, read and set in compiled code: eager's numbers and eager's state, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def _frozen(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As torch's own tests do it."""

    def call(x: Any) -> Any:
        with torch.utils._mode_utils.no_dispatch(), torch._C._DisableFuncTorch():
            state = torch.get_rng_state()
        try:
            return f(x)
        finally:
            with torch.utils._mode_utils.no_dispatch(), torch._C._DisableFuncTorch():
                torch.set_rng_state(state)

    return call


def _forked(x: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        y = torch.rand(5) + x
    return y * torch.rand(5)


def _again(x: Any) -> Any:
    state = torch.get_rng_state()
    first = F.dropout(x, 0.5)
    torch.set_rng_state(state)
    return first, F.dropout(x, 0.5), torch.rand(3)


def _given_back(x: Any) -> Any:
    torch.rand(3)
    state = torch.get_rng_state()
    return x * torch.rand(5), state


def _only_set(x: Any) -> Any:
    torch.set_rng_state(torch.get_rng_state())
    return x + 1


def _seeded(x: Any) -> Any:
    before = torch.rand(3)
    generator = torch.manual_seed(11)
    return x + torch.rand(5), before, torch.rand(2, generator=generator)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "dropout": _frozen(lambda x: F.dropout(x, 0.5) * 2),
    "normal": _frozen(lambda x: torch.normal(x, 1.0) + torch.randn(5)),
    "forked": _forked,
    "again": _again,
    "given back": _given_back,
    "only set": _only_set,
    "seeded": _frozen(lambda x: (torch.manual_seed(4), torch.rand(5) + x)[1]),
    "seeded for good": lambda x: (torch.manual_seed(-4), F.dropout(x, 0.5) * 2)[1],
    "nested": _frozen(_frozen(lambda x: torch.rand(5) + x)),
}


def _outcome(run: Callable[[Any], Any], grad: bool) -> list[Any]:
    torch.manual_seed(3)
    seen: list[Any] = []
    for _ in range(3):
        x = torch.randn(5, requires_grad=grad)
        results = run(x)
        results = results if isinstance(results, tuple) else (results,)
        if grad:
            results[0].sum().backward()
            seen.append(x.grad)
        seen += [x.detach(), *(r.detach() for r in results), torch.get_rng_state()]
    return seen


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_one_graph(name: str, grad: bool) -> None:
    function = FUNCTIONS[name]
    compiled = tatara.compile(function)
    same(_outcome(compiled, grad), _outcome(function, grad))
    assert compiled._report()["breaks"] == []
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_under_vmap(randomness: str) -> None:
    def function(x: Any) -> Any:
        return torch.vmap(FUNCTIONS["dropout"], randomness=randomness)(x) * torch.rand(4, 5)

    compiled = tatara.compile(function)

    def outcome(run: Any) -> list[Any]:
        torch.manual_seed(1)
        return [part for _ in range(3) for part in (run(torch.ones(4, 5)), torch.get_rng_state())]

    same(outcome(compiled), outcome(function))
    assert compiled._report()["breaks"] == []


def test_seeds() -> None:
    """The generator that is given may be used, and seeds that vary or are none do as in eager."""
    compiled = tatara.compile(_seeded)
    same(_outcome(compiled, False), _outcome(_seeded, False))

    def function(x: Any, seed: Any) -> Any:
        torch.manual_seed(seed)
        return x + torch.rand(5)

    compiled = tatara.compile(function)
    for seed in (1, 2, 3, 3, 2**64 - 1, True, 5.7):
        x = torch.ones(5)
        want = function(x, seed), torch.get_rng_state()
        torch.rand(1)
        same([compiled(x, seed), torch.get_rng_state()], list(want))
    for bad in (2**65, "x"):
        with pytest.raises(Exception) as theirs:
            function(torch.ones(5), bad)
        with pytest.raises(Exception) as ours:
            compiled(torch.ones(5), bad)
        assert type(ours.value) is type(theirs.value)


def test_reading_the_state_is_no_draw() -> None:
    """Vmap refuses random numbers unless it is told of them; the state is none."""

    def function(x: Any) -> Any:
        def inner(row: Any) -> Any:
            state = torch.get_rng_state()
            torch.set_rng_state(state)
            return row * 2

        return torch.vmap(inner)(x)

    compiled = tatara.compile(function)
    x = torch.randn(4, 5)
    for _ in range(2):
        same([compiled(x)], [function(x)])
    assert compiled._report()["breaks"] == []


def test_under_jvp() -> None:
    function = FUNCTIONS["dropout"]

    def pushed(x: Any, t: Any) -> Any:
        return torch.func.jvp(function, (x,), (t,))

    compiled = tatara.compile(pushed)

    def outcome(run: Any) -> list[Any]:
        torch.manual_seed(1)
        x, t = torch.randn(5), torch.randn(5)
        return [part for _ in range(3) for part in (*run(x, t), torch.get_rng_state())]

    same(outcome(compiled), outcome(pushed))
    assert compiled._report()["breaks"] == []


@pytest.mark.parametrize("kind", ["short", "floats", "garbage"])
def test_states_that_are_none(kind: str) -> None:
    state = torch.get_rng_state()
    bad = {
        "short": state[:10],
        "floats": state.float(),
        "garbage": torch.full_like(state, 7),
    }[kind]

    def function(x: Any, new: Any) -> Any:
        y = x * 2
        torch.set_rng_state(new)
        return y + torch.rand(3)

    compiled = tatara.compile(function)
    for _ in range(3):
        torch.manual_seed(5)
        with pytest.raises(Exception) as theirs:
            function(torch.ones(3), bad)
        with pytest.raises(Exception) as ours:
            compiled(torch.ones(3), bad)
        assert type(ours.value) is type(theirs.value)
        assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]
        same([torch.get_rng_state()], [torch.manual_seed(5).get_state()])
    torch.manual_seed(6)
    want = function(torch.ones(3), state)
    same([compiled(torch.ones(3), state)], [want])


def test_break_under_a_guard() -> None:
    """A graph that breaks there breaks where the guard is entered, and the guard is left as in eager."""

    def function(x: Any) -> Any:
        y = x + 1
        with torch._C._DisableTorchDispatch():
            if float(y.sum()) > 100:
                y = y * 3
            y = y - 1
        return y * 2

    compiled = tatara.compile(function)
    for scale in (1.0, 1.0, 100.0, 1.0):
        x = torch.full((5,), scale)
        same([compiled(x)], [function(x)])
        assert not torch._C._meta_in_tls_dispatch_include()


def test_exception_under_a_guard() -> None:
    def function(x: Any) -> Any:
        try:
            with torch._C._DisableFuncTorch():
                raise ValueError("there")
        except ValueError:
            return torch.vmap(lambda row: row * 2)(x)

    compiled = tatara.compile(function)
    x = torch.randn(3, 4)
    for _ in range(3):
        same([compiled(x)], [function(x)])
    same([torch.vmap(lambda row: row * 3)(x)], [x * 3])


def test_levels_under_a_guard() -> None:
    """What is computed where torch.func's levels are switched off is eager's."""

    def function(x: Any) -> Any:
        def inner(row: Any) -> Any:
            with torch._C._DisableFuncTorch():
                extra = torch.ones(4) * 2
            return row * extra

        return torch.vmap(inner)(x)

    compiled = tatara.compile(function)
    x = torch.randn(3, 4)
    for _ in range(3):
        same([compiled(x)], [function(x)])
