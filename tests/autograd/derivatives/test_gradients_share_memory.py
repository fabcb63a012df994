"""Gradients that are the cotangent given, or a view of it, share its memory where eager's do, and a write shows in both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Of = Callable[[torch.Tensor], torch.Tensor]
Derive = Callable[[Of, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def by_vjp(function: Of, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result, pull = torch.func.vjp(function, x)
    return pull(v)[0], result


def by_grad(function: Of, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    result = function(x)
    return torch.autograd.grad(result, x, v)[0], result.detach()


def by_jvp(function: Of, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result, tangent = torch.func.jvp(function, (x,), (v,))
    return tangent, result


def share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "no write": lambda gradient, given: None,
    "gradient": lambda gradient, given: gradient.add_(1),
    "given": lambda gradient, given: given.mul_(3),
}
FUNCTIONS: dict[str, Of] = {
    "transposed": lambda x: x.T,
    "itself": lambda x: x,
    "view": lambda x: x.view(9),
    "unsqueezed": lambda x: x[None],
    "plus": lambda x: x + 1,
    "view of plus": lambda x: (x + 1).T,
    "twice": lambda x: x.T + x.T,
    "sum": lambda x: x.sum(),
    "sine": lambda x: x.sin(),
    "clone": lambda x: x.clone(),
}


def check(function: Of, derive: Derive, write: Callable[..., Any], x: torch.Tensor, v: torch.Tensor) -> None:
    def program(x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gradient, result = derive(function, x, v)
        write(gradient, v)
        return gradient, result

    compiled = tatara.compile(program)
    for _ in range(3):
        theirs, ours = [x.clone(), v.clone()], [x.clone(), v.clone()]
        try:
            expected = program(*theirs)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error).split(".")[0]):
                compiled(*ours)
            continue
        results = compiled(*ours)
        same([*results, *ours], [*expected, *theirs])
        sees = [share(a, b) for a in results for b in (*ours, *results)]
        assert sees == [share(a, b) for a in expected for b in (*theirs, *expected)]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("derive", [by_vjp, by_grad, by_jvp])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_writes_show_where_memory_is_shared(name: str, derive: Derive, write: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 3)
    v = torch.randn_like(x if derive is by_jvp else FUNCTIONS[name](x))
    check(FUNCTIONS[name], derive, WRITES[write], x, v)


@pytest.mark.parametrize("derive", [by_vjp, by_grad])
def test_shared_gradients_are_compiled(derive: Derive) -> None:
    compiled = tatara.compile(lambda x, v: derive(lambda t: (t.sin() + t).T, x, v)[0] * 2 + derive(torch.t, x, v)[0])
    x, v = torch.randn(3, 4), torch.randn(4, 3)
    for _ in range(2):
        compiled(x, v)
    view = tatara.compile(lambda x, v: derive(torch.t, x, v)[0])
    for _ in range(2):
        gradient = view(x, v)
    assert share(gradient, v)
    assert tatara.stats()["fallbacks"] == 0
    with tatara.kernel_history() as history:
        view(x, v)
    assert not [event for event in history.events if event.kind == "launch"]


@pytest.mark.parametrize("write", ["first", "second", "given", "none"])
@pytest.mark.parametrize("made", ["given", "computed", "written"])
def test_two_gradients_of_one_cotangent(made: str, write: str) -> None:
    """Gradients share memory with each other too, and with a cotangent that the function computes itself."""

    def program(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        if made == "computed":
            v = v * 2
        elif made == "written":
            v.mul_(2)
        _, pull = torch.func.vjp(lambda x, y: x.T + y, x, y)
        first, second = pull(v)
        places = {"first": first, "second": second, "given": v}
        if write in places:
            places[write].add_(1)
        return [first.clone(), second.clone(), v.clone()]

    torch.manual_seed(0)
    given = [torch.randn(3, 3) for _ in range(3)]
    compiled = tatara.compile(program)
    for _ in range(2):
        ours, theirs = [t.clone() for t in given], [t.clone() for t in given]
        same([*compiled(*ours), *ours], [*program(*theirs), *theirs])


COTANGENTS: dict[str, Callable[[float], torch.Tensor]] = {
    "data": lambda number: torch.tensor([1.0, 2.0, 3.0]),
    "data seen as": lambda number: torch.tensor([[3.0], [2.0], [1.0]]).T[0],
    "number": lambda number: torch.full((3,), number),
    "one number": lambda number: torch.tensor(number).expand(3),
    "ones": lambda number: torch.ones(3),
}


@pytest.mark.parametrize("function", [lambda x: x + 1, lambda x: x.sin(), lambda x: x.view(3)])
@pytest.mark.parametrize("name", COTANGENTS)
def test_writes_to_results_reach_no_later_call(name: str, function: Of) -> None:
    """Cotangents that the function makes are made anew in each call."""

    def program(x: torch.Tensor, number: float) -> tuple[torch.Tensor, torch.Tensor]:
        return by_vjp(function, x, COTANGENTS[name](number))

    compiled = tatara.compile(program)
    x = torch.arange(3.0)
    for number in (1.5, 2.5, 3.5, 3.5, 3.5):
        results, expected = compiled(x, number), program(x, number)
        same(results, expected)
        for gradient, eager in zip(results, expected, strict=True):
            assert share(gradient, x) == share(eager, x)
        if results[0].is_contiguous():
            results[0].add_(5)


# Where eager computes a gradient anew, a result that shared memory with the cotangent would let a later write reach it.
ANEW: dict[str, tuple[Of, tuple[int, ...]]] = {
    "max of a number": (lambda x: x.max(0)[0], ()),
    "max": (lambda x: x.max(0)[0], (1,)),
    "cummax of a number": (lambda x: x.cummax(0)[0], ()),
    "first power": (lambda x: x**1, (3,)),
    "no turn": (lambda x: torch.rot90(x, 4), (3, 3)),
    "expanded number": (lambda x: x.expand_as(torch.ones(())), ()),
    "blocks": (lambda x: torch.block_diag(x, x), (2, 2)),
    "times one": (lambda x: x * 1, (3,)),
    "over one": (lambda x: x / 1, (3,)),
    "flip": (lambda x: x.flip(0), (1, 3)),
    "roll": (lambda x: x.roll(3, 0), (3,)),
    "gather": (lambda x: x.gather(0, torch.zeros(1, dtype=torch.long)), (1,)),
    "lower triangle": (lambda x: x.tril(), (1, 1)),
    "where": (lambda x: torch.where(torch.ones(3, dtype=torch.bool), x, 0.0), (3,)),
    "interpolation": (lambda x: F.interpolate(x, scale_factor=1), (1, 2, 3)),
    "pooling": (lambda x: F.avg_pool1d(x, 1), (1, 2, 3)),
    "product": (lambda x: x @ torch.ones(1, 1), (1, 1)),
    "two negations": (lambda x: -(-x), (3,)),
    "mean of one": (lambda x: x.mean(0), (1, 3)),
    "dropout of none": (lambda x: torch.dropout(x, 0.0, True), (3,)),
    "sorted": (lambda x: x.sort(0)[0], (1,)),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 1), (1, 2, 3, 3)),
    "softmax": (lambda x: x.softmax(0), (1,)),
}


@pytest.mark.parametrize("name", ANEW)
def test_no_gradient_shares_what_eager_copies(name: str) -> None:
    function, sizes = ANEW[name]
    torch.manual_seed(0)
    x = torch.randn(sizes)
    v = torch.randn_like(function(x))
    expected = by_vjp(function, x, v)[0]
    compiled = tatara.compile(lambda x, v: by_vjp(function, x, v)[0])
    for _ in range(2):
        gradient = compiled(x, v)
        same(gradient, expected)
        assert share(gradient, v) <= share(expected, v)
