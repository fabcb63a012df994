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
