"""Operators of the user, and of libraries, that the registry lacks: steps inside of a graph, which the host runs as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

CALLS: list[float] = []


@torch.library.custom_op("tatara_tests::noted", mutates_args=())
def noted(x: torch.Tensor, factor: float) -> torch.Tensor:
    CALLS.append(factor)
    return x * factor


@torch.library.custom_op("tatara_tests::moody", mutates_args=())
def moody(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 1e3:
        raise ValueError("too large")
    return x.new_zeros(3) if x.sum() < -1e3 else x * 2


@torch.library.custom_op("tatara_tests::parts", mutates_args=())
def parts(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:n].clone(), x.sum(0)


@torch.library.custom_op("tatara_tests::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x)


@torch.library.custom_op("tatara_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@torch.library.custom_op("tatara_tests::increment", mutates_args=("x",))
def increment(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("tatara_tests::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def _keep(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


sine.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=_keep)
for each in (moody, noisy, sine):
    each.register_fake(torch.empty_like)
noted.register_fake(lambda x, factor: torch.empty_like(x))
parts.register_fake(lambda x, n: (x.new_empty(n, *x.shape[1:]), x.new_empty(x.shape[1:])))


@torch.library.custom_op("tatara_tests::scaled", mutates_args=())
def scaled(
    x: torch.Tensor, w: torch.Tensor, factor: float = 2.0, *, shift: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    CALLS.append(1.0)
    return x * w * factor + shift, x.argmax(-1)


def _keep_scaled(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    assert keyword_only_inputs == {"shift": 3} and output[1].dtype == torch.int64
    ctx.save_for_backward(*inputs[:2])
    ctx.factor = inputs[2]


def _backward_of_scaled(ctx: Any, g: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    CALLS.append(-1.0)
    x, w = ctx.saved_tensors
    return g * w * ctx.factor if ctx.needs_input_grad[0] else None, (g * x * ctx.factor).sum(0), None


@torch.library.custom_op("tatara_tests::drawn", mutates_args=())
def drawn(x: torch.Tensor) -> torch.Tensor:
    return x * x * torch.rand_like(x)


def _keep_both(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


@torch.library.custom_op("tatara_tests::asks", mutates_args=())
def asks(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def _ask(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.factor = 3.0 if inputs[0].sum().item() == output.sum().item() else 3


@torch.library.custom_op("tatara_tests::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x * 3


def _mark(ctx: Any, inputs: tuple[torch.Tensor], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])


KEPT: list[torch.Tensor] = []


@torch.library.custom_op("tatara_tests::keeps_gradient", mutates_args=())
def keeps(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def _backward_that_keeps(ctx: Any, g: torch.Tensor) -> torch.Tensor:
    KEPT.append(g)
    return g * ctx.saved_tensors[0].cos()


scaled.register_fake(lambda x, w, factor=2.0, *, shift=1: (torch.empty_like(x), x.new_empty(x.shape[:-1]).long()))
scaled.register_autograd(_backward_of_scaled, setup_context=_keep_scaled)
drawn.register_autograd(lambda ctx, g: 2 * g * ctx.saved_tensors[1] / ctx.saved_tensors[0], setup_context=_keep_both)
asks.register_autograd(lambda ctx, g: g * ctx.factor, setup_context=_ask)
halves.register_autograd(lambda ctx, g, h: g * 2, setup_context=_mark)
keeps.register_autograd(_backward_that_keeps, setup_context=_keep)
for each in (drawn, asks, keeps):
    each.register_fake(torch.empty_like)
halves.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))

_library = torch.library.Library("tatara_tests", "FRAGMENT")
_library.define("same(Tensor x) -> Tensor")
_library.impl("same", lambda x: x, "CompositeExplicitAutograd")
_library.define("says_new(Tensor x) -> Tensor")
_library.impl("says_new", lambda x: x, "CPU")
_library.impl("says_new", torch.empty_like, "Meta")
_library.define("says_reads(Tensor x) -> Tensor")
_library.impl("says_reads", lambda x: (x.mul_(0.5), x.sin())[1], "CPU")
_library.impl("says_reads", torch.empty_like, "Meta")


def _reads_what_is_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    z = torch.ops.tatara_tests.says_reads(y)
    return (z + y[1:].sum(0)).sin() * torch.ops.tatara_tests.says_reads(x).sum() + x


def _reads_what_is_shared(x: torch.Tensor) -> torch.Tensor:
    twice = x * 2
    same = torch.ops.tatara_tests.says_new(twice)
    others = [(x + i).sin() for i in range(4)]
    return same + sum(others)


PROGRAMS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    # the program, and whether it is one graph where nothing is differentiated
    "called twice": (lambda x: noted(x.sin(), 2.0) * 1 + noted(x + 1, 3.0), True),
    "result not needed": (lambda x: (noted(x, 5.0), x.cos() * 2)[1], True),
    "same call again": (lambda x: noted(x, 2.0) + noted(x, 2.0), True),
    "several results": (lambda x: sum(t.sum() for t in parts(x * 2, 2)) * 2, True),
    "random numbers": (lambda x: noisy(torch.rand_like(x) + x * 2) * torch.rand_like(x), True),
    "size of data": (lambda x: positive(x * 2) + 1, False),
    "writes": (lambda x: (lambda y: (increment(y), y * 2)[1])(x * 1), False),
    "gives its operand": (lambda x: torch.ops.tatara_tests.same(x * 2).add(1), False),
    "writes through": (lambda x: torch.ops.tatara_tests.same(x).mul_(2) + 1, False),
    "memory of an operand": (lambda x: torch.ops.tatara_tests.says_new(x * 2) + 1, False),
    "memory used again": (_reads_what_is_shared, False),
    "writes unsaid": (_reads_what_is_written, False),
    "derivative": (lambda x: sine(x * 2) * 3, True),
    "all overloads": (lambda x: torch.ops.tatara_tests.noted(x * 3, factor=2.0) + 1, True),
    "one overload": (lambda x: torch.ops.tatara_tests.noted.default(x * 3, 2.0) + 1, True),
    "batch": (lambda x: torch.func.vmap(lambda row: torch.ops.tatara_tests.sine(row * 2))(x) + 1, True),
}


def _outcome(function: Callable[..., Any], x: torch.Tensor, needs: bool) -> tuple[Any, ...]:
    """What a program can tell of a call: result, what it wrote, calls of the operator, random numbers, gradient."""
    torch.manual_seed(0)
    CALLS.clear()
    given = x.clone().requires_grad_(needs)
    operand = given * 1 if needs else given
    try:
        result = function(operand)
    except Exception as error:
        return type(error).__name__, str(error), tuple(CALLS)
    gradient = None
    if needs and result.requires_grad:
        try:
            gradient = torch.autograd.grad(result.sum(), given, allow_unused=True)[0]
        except RuntimeError as error:  # of an operator without a derivative
            gradient = str(error)
    return result.detach(), operand.detach(), tuple(CALLS), torch.rand(2), gradient, result.requires_grad


def _compare(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for a, b in zip(actual, expected, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        else:
            assert a == b


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["inference", "gradients", "dynamic"])
def test_as_eager(name: str, how: str) -> None:
    program, whole = PROGRAMS[name]
    compiled = tatara.compile(program, dynamic=True) if how == "dynamic" else tatara.compile(program)
    needs = how == "gradients"
    with torch.set_grad_enabled(needs), counts() as grown:
        for call in range(3):
            x = torch.randn(4 + (call if how == "dynamic" else 0), 5)
            expected, actual = _outcome(program, x, needs), _outcome(compiled, x, needs)
            _compare(actual, expected)
    assert grown["fallbacks"] == 0
    if whole and not needs:
        assert grown["graphs"] == 1
        assert grown["breaks"] == 0 and (how == "dynamic" or grown["host_calls"] >= 2)


def test_errors_and_other_results_are_eagers() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return moody(x * 1) * 2 + 1

    compiled = tatara.compile(program)
    for value in (1.0, 1.0, 2000.0, 1.0, -2000.0, 1.0):
        x = torch.full((4,), value)
        _compare(_outcome(compiled, x, False), _outcome(program, x, False))


def _same_kept(
    kept: list[torch.Tensor],
    program: Callable[..., Any],
    compiled: Callable[..., Any],
    sizes: tuple[tuple[int, ...], ...],
    calls: int,
    tolerance: float,
) -> None:
    """What an operator has put into `kept` in some calls; memory written over would be far off."""
    seen = []
    for function in (program, compiled):
        kept.clear()
        with torch.no_grad():
            for call in range(calls):
                torch.manual_seed(call)
                function(*(torch.randn(*size) for size in sizes))
                torch.randn(1000, 64)
        seen.append([t.clone() for t in kept])
    assert len(seen[0]) == len(seen[1])
    for ours, theirs in zip(*seen, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_an_operator_may_keep_what_it_is_given_and_what_it_gives() -> None:
    """Memory of a plan is written over by later steps and calls; what the operator has seen stays as it was."""
    kept: list[torch.Tensor] = []

    @torch.library.custom_op("tatara_tests::keeps", mutates_args=())
    def keeps(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result = x * weight
        kept.extend((x, weight, result))
        return result

    keeps.register_fake(lambda x, weight: torch.empty_like(x))

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for i in range(4):
            x = (keeps((x + i).sin() * 2, weight.t()) * 3).cos() + x
        return x

    compiled = tatara.compile(program)
    _same_kept(kept, program, compiled, ((64, 64), (64, 64)), calls=4, tolerance=1e-2)


WEIGHT = torch.rand(5) + 0.5
DIFFERENTIATED: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {
    # the program, and whether its gradients come from one graph
    "one result": (lambda x: sine(x * 2) * 3, True),
    "twice": (lambda x: sine(sine(x * 2) + x) * 3, True),
    "arguments of all kinds": (lambda x: sum(scaled(x * 2, WEIGHT, 3.0, shift=3)[0].exp()), True),
    "its result is saved": (lambda x: drawn(x * 0.5).sin() * 2, True),
    "a gradient is kept": (lambda x: keeps(x * 2) * 3, True),
    "not needed": (lambda x: (sine(x * 2), x * 3)[1], True),
    "its state asks for data": (lambda x: asks(x * 2).sin() * 3, False),
    "a result without gradient": (lambda x: sum(halves(x * 2)).sin(), False),
    "known to the dispatcher alone": (lambda x: (x * 2).sin() + torch.ops.tatara_tests.same(x * 3), False),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
@pytest.mark.parametrize("order", [1, 2])
def test_registered_derivatives(name: str, order: int) -> None:
    """Derivatives that libraries register are steps of the backward plan, and can be differentiated again."""
    program, whole = DIFFERENTIATED[name]
    compiled = tatara.compile(program)

    def outcome(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[Any, ...]:
        torch.manual_seed(0)
        CALLS.clear()
        KEPT.clear()
        given = x.clone().requires_grad_()
        result = function(given)
        (gradient,) = torch.autograd.grad(result.square().sum(), given, create_graph=order == 2)
        called = tuple(CALLS)  # the second time the first derivative is made once more
        if order == 2:
            (gradient,) = torch.autograd.grad(gradient.square().sum(), given)
        return result.detach(), gradient, called, torch.rand(2), len(KEPT[:order]), *KEPT[:1]

    with counts() as grown:
        for _ in range(3):
            x = torch.rand(5, 5) + 0.5
            expected, actual = outcome(program, x), outcome(compiled, x)
            _compare(tuple(actual), tuple(expected))
            assert KEPT == [] or actual[-1].equal(KEPT[0])
    assert (grown["breaks"], grown["fallbacks"]) == (0, 0)
    # In a graph of its own each such call is one step, forwards and backwards.
    report = tatara.explain(compiled)(torch.rand(5, 5, requires_grad=True))
    assert (len(report.graphs) == 1 and not any("rule" in call.reason for call in report.host_calls)) or not whole


def test_gradients_as_the_host_takes_them() -> None:
    """A gradient of a broader shape or another type becomes the operand's, one of a shape that does not fit is eager's error."""

    @torch.library.custom_op("tatara_tests::broad", mutates_args=())
    def broad(x: torch.Tensor, rows: int) -> torch.Tensor:
        return x * 2

    broad.register_fake(lambda x, rows: torch.empty_like(x))

    def setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.rows = inputs[1]

    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        return g.double().expand(ctx.rows, *g.shape) if ctx.rows > 0 else g[:1], None

    broad.register_autograd(backward, setup_context=setup)

    def program(x: torch.Tensor, rows: int) -> torch.Tensor:
        return broad(x.exp(), rows).sin() * 2 + 1

    compiled = tatara.compile(program)
    for rows in (3, 0):
        for _ in range(2):
            x = torch.rand(4, 5, requires_grad=True)
            results = []
            for function in (program, compiled):
                try:
                    results.append(torch.autograd.grad(function(x, rows).sum(), x)[0])
                except RuntimeError as error:
                    results.append(type(error))
            if rows == 0:
                assert results == [RuntimeError, RuntimeError]
            else:
                torch.testing.assert_close(*results)


@torch.library.custom_op("tatara_tests::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(float(x.dim()))
    return x * 3


tripled.register_fake(torch.empty_like)
tripled.register_vmap(lambda info, dims, x: (tripled(x.movedim(dims[0], 0)), 0))


@torch.library.custom_op("tatara_tests::wavering", mutates_args=())
def wavering(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 1e3:
        raise ValueError("too large")
    return x.double() if x.sum() < -1e3 else x * 2


wavering.register_fake(torch.empty_like)
_GRID = torch.arange(5.0)

BATCHED: dict[str, Callable[[torch.Tensor], Any]] = {
    "row by row": lambda x: torch.vmap(lambda r: sine(r * 2).cos() + 1)(x),
    "in_dims, along columns": lambda x: torch.vmap(lambda r: sine(r * 2).cos() + 1, in_dims=1, out_dims=1)(x),
    "in_dims, at once": lambda x: torch.vmap(lambda r: tripled(r * 2).cos() + 1, in_dims=1)(x),
    "twice": lambda x: torch.vmap(torch.vmap(lambda v: sine(v * 2).cos() + 1))(x),
    "twice at once": lambda x: torch.vmap(torch.vmap(lambda v: tripled(v * 2).cos() + 1), in_dims=1)(x),
    "the same for all": lambda x: torch.vmap(lambda r: sine(_GRID * 2) + r.cos())(x),
    "some operands": lambda x: torch.vmap(lambda r: scaled(r * 2, _GRID, 3.0, shift=3)[0].exp())(x * 0.1),
    "several results": lambda x: torch.vmap(lambda r: sum(t.sum() for t in halves(r * 2)))(x),
    "in a chain": lambda x: torch.vmap(lambda r: sine(sine(r.tanh()) + r).tanh() * r.sum())(x),
    "random numbers": lambda x: torch.vmap(lambda r: noisy(r * 2).cos())(x),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("dynamic", [False, True])
def test_under_vmap(name: str, dynamic: bool) -> None:
    """A step of one graph, called as often as torch does it."""
    program = BATCHED[name]
    torch.vmap(torch.sin)(torch.ones(2))  # torch itself loads parts of it once in a process
    torch.vmap(sine)(torch.ones(2))
    compiled = tatara.compile(program, dynamic=dynamic)
    with torch.no_grad(), counts() as grown:
        for call in range(3):
            x = torch.randn(4 + (call if dynamic else 0), 5)
            _compare(_outcome(compiled, x, False), _outcome(program, x, False))
    assert (grown["breaks"], grown["fallbacks"]) == (0, 0)
    assert grown["graphs"] == 1 or (dynamic and "in_dims" in name)
    with torch.no_grad():
        report = tatara.explain(program)(torch.randn(4, 5))
    assert (len(report.graphs), report.breaks, bool(report.graphs[0].fallback)) == (1, [], False)


@pytest.mark.filterwarnings("ignore")
def test_under_vmap_errors_and_other_results_are_eagers() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda r: (wavering(r * 1) * 2 + 1).sin())(x)

    compiled = tatara.compile(program)
    with torch.no_grad():
        for value in (1.0, 1.0, 2000.0, 1.0, -2000.0, 1.0, 1.0):
            x = torch.full((3, 4), value)
            _compare(_outcome(compiled, x, False), _outcome(program, x, False))


@pytest.mark.filterwarnings("ignore")
def test_under_vmap_what_is_kept_stays_as_it_was() -> None:
    kept: list[torch.Tensor] = []

    @torch.library.custom_op("tatara_tests::keeps_rows", mutates_args=())
    def keeps_rows(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x * 2

    keeps_rows.register_fake(torch.empty_like)

    def program(x: torch.Tensor) -> torch.Tensor:
        for i in range(3):
            x = torch.vmap(lambda r, i=i: keeps_rows((r + i).sin() * 2).cos() + r)(x)
        return x

    compiled = tatara.compile(program)
    _same_kept(kept, program, compiled, ((8, 64),), calls=3, tolerance=1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", [sine, tripled, noted])
def test_gradients_through_vmap_are_eagers(operator: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        call = (lambda r: operator(r, 2.0)) if operator is noted else operator
        return torch.vmap(lambda r: call(r * 2).cos() + r.sin())(x) * 2

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(4, 5)
        _compare(_outcome(compiled, x, True), _outcome(program, x, True))


def _keep_nothing_of_history(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0].detach())
    ctx.result = output.detach()


def _keep_result(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.result = output


@pytest.mark.parametrize(
    ("name", "keep", "again"),
    [("from_saved", _keep, True), ("detached", _keep_nothing_of_history, False), ("from_result", _keep_result, True)],
)
def test_gradients_require_grad_where_the_context_holds_histories(name: str, keep: Any, again: bool) -> None:
    @torch.library.custom_op(f"tatara_tests::history_{name}", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * (ctx.saved_tensors[0].exp() if ctx.saved_tensors else ctx.result)

    operator.register_fake(torch.empty_like)
    operator.register_autograd(backward, setup_context=keep)

    def program(x: torch.Tensor) -> torch.Tensor:
        return operator(x)

    compiled = tatara.compile(program)
    for _ in range(3):
        found = []
        for function in (compiled, program):
            x = torch.linspace(-1, 1, 5).requires_grad_()
            cotangent = torch.ones(5, requires_grad=True)
            (plain,) = torch.autograd.grad(function(x), x, torch.ones(5), create_graph=True)
            (given,) = torch.autograd.grad(function(x), x, cotangent, create_graph=True)
            second = torch.autograd.grad(plain.sum(), x) if plain.requires_grad else ()
            linear = torch.autograd.grad(given.sum(), cotangent)
            found.append((plain.requires_grad, given.requires_grad, plain.detach(), given.detach(), second, linear))
        assert found[0][:2] == found[1][:2] == (again, True)
        torch.testing.assert_close(found[0][2:], found[1][2:])
