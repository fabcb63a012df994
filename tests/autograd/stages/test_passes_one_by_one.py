"""Backward passes through the results of a compiled function, one after the other: in eager one uses up what it goes through, and
leaves the rest. Gradients, and which pass is refused, are eager's, in any order of passes and in every call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

import tatara  # noqa: E402
from results import same  # noqa: E402

CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # sums of gradients are in another order


def _encoder(x: Any, y: Any) -> Any:
    h = x.exp()
    return h * y, h * h, (y * 2).sin()


def _hidden_sum(x: Any, y: Any) -> Any:
    h = x + y
    return h * 2, h * 3, h.t()


def _dropouts(x: Any, y: Any) -> Any:
    return F.dropout(x * y, 0.5), F.dropout(y.sin(), 0.3), F.dropout(x, 0.2) + 1


def _plane_dropout(x: Any, y: Any) -> Any:
    return F.dropout2d(x.view(1, 3, 2, 2), 0.5) * 2, y.cos()


def _detached(x: Any, y: Any) -> Any:
    h, w = x.sin(), y.cos()
    return h, w, (h.detach() * w).exp()


def _normalised(x: Any, y: Any) -> Any:
    return F.layer_norm(x, (4,)), F.batch_norm(y, None, None, training=True), torch.softmax(x, 0)


def _chunks(x: Any, y: Any) -> Any:
    a, b = (x * y).chunk(2, dim=1)
    return a, b, y.exp()


def _regions(x: Any, y: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(torch.sin, x * 2, use_reentrant=False), y.exp()


def _without(x: Any, y: Any) -> Any:
    with torch.no_grad():
        scale = x.norm()
    return x * scale, y / scale


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "apart": lambda x, y: (x.sin(), y.cos()),
    "longer": lambda x, y: ((x.sin() * 2).exp(), y.cos().exp(), (x + 1).tanh()),
    "both leaves": lambda x, y: (x.sin() * y, y.cos() * x),
    "products": lambda x, y: (x @ y.t(), y @ x.t(), x.t() @ y),
    "linear": lambda x, y: (F.linear(x, y), F.linear(y, x), x * 2),
    "nothing saved": lambda x, y: (x * 2 + 1, y.sum(), x - y),
    "shared encoder": _encoder,
    "shared sum": _hidden_sum,
    "dropout": _dropouts,
    "dropout2d": _plane_dropout,
    "detached": _detached,
    "normalised": _normalised,
    "chunks": _chunks,
    "checkpoint": _regions,
    "constants": _without,
    "one result twice": lambda x, y: (*[x.exp()] * 2, y.exp()),
    "results of results": lambda x, y: (lambda h, w: (h, w, h * w, (h.detach() * w).exp()))(x.sin(), y.cos()),
}


# Results that keep nothing here, where eager keeps a number (x * 2): a pass through them may go again.
KEEP_NOTHING = ("linear", "nothing saved", "shared sum")


def _plain(i: int) -> list[Any]:
    return [torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)]


def _other_layouts(i: int) -> list[Any]:
    return [torch.randn(4, 3).t().requires_grad_(), torch.randn(3, 8)[:, ::2].requires_grad_()]


def _one_requires(i: int) -> list[Any]:
    return [torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)]


INPUTS = {"plain": _plain, "layouts": _other_layouts, "one requires": _one_requires}


def _pass(results: Any, which: int, keep: bool) -> str:
    if which >= len(results) or not results[which].requires_grad:
        return "none"
    try:
        weight = torch.arange(results[which].numel(), dtype=torch.float32).view(results[which].shape)
        (results[which] * weight).sum().backward(retain_graph=keep)
    except RuntimeError as error:
        return str(error)[:60]
    return "done"


def _outcome(function: Any, inputs: Any, i: int, order: Any, keep: bool) -> Any:
    torch.manual_seed(i)
    given = inputs(i)
    results = function(*given)
    told = [_pass(results, which, keep) for which in order]
    refused = any(each not in ("done", "none") for each in told)
    gradients = None if refused else [t.grad for t in given]  # a refused pass may have gone a part of its way
    return told, gradients, [r.detach() for r in results], torch.get_rng_state()


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_order_of_passes(name: str, inputs: str) -> None:
    function = FUNCTIONS[name]
    compiled = tatara.compile(function)
    orders = [*itertools.permutations(range(3)), (3, 0, 1), (2, 3)]
    if name not in KEEP_NOTHING:
        orders += [(0, 0), (1, 1), (2, 2), (0, 1, 0)]
    for i, order in enumerate(orders):
        for keep in (False, True):
            expected = _outcome(function, INPUTS[inputs], i, order, keep)
            same(_outcome(compiled, INPUTS[inputs], i, order, keep), expected, **CLOSE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_passes_by_what_is_asked(name: str) -> None:
    """torch.autograd.grad: None where no gradient reaches, also of gradients."""
    function = FUNCTIONS[name]
    compiled = tatara.compile(function)

    def outcome(f: Any, i: int, create: bool) -> Any:
        torch.manual_seed(i)
        given = _plain(i)
        results = f(*given)
        found = []
        for result in results:
            first = torch.autograd.grad(
                (result * 0.1).sin().sum(), given, retain_graph=True, create_graph=create, allow_unused=True
            )
            found.append([None if g is None else g.detach() for g in first])
            roots = [(g * 0.1).sin().sum() for g in first if g is not None and g.requires_grad]
            if roots:
                found.append(torch.autograd.grad(sum(roots), given, retain_graph=True, allow_unused=True))
        return found

    for i in range(5):
        for create in (False, True):
            if name != "checkpoint":
                same(outcome(compiled, i, create), outcome(function, i, create), strides=False, **CLOSE)


@pytest.mark.parametrize(
    "name", ["apart", "longer", "both leaves", "shared encoder", "dropout", "normalised", "detached"]
)
def test_all_results_at_once(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = tatara.compile(function)

    def outcome(f: Any, i: int) -> Any:
        torch.manual_seed(i)
        given = _plain(i)
        sum(r.sin().sum() for r in f(*given)).backward()
        return [t.grad for t in given]

    for i in range(5):
        same(outcome(compiled, i), outcome(function, i), **CLOSE)


def test_sizes_vary() -> None:
    def function(x: Any, y: Any) -> Any:
        return (x.sin() * 2).sum(0), (y.cos() / y.shape[0]).exp(), x.expand(2, *x.shape)

    compiled = tatara.compile(function)
    for i, rows in enumerate([3, 5, 7, 2, 9, 4]):
        outcomes = []
        for f in (function, compiled):
            torch.manual_seed(i)
            given = [torch.randn(rows, 4, requires_grad=True), torch.randn(rows + 1, 4, requires_grad=True)]
            results = f(*given)
            told = [_pass(results, which, False) for which in (1, 0, 2, 2)]
            outcomes.append((told, [t.grad for t in given]))
        same(outcomes[1], outcomes[0], **CLOSE)


def test_a_write_between_passes() -> None:
    """What one result was made of may be written to before the pass through another, as an optimizer does."""

    def function(x: Any, y: Any, w: Any, v: Any) -> Any:
        return (x @ w).relu(), (y @ v).tanh(), y.exp() * v.sum()

    compiled = tatara.compile(function)
    for i in range(6):
        outcomes = []
        for f in (function, compiled):
            torch.manual_seed(i)
            given = [torch.randn(4, 4, requires_grad=True) for _ in range(4)]
            results = f(*given)
            told = [_pass(results, 0, False)]
            with torch.no_grad():
                given[2].add_(1)
                if i % 2:
                    given[3].add_(1)
            told.append(_pass(results, 1, False))
            outcomes.append((told, [t.grad for t in given]))
        same(outcomes[1], outcomes[0], **CLOSE)


def test_hooks_are_called_in_their_own_pass() -> None:
    def outcome(f: Any, i: int) -> Any:
        torch.manual_seed(i)
        given = _plain(i)
        inner = [t * 1 for t in given]
        told: list[Any] = []
        for k, each in enumerate(inner):
            each.register_hook(lambda g, k=k: told.append((k, g.clone())))
        a, b = f(*inner)
        a.sum().backward()
        told.append("between")
        b.sum().backward()
        return told, [t.grad for t in given]

    def function(x: Any, y: Any) -> Any:
        return x.sin(), y.cos()

    compiled = tatara.compile(function)
    for i in range(5):
        same(outcome(compiled, i), outcome(function, i), **CLOSE)


def test_an_outer_history_is_gone_through_once() -> None:
    """What lies before a result that a pass does not go through is not used up."""

    def outcome(f: Any, i: int) -> Any:
        torch.manual_seed(i)
        given = _plain(i)
        a, b = f(given[0].exp(), given[1].exp())
        told = [_pass((a, b), which, False) for which in (0, 1)]
        return told, [t.grad for t in given]

    def function(x: Any, y: Any) -> Any:
        return x * x, y * y

    compiled = tatara.compile(function)
    for i in range(5):
        same(outcome(compiled, i), outcome(function, i), **CLOSE)
