"""Passes of gradients inside of compiled functions, by tensors whose history began before the graph, and inference mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402


def _leaf() -> Any:
    return torch.tensor([0.3, 0.7, -1.1], dtype=torch.float64, requires_grad=True)


# Tensors that come into the graph, made of a leaf.
OPERANDS: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda g: g,
    "grown": lambda g: g * 2,
    "view": lambda g: (g * 3)[:],
    "constant": lambda g: g.detach(),
    "other": lambda _: _leaf(),
}

PASSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda y, _, g: torch.autograd.grad(y, g, allow_unused=True)[0],
    "create_graph": lambda y, _, g: torch.autograd.grad(y, g, create_graph=True, allow_unused=True)[0],
    "by operand": lambda y, v, _: torch.autograd.grad(y, v, allow_unused=True)[0] if v.requires_grad else None,
    "backward": lambda y, _, g: (y.backward(), g.grad)[1],
}


def _run(function: Callable[[Any, Any], Any], operand: str) -> Any:
    g = _leaf()
    try:
        result = function(OPERANDS[operand](g), g)
    except RuntimeError as error:
        return str(error)[:60]
    return (
        None if result is None else (result.tolist(), result.requires_grad, None if g.grad is None else g.grad.tolist())
    )


@pytest.mark.parametrize("first", OPERANDS)
@pytest.mark.parametrize("how", PASSES)
def test_passes_go_on_into_histories_from_before(how: str, first: str) -> None:
    def function(v: Any, g: Any) -> Any:
        return PASSES[how]((v * v).sum() + (g * g).sum(), v, g)

    compiled = tatara.compile(function)
    for operand in (first, first, *OPERANDS, first):
        assert _run(compiled, operand) == _run(function, operand), operand


def test_results_of_another_compiled_function() -> None:
    """A graph break between both: the second part reads what the first has made of the leaf."""
    g = _leaf()
    inner = tatara.compile(lambda a: [a * 2, a])
    for _ in range(3):
        first, second = inner(g)
        outer = tatara.compile(lambda v, w: torch.autograd.grad((v * v).sum() + (w * w).sum(), g)[0])
        torch.testing.assert_close(outer(first, second), 10 * g.detach(), check_stride=True)


GLOBAL: Any = None


def test_a_global_tensor_gets_a_history() -> None:
    global GLOBAL

    def function() -> Any:
        return torch.autograd.grad((GLOBAL * GLOBAL).sum(), leaf, allow_unused=True)[0]

    compiled = tatara.compile(function)
    for _ in range(2):
        leaf = _leaf()
        GLOBAL = leaf
        torch.testing.assert_close(compiled(), 2 * leaf.detach())
        GLOBAL = leaf * 3
        torch.testing.assert_close(compiled(), 18 * leaf.detach())


# ---- Inference mode --------------------------------------------------------------------------------------------------


def _inside(a: Any) -> Any:
    with torch.inference_mode():
        b = a * 2
    return b, b.is_inference()


def _part(a: Any) -> Any:
    b = a + 1
    with torch.inference_mode():
        c = b * a
    d = a * 3
    return b, c, d, torch.is_inference_mode_enabled()


def _gradients_on(a: Any) -> Any:
    with torch.inference_mode():
        b = a * 2
        with torch.enable_grad():
            return b * a, torch.is_grad_enabled()


@torch.inference_mode()
def _decorated(a: Any) -> Any:
    return torch.relu(a * 2)


def _on(a: Any) -> Any:
    with torch.enable_grad():
        return a * 2


@pytest.mark.parametrize("outer", ["", "inference", "inference and gradients", "no_grad"])
@pytest.mark.parametrize("function", [_inside, _part, _gradients_on, _decorated, _on])
def test_inference_mode(function: Any, outer: str) -> None:
    def run(call: Callable[[Any], Any]) -> Any:
        a = torch.arange(3.0).requires_grad_()
        with (
            torch.inference_mode(outer.startswith("inference")),
            torch.set_grad_enabled(outer in ("", "inference and gradients")),
        ):
            results = call(a)
            results = results if isinstance(results, tuple) else (results,)
            seen = [
                (r.tolist(), r.requires_grad, r.is_inference()) if isinstance(r, torch.Tensor) else r for r in results
            ]
            return seen, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    compiled = tatara.compile(function)
    for _ in range(3):
        assert run(compiled) == run(function)


# ---- Views among the results -----------------------------------------------------------------------------------------


def _silent(t: Any) -> Any:
    with torch.no_grad():
        return t.view(3, 1)


MADE: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "view and base": lambda v: (v.view(3, 1), v),
    "base and view": lambda v: (v, v.view(3, 1)),
    "detached and base": lambda v: (v.detach(), v),
    "base and detached": lambda v: (v, v.detach()),
    "detached and view": lambda v: (v.detach(), v[0]),
    "views": lambda v: (v[0], v[1:]),
    "view of a view": lambda v: (v[1:], v[1:][0]),
    "view of detached": lambda v: (v.detach()[1:], v),
    "same twice": lambda v: (v.reshape(3, 1).squeeze(1), v),
    "silent": lambda v: (_silent(v), v),
    "detached twice": lambda v: (v.detach(), v.detach()[1:]),
}
SOURCES: dict[str, Callable[[Any], Any]] = {
    "argument": lambda a: a,
    "result": lambda a: a * 2,
    "constant": lambda a: a.detach() * 2,
    "written": lambda a: (a * 1).add_(1),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("made", MADE)
def test_which_results_are_views_of_which(made: str, source: str, mode: Any) -> None:
    def function(a: Any) -> tuple[Any, ...]:
        return MADE[made](SOURCES[source](a))

    def run(call: Callable[[Any], Any], kind: str) -> Any:
        a = torch.arange(3.0) if kind == "plain" else torch.arange(3.0).requires_grad_()
        a = a * 1 if kind == "grown" else a
        with mode():
            known = [*call(a), a]
        return [
            (t._is_view(), [t._base is other for other in known], t.requires_grad, t.untyped_storage().nbytes())
            for t in known
        ]

    compiled = tatara.compile(function)
    for kind in ("plain", "leaf", "grown", "plain", "leaf", "grown"):
        assert run(compiled, kind) == run(function, kind), kind
