"""torch.func's transforms, forward-mode derivatives, checkpoints and hooks on saved tensors: inside and around compiled code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.autograd.forward_ad as forward_ad  # noqa: E402
from torch.func import grad, jvp, vjp, vmap  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tatara  # noqa: E402

Function = Callable[[Any], Any]


class Odd(torch.autograd.Function):
    """A cube with a derivative of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * x * 30


def _layers() -> Any:
    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])


NETS = _layers()


def _two(x: Any) -> Any:
    return NETS[1](NETS[0](x).tanh()).tanh()


def _row(x: Any) -> Any:
    return NETS[0](x).sin().sum()


def _dual(f: Function, x: Any) -> Any:
    with forward_ad.dual_level():
        made = forward_ad.make_dual(x, torch.ones_like(x))
        return forward_ad.unpack_dual(f(made).sin()).tangent.sum()


def _hooked(f: Function, x: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 4):
        y = f(x)
    return (y * y).sum()


def _functional(f: Function, x: Any) -> Any:
    def loss(parameters: Any) -> Any:
        return (torch.func.functional_call(NETS[0], parameters, (x,)) ** 2).sum()

    grads = torch.func.grad(loss)(dict(NETS[0].named_parameters()))
    return sum((g**2).sum() for g in grads.values()) + f(x).sum()


USES: dict[str, tuple[Function, Callable[[Function, Any], Any]]] = {
    "own derivative": (lambda x: Odd.apply(NETS[0](x)).sin(), lambda f, x: f(x).sum()),
    "checkpoint": (_two, lambda f, x: checkpoint(f, x, use_reentrant=False).sum()),
    "reentrant checkpoint": (_two, lambda f, x: checkpoint(f, x, use_reentrant=True).sum()),
    "hooks on saved tensors": (_two, _hooked),
    "vmap": (_row, lambda f, x: torch.vmap(f)(x).sum()),
    "vmap of grad": (_row, lambda f, x: torch.vmap(torch.func.grad(f))(x).sum()),
    "jacrev": (_two, lambda f, x: torch.func.jacrev(f)(x[0]).sum()),
    "jacfwd": (_two, lambda f, x: torch.func.jacfwd(f)(x[0]).sum()),
    "hessian": (_row, lambda f, x: torch.func.hessian(f)(x[0]).sum()),
    "jvp": (_two, lambda f, x: torch.func.jvp(f, (x,), (x,))[1].sum()),
    "vjp": (_two, lambda f, x: torch.func.vjp(f, x)[1](x)[0].sum()),
    "functional call": (_two, _functional),
    "dual numbers": (_two, _dual),
}


def _gradients(run: Function) -> list[Any]:
    found = []
    for seed in range(3):
        NETS.zero_grad()
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        result = run(x)
        if result.requires_grad:
            result.backward()
        found.append([result.detach(), *[p.grad for p in (x, *NETS.parameters())]])
    return found


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
@pytest.mark.parametrize("name", USES)
@pytest.mark.filterwarnings("ignore")
def test_as_in_eager(name: str, inside: bool) -> None:
    f, use = USES[name]
    expected = _gradients(lambda x: use(f, x))
    tatara.reset()
    whole = tatara.compile(lambda x: use(f, x))
    part = tatara.compile(f)
    if not inside:
        part(torch.ones(3, 4))  # an entry from outside of the transform
        part(torch.ones(3, 4).requires_grad_())
    actual = _gradients(whole if inside else lambda x: use(part, x))
    for ours, theirs in zip(actual, expected):
        for a, e in zip(ours, theirs):
            assert (a is None) == (e is None)
            if e is not None:
                torch.testing.assert_close(a, e)


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
def test_a_dispatch_mode_sees_the_operators(inside: bool) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def f(x: Any) -> Any:
        return x.sin() + 1

    part = tatara.compile(f)
    part(torch.ones(3))

    def use(g: Function) -> Any:
        with Log():
            return g(torch.ones(3))

    whole = tatara.compile(use)
    for _ in range(2):
        seen.clear()
        expected = use(f)
        logged = list(seen)
        seen.clear()
        assert torch.equal(whole(f) if inside else use(part), expected)
        assert [name for name in seen if "sin" in name or "add" in name] == [
            name for name in logged if "sin" in name or "add" in name
        ]
    assert torch.equal(part(torch.ones(3)), f(torch.ones(3)))


def test_the_report_says_why() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        breaks = tatara.explain(lambda x: torch.func.grad(lambda y: y.sum() * y.sum().item())(x))(torch.ones(4)).breaks
    assert any("item" in each.reason for each in breaks)
    assert any("torch.func" in each.reason for each in breaks)


MODE_USERS: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x: grad(lambda w: f(w).sum())(x),
    "grad of grad": lambda f, x: grad(lambda z: (grad(lambda w: (f(w) ** 2).sum())(z) ** 2).sum())(x),
    "vmap": lambda f, x: vmap(f)(x[None]),
    "vmap of grad": lambda f, x: vmap(grad(lambda w: f(w).sum()))(x[None]),
    "grad of vmap": lambda f, x: grad(lambda w: (vmap(f)(w[None]) ** 2).sum())(x),
    "jvp": lambda f, x: jvp(f, (x,), (x,))[1],
    "vjp": lambda f, x: vjp(f, x)[1](x)[0],
}


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("user", MODE_USERS)
def test_grad_mode_under_transforms_is_the_callers(user: str, mode: bool) -> None:
    def function(a: Any) -> Any:
        return a * a * (3 if torch.is_grad_enabled() else 5)

    compiled = tatara.compile(function)
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    with torch.set_grad_enabled(mode):
        expected = MODE_USERS[user](function, x)
        for _ in range(3):
            torch.testing.assert_close(MODE_USERS[user](compiled, x), expected)


def _squared(a: Any) -> Any:
    return torch.outer(a, a).sum(0)


def _levels_are_left() -> None:
    assert torch._C._functorch.get_interpreter_stack() is None
    torch.rand(1)  # raises where a level of vmap was left open


INSIDE: dict[str, Callable[..., Any]] = {
    "vmap": lambda f, z: vmap(f)(torch.stack([z, z])),
    "jacrev": lambda f, z: torch.func.jacrev(f)(z),
    "jacfwd": lambda f, z: torch.func.jacfwd(f)(z),
    "grad": lambda f, z: grad(lambda w: f(w).sum())(z),
    "linearize": lambda f, z: torch.func.linearize(f, z)[1](z),
    "jacobian": lambda f, z: torch.autograd.functional.jacobian(f, z * 1),
    "jacobian by batches": lambda f, z: torch.autograd.functional.jacobian(f, z.detach(), vectorize=True),
    "jacobian forwards": lambda f, z: torch.autograd.functional.jacobian(
        f, z.detach(), vectorize=True, strategy="forward-mode"
    ),
}
OUTSIDE: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x: grad(lambda z: (f(z) ** 2).sum())(x),
    "vmap": lambda f, x: vmap(f, randomness="different")(x[None]),
    "jvp": lambda f, x: jvp(f, (x,), (x,))[1],
}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("outside", OUTSIDE)
def test_a_look_leaves_no_level_behind(inside: str, outside: str) -> None:
    """The compiled function is looked at first: where that ends inside of a level, nothing has been entered or left."""
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)

    def outcome(f: Any, whole: Any) -> Any:
        try:
            return OUTSIDE[outside](lambda z: whole(z), x)
        except RuntimeError as error:
            return str(error)

    def plain(z: Any) -> Any:
        return INSIDE[inside](_squared, z)

    expected = outcome(_squared, plain)
    inner = tatara.compile(_squared)
    compiled = tatara.compile(lambda z: INSIDE[inside](inner, z))
    for _ in range(3):
        found = outcome(inner, compiled)
        _levels_are_left()
        if isinstance(expected, str):
            assert found == expected
        elif (inside, outside) != (
            "linearize",
            "grad",
        ):  # eager itself reads memory that nobody wrote (MALLOC_PERTURB_)
            torch.testing.assert_close(found, expected)


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "requires_grad": lambda a: a.requires_grad,
    "of a result": lambda a: (a * 2).requires_grad,
    "is_leaf": lambda a: (a * 2).is_leaf,
    "grad_fn": lambda a: (a * 2).grad_fn is not None,
    "_is_view": lambda a: a._is_view(),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("user", MODE_USERS)
def test_questions_about_the_level_of_a_tensor(user: str, question: str) -> None:
    def function(a: Any) -> Any:
        return a * (3 if QUESTIONS[question](a) else 5) * a

    compiled = tatara.compile(function)
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    expected = MODE_USERS[user](function, x)
    for _ in range(3):
        torch.testing.assert_close(MODE_USERS[user](compiled, x), expected)
    torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("user", ["grad", "grad of grad", "vmap", "vmap of grad"])
def test_dual_tensors_inside_of_transforms(user: str) -> None:
    def function(a: Any) -> Any:
        return a.pow(2) * 0.25 + (a * 2).sin()

    compiled = tatara.compile(function)
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)

    def both(f: Any) -> Any:
        with forward_ad.dual_level():
            return tuple(forward_ad.unpack_dual(MODE_USERS[user](f, forward_ad.make_dual(x, x.cos()))))

    for _ in range(3):
        torch.testing.assert_close(both(compiled), both(function))


DERIVED: dict[str, Callable[..., Any]] = {
    "vmap": lambda pull, c: vmap(pull)(torch.stack([c, c * 2])),
    "vmap of vmap": lambda pull, c: vmap(vmap(pull))(torch.stack([c, c * 2])[None]),
    "grad": lambda pull, c: grad(lambda d: (pull(d) ** 2).sum())(c),
    "jvp": lambda pull, c: jvp(pull, (c,), (c,)),
    "jacrev": lambda pull, c: torch.func.jacrev(pull)(c),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("how", DERIVED)
def test_gradients_of_a_compiled_result_inside_of_transforms(how: str, create_graph: bool) -> None:
    def pull(function: Any, x: Any) -> Any:
        result = function(x)
        return lambda c: torch.autograd.grad(result, x, c, retain_graph=True, create_graph=create_graph)[0]

    def outcome(function: Any) -> Any:
        x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
        try:
            return DERIVED[how](pull(function, x), torch.ones(3, dtype=torch.float64))
        except RuntimeError as error:
            return str(error)

    def function(a: Any) -> Any:
        return a.sin() * a

    compiled = tatara.compile(function)
    expected = outcome(function)
    for _ in range(3):
        found = outcome(compiled)
        assert found == expected if isinstance(expected, str) else not isinstance(found, str)
        if not isinstance(expected, str):
            torch.testing.assert_close(found, expected)


def test_batches_of_cotangents_are_quiet(capfd: Any) -> None:
    """Torch 2.11 writes to the standard error output where a tensor without memory is asked for its address."""
    x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    compiled = tatara.compile(lambda a: a.sin() * a)
    for _ in range(3):
        found = torch.autograd.grad(compiled(x), x, torch.eye(3), is_grads_batched=True, create_graph=True)[0]
        torch.testing.assert_close(found, torch.diag(x.cos() * x + x.sin()))
    assert capfd.readouterr().err == ""


def _cubes(a: Any) -> Any:
    return a**3 + a.sum()


LEVELS: dict[str, Callable[[Function, Any], Any]] = {
    "dual": _dual,
    "jvp": lambda f, x: jvp(f, (x,), (torch.ones_like(x),))[1],
    "vmap": lambda f, x: vmap(f)(x),
    "grad": lambda f, x: grad(lambda a: f(a).sum())(x),
    "vmap of jvp": lambda f, x: vmap(lambda a: jvp(f, (a,), (torch.ones_like(a),))[1])(x),
}


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_hooks_around_levels(level: str, asks: bool) -> None:
    def outcome(f: Function) -> Any:
        x = torch.linspace(0.1, 1, 6).reshape(2, 3).requires_grad_(asks)
        try:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
                y = LEVELS[level](f, x)
            return y.detach(), torch.autograd.grad(y.sum(), x)[0] if y.requires_grad else None
        except RuntimeError as error:
            return str(error), None

    compiled = tatara.compile(_cubes)
    for _ in range(3):
        for ours, theirs in zip(outcome(compiled), outcome(_cubes), strict=True):
            assert type(ours) is type(theirs)
            if isinstance(theirs, torch.Tensor):
                torch.testing.assert_close(ours, theirs)
            else:
                assert ours == theirs
