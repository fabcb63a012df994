"""What requires grad may change: in the program, in every place of it, and outside between calls. Flags, leaves, values,
gradients and the random state are eager's, in every call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

CALLS = 6


class State:
    """What a program has: a model, parameters of its own, and an object to write to."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 1)
        )
        self.p = torch.nn.Parameter(torch.randn(4))
        self.q = torch.nn.Parameter(torch.randn(4), requires_grad=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-2)
        self.seen: list[Any] = []

    def tensors(self) -> list[Any]:
        return [*self.model.parameters(), self.p, self.q]


def _flags(tensor: Any) -> tuple[bool, bool]:
    return tensor.requires_grad, tensor.is_leaf


def _facts(tensor: Any) -> Any:
    grad = tensor.grad if tensor.is_leaf else None
    return tensor.detach().clone(), _flags(tensor), None if grad is None else grad.clone()


def _snapshot(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _facts(value)
    return [_snapshot(v) for v in value] if isinstance(value, (tuple, list)) else value


def _outcomes(make: Callable[[State], Any], inputs: Any, between: Any, compiled: bool) -> list[Any]:
    state = State()
    function = tatara.compile(make(state)) if compiled else make(state)
    found = []
    for i in range(CALLS):
        between(state, i)
        generator = torch.Generator().manual_seed(i)
        given = inputs(generator, i)
        torch.manual_seed(i)
        try:
            result = _snapshot(function(*given))
        except Exception as error:
            result = type(error).__name__
        given_after = [_facts(t) for t in given if isinstance(t, torch.Tensor)]
        after = [_facts(t) for t in state.tensors()]
        found.append((result, given_after, after, list(state.seen), torch.get_rng_state()))
        state.seen.clear()
    return found


def _compare(make: Callable[[State], Any], inputs: Any, between: Any = lambda state, i: None) -> None:
    theirs, ours = (_outcomes(make, inputs, between, compiled) for compiled in (False, True))
    for i, (expected, seen) in enumerate(zip(theirs, ours, strict=True)):
        same((i, seen), (i, expected))


def _plain(generator: Any, i: int) -> tuple[Any, ...]:
    return (torch.randn(3, 4, generator=generator),)


def _transposed(generator: Any, i: int) -> tuple[Any, ...]:
    return (torch.randn(4, 3, generator=generator).t(),)


def _requiring(generator: Any, i: int) -> tuple[Any, ...]:
    return (torch.randn(3, 4, generator=generator).requires_grad_(),)


def _alternating(generator: Any, i: int) -> tuple[Any, ...]:
    return (torch.randn(3, 4, generator=generator).requires_grad_(i % 2 == 0),)


INPUTS = {"plain": _plain, "transposed": _transposed, "requiring": _requiring, "alternating": _alternating}


def _set_method(tensor: Any, on: bool) -> None:
    tensor.requires_grad_(on)


def _set_attribute(tensor: Any, on: bool) -> None:
    tensor.requires_grad = on


def _set_by_name(tensor: Any, on: bool) -> None:
    tensor.requires_grad_(requires_grad=on)


def _set_quietly(tensor: Any, on: bool) -> None:
    with torch.no_grad():
        tensor.requires_grad_(on)


SETTERS = {"method": _set_method, "attribute": _set_attribute, "name": _set_by_name, "no_grad": _set_quietly}


def _no_break() -> None:
    pass


def _break() -> None:
    print(end="")


@pytest.mark.parametrize("between", [_no_break, _break])
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("setter", SETTERS)
def test_a_model_is_frozen_behind_its_step(setter: str, inputs: str, between: Any) -> None:
    switch = SETTERS[setter]

    def make(state: State) -> Any:
        def step(x: Any) -> Any:
            for p in state.model.parameters():
                switch(p, True)
            state.optimizer.zero_grad()
            between()
            state.model(x).mean().backward()
            state.optimizer.step()
            for p in state.model.parameters():
                switch(p, False)
            between()
            return state.model(x)

        return step

    _compare(make, INPUTS[inputs])


@pytest.mark.parametrize("between", [_no_break, _break])
@pytest.mark.parametrize("order", list(itertools.product([True, False], repeat=3)))
def test_flags_in_any_order(order: tuple[bool, ...], between: Any) -> None:
    def make(state: State) -> Any:
        def function(x: Any) -> Any:
            told = []
            results = []
            for on in order:
                for tensor in (state.p, state.q, x):
                    tensor.requires_grad_(on)
                    told.append(_flags(tensor))
                result = state.p * x + state.q
                told.append(_flags(result))
                results.append(result)
                between()
            return told, results

        return function

    _compare(make, _plain)


@pytest.mark.parametrize("on", [True, False])
def test_an_input_is_switched_off_before_its_backward(on: bool) -> None:
    def make(state: State) -> Any:
        def function(x: Any) -> Any:
            x.requires_grad_(True)
            loss = (x * state.p).sum()
            x.requires_grad_(on)
            loss.backward()
            return x.grad, _flags(x)

        return function

    _compare(make, _plain)


QUESTIONS: dict[str, Callable[[State, Any], Any]] = {
    "attribute": lambda state, x: x * 2 if state.p.requires_grad else x * 3,
    "is_leaf": lambda state, x: (state.p.is_leaf, x.is_leaf),
    "grad_fn": lambda state, x: (state.p.grad_fn is None, x * 2),
    "parameters": lambda state, x: [p.requires_grad for p in state.model.parameters()],
    "a result that is dropped": lambda state, x: (state.p * x).requires_grad,
    "a constant": lambda state, x: (state.p + 1).detach(),
    "a result": lambda state, x: state.p * x,
    "a view": lambda state, x: state.p.view(2, 2),
    "the tensor": lambda state, x: state.p,
    "turned on inside": lambda state, x: _inside(state, x),
    "nothing recorded": lambda state, x: _without(state, x),
}


def _inside(state: State, x: Any) -> Any:
    with torch.enable_grad():
        return state.p * x


def _without(state: State, x: Any) -> Any:
    with torch.no_grad():
        return state.p * x


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("question", QUESTIONS)
def test_flags_change_between_calls(question: str, grad: bool) -> None:
    def make(state: State) -> Any:
        return lambda x: QUESTIONS[question](state, x)

    def between(state: State, i: int) -> None:
        for tensor in state.tensors():
            tensor.requires_grad_([True, True, False, True, False, False][i])

    with torch.set_grad_enabled(grad):
        _compare(make, _plain, between)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "the tensor": lambda x, w: x.mul_(w),
    "by an operator": lambda x, w: x.__imul__(w),
    "a row": lambda x, w: x[0].mul_(w),
    "an item": lambda x, w: x.__setitem__(0, w),
    "a view of a view": lambda x, w: x.view(-1)[4:8].add_(w),
    "a copy of it": lambda x, w: (x * 1).mul_(w),
    "what detach() gives": lambda x, w: x.detach().mul_(w.detach()),
    "nothing recorded": lambda x, w: x.mul_(w.detach()),
}


@pytest.mark.parametrize("ask", ["flags", "grad_fn", "switch on", "switch off", "another"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_gives_an_input_a_history(write: str, ask: str) -> None:
    def make(state: State) -> Any:
        def function(x: Any) -> Any:
            WRITES[write](x, state.p)
            if ask == "flags":
                return _flags(x)
            if ask == "grad_fn":
                return x.grad_fn is None
            if ask == "another":
                return _flags(state.q), state.q.requires_grad_(False)
            return _flags(x.requires_grad_(ask == "switch on"))

        return function

    _compare(make, _plain)


@pytest.mark.parametrize("write", ["the leaf", "a row", "behind"])
def test_a_write_to_a_leaf_made_inside(write: str) -> None:
    def make(state: State) -> Any:
        def function(x: Any) -> Any:
            x.requires_grad_(True)
            state.seen.append("before")
            if write == "behind":
                with torch.no_grad():
                    x.mul_(2)
                return x * 2, _flags(x)
            (x if write == "the leaf" else x[0]).mul_(2)
            state.seen.append("behind")
            return x

        return function

    _compare(make, _plain)


def test_an_operator_fails_behind_a_switch() -> None:
    def make(state: State) -> Any:
        def function(x: Any, places: Any) -> Any:
            before = _flags(x), _flags(state.q)
            x.requires_grad_(True)
            state.q.requires_grad_(True)
            y = (x * state.q).sum(0)
            try:
                y = y.index_select(0, places)
            except IndexError:
                return before, None
            return before, y

        return function

    def between(state: State, i: int) -> None:
        state.q.requires_grad_(False)

    def inputs(generator: Any, i: int) -> Any:
        return torch.randn(3, 4, generator=generator), torch.tensor([9 if i % 2 else 1])

    _compare(make, inputs, between)


@pytest.mark.parametrize("made", ["detach", "zeros", "clone"])
def test_leaves_made_inside(made: str) -> None:
    def make(state: State) -> Any:
        def function(x: Any) -> Any:
            leaf = {
                "detach": lambda: state.p.detach().requires_grad_(),
                "zeros": lambda: torch.zeros(4, requires_grad=True),
                "clone": lambda: x[0].clone().requires_grad_(),
            }[made]()
            (leaf * x).sum().backward()
            gradient = leaf.grad
            leaf.requires_grad_(False)
            off = leaf + x, _flags(leaf)
            leaf.requires_grad_(True)
            return gradient, off, leaf * x, _flags(leaf), _flags(state.p)

        return function

    _compare(make, _plain)


def test_two_models_take_turns() -> None:
    """As GANs freeze one while they train the other."""

    def make(state: State) -> Any:
        other = torch.nn.Linear(4, 4)
        optimizer = torch.optim.Adam(other.parameters(), 1e-2)

        def step(x: Any) -> Any:
            state.model.requires_grad_(True)
            other.requires_grad_(False)
            state.optimizer.zero_grad()
            state.model(other(x)).mean().backward()
            state.optimizer.step()
            state.model.requires_grad_(False)
            other.requires_grad_(True)
            optimizer.zero_grad()
            loss = state.model(other(x)).mean()
            loss.backward()
            optimizer.step()
            return loss.detach(), [_facts(p) for p in other.parameters()]

        return step

    _compare(make, _plain)


def test_what_requires_grad_is_compiled_once_each() -> None:
    """A change inside does not keep a step in eager, and a step that is frozen and thawed has an entry for each."""
    p = torch.nn.Parameter(torch.randn(4), requires_grad=False)

    @tatara.compile
    def step(x: Any) -> Any:
        p.requires_grad_(True)
        (p * x).sum().backward()
        return p.grad * 2

    def call() -> Any:
        p.requires_grad_(False)
        p.grad = None
        return step(torch.ones(3, 4))

    for _ in range(3):
        call()
    with counts() as found:
        for _ in range(3):
            torch.testing.assert_close(call(), torch.full((4,), 6.0))
    assert (found["recompiles"], found["fallbacks"], found["breaks"]) == (0, 0, 0)
