"""What a program asks of a tensor that is not its values: histories, views, versions, for every kind of tensor and way to be called.

One compiled function gets tensors of two kinds after each other, so that an answer recorded from the first call shows in the second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402

FACTS: dict[str, Callable[[Any], Any]] = {
    "is_leaf": lambda t: t.is_leaf,
    "requires_grad": lambda t: t.requires_grad,
    "grad_fn": lambda t: t.grad_fn is None,
    "grad": lambda t: t.grad is None,
    "grad_value": lambda t: 0 if t.grad is None else t.grad.sum(),
    "retains_grad": lambda t: t.retains_grad,
    "output_nr": lambda t: t.output_nr,
    "_is_view": lambda t: t._is_view(),
    "_base": lambda t: t._base is None,
    "_version": lambda t: t._version,
    "is_inference": lambda t: t.is_inference(),
    "is_conj": lambda t: t.is_conj(),
    "is_neg": lambda t: t.is_neg(),
    "storage_offset": lambda t: t.storage_offset(),
    "storage_bytes": lambda t: t.untyped_storage().nbytes(),
    "is_shared": lambda t: t.is_shared(),
    "is_pinned": lambda t: t.is_pinned(),
    "hooks": lambda t: not t._backward_hooks,
    "post_hooks": lambda t: not t._post_accumulate_grad_hooks,
    "type": lambda t: type(t) is torch.nn.Parameter,
    "isinstance": lambda t: isinstance(t, torch.nn.Parameter),
    "contiguous": lambda t: t.is_contiguous(),
    "same": lambda t: t.contiguous() is t,
    "attribute": lambda t: getattr(t, "mark", 0),
    "dict": lambda t: len(t.__dict__),
    "needs": lambda t: t.is_leaf and t.requires_grad,
}


def _silent(a: Any) -> Any:
    with torch.no_grad():
        return a[1:]


# What the fact is asked of.
OF: dict[str, Callable[[Any], Any]] = {
    "argument": lambda a: a,
    "result": lambda a: a * 2,
    "view": lambda a: a[1:],
    "detached": lambda a: a.detach(),
    "data": lambda a: a.data,
    "clone": lambda a: a.clone(),
    "same": lambda a: a.to(a.dtype),
    "unbound": lambda a: a.unbind(0)[1],
    "silent": lambda a: _silent(a),
    "after_silent": lambda a: _silent(a) * 2,
}


def _grown() -> Any:
    return torch.arange(4.0).requires_grad_() * 1


def _hooked() -> Any:
    t = torch.arange(4.0).requires_grad_()
    t.register_hook(lambda g: None)
    return t


def _with_grad() -> Any:
    t = torch.arange(4.0).requires_grad_()
    t.grad = torch.ones(4)
    return t


def _frozen_with_grad() -> Any:
    return _with_grad().requires_grad_(False)


def _frozen_with_hooks() -> Any:
    return _hooked().requires_grad_(False)


def _retained() -> Any:
    t = _grown()
    t.retain_grad()
    return t


def _written() -> Any:
    return torch.arange(4.0).add_(0).mul_(1)


def _inference() -> Any:
    with torch.inference_mode():
        return torch.arange(4.0)


def _marked() -> Any:
    t = torch.arange(4.0)
    t.mark = 3
    return t


KINDS: dict[str, Callable[[], Any]] = {
    "plain": lambda: torch.arange(4.0),
    "leaf": lambda: torch.arange(4.0).requires_grad_(),
    "grown": _grown,
    "view": lambda: torch.arange(5.0)[:4],
    "offset": lambda: torch.arange(5.0)[1:],
    "view_of_grown": lambda: (torch.arange(5.0).requires_grad_() * 1)[:4],
    "detached": lambda: _grown().detach(),
    "parameter": lambda: torch.nn.Parameter(torch.arange(4.0)),
    "frozen": lambda: torch.nn.Parameter(torch.arange(4.0), requires_grad=False),
    "part": lambda: (torch.arange(8.0).requires_grad_() * 1).view(2, 4).unbind(0)[1],
    "hooked": _hooked,
    "with_grad": _with_grad,
    "frozen_with_grad": _frozen_with_grad,
    "frozen_with_hooks": _frozen_with_hooks,
    "retained": _retained,
    "written": _written,
    "inference": _inference,
    "marked": _marked,
    "leaf_view": lambda: torch.arange(5.0)[:4].requires_grad_(),
}

MODES: dict[str, Callable[[], Any]] = {
    "": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


def _outcome(function: Callable[[Any], Any], make: Callable[[], Any], mode: Callable[[], Any]) -> Any:
    tensor = make()
    with mode():
        try:
            result = function(tensor)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return (result.tolist(), result.requires_grad, result.is_inference(), tensor._is_view())


def _inside(function: Callable[[Any], Any], how: str) -> Any:
    """The function called with a tensor of a transform or a level."""
    x = torch.arange(4.0)
    whole = lambda t: function(t).sum()  # noqa: E731
    try:
        if how == "grad":
            return torch.func.grad(whole)(x).tolist()
        if how == "vmap":
            return torch.func.vmap(whole)(torch.ones(2, 4)).tolist()
        if how == "jvp":
            primal, tangent = torch.func.jvp(function, (x,), (x,))
            return (primal.tolist(), tangent.tolist())
        if how == "hessian":
            return torch.autograd.functional.hessian(whole, x).tolist()
        with torch.autograd.forward_ad.dual_level():
            dual = function(torch.autograd.forward_ad.make_dual(x, x))
            return torch.autograd.forward_ad.unpack_dual(dual).primal.tolist()
    except (RuntimeError, TypeError) as error:
        return str(error).splitlines()[0]


# Where torch's own bookkeeping shows how a result was made: one of several results, and a copy of what has no version.
_INSIDE_OF_TORCH = {("output_nr", "unbound"), ("_version", "clone")}
CASES = [(fact, of) for fact in FACTS for of in OF if (fact, of) not in _INSIDE_OF_TORCH]


def _program(fact: str, of: str) -> Callable[[Any], Any]:
    ask, get = FACTS[fact], OF[of]

    def program(a: Any) -> Any:
        b = get(a)
        return b + ask(b)

    return program


@pytest.mark.parametrize(("fact", "of"), CASES)
def test_answers_are_those_of_this_call(fact: str, of: str) -> None:
    program = _program(fact, of)
    wrong = []
    for mode, enter in MODES.items():
        expected = {kind: _outcome(program, make, enter) for kind, make in KINDS.items()}
        for first in KINDS:
            compiled = tatara.compile(program)
            for kind in (first, *KINDS, first):
                got = _outcome(compiled, KINDS[kind], enter)
                if got != expected[kind]:
                    wrong.append((mode, first, kind, got, expected[kind]))
    assert not wrong


@pytest.mark.parametrize(("fact", "of"), CASES)
def test_answers_inside_of_levels_stay_there(fact: str, of: str) -> None:
    program = _program(fact, of)
    wrong = []
    for how in ("grad", "vmap", "jvp", "hessian", "dual"):
        compiled = tatara.compile(program)
        for kind in ("leaf", "plain", "grown"):
            for each in (lambda f: _inside(f, how), lambda f: _outcome(f, KINDS[kind], contextlib.nullcontext)):  # noqa: B023
                got, expected = each(compiled), each(program)
                if got != expected:
                    wrong.append((how, kind, got, expected))
    assert not wrong
