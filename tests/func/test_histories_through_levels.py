"""Results of levels of torch.func and of forward-mode derivatives require grad where they do in eager, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.autograd.forward_ad as fw  # noqa: E402
from torch.autograd.functional import jacobian  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import tatara  # noqa: E402

x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
y = torch.tensor([1.5, 0.25, -0.5], dtype=torch.float64)
batch = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(4, 3)

# Of two tensors: linear in one of them, in both, in none; results that depend on one of them only.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda a, b: a * 2 + b,
    "product": lambda a, b: a * b,
    "sine": lambda a, b: a.sin() + b * 3,
    "sum": lambda a, b: a.sum() + b,
    "detached": lambda a, b: a.detach() * b,
    "two": lambda a, b: (a * 3, b.exp()),
    "three": lambda a, b: (a.sin(), b * 2, a * b),
    "one_of_two": lambda a, b: (a.cumsum(0), a.flip(0) * b.detach()),
    "nested": lambda a, b: grad(lambda z: (z * z * b).sum())(a),
    "nested_linear": lambda a, b: grad(lambda z: (z * b).sum())(a),
    "relu": lambda a, b: (a.relu() + b.relu() * 2, b.double()),
    "casts": lambda a, b: a.float().double() * 2 + b,
    "maximum": lambda a, b: torch.maximum(a, b).sort().values,
    "comparison": lambda a, b: torch.where(a > b, a, b * 2),
    "no_grad": lambda a, b: (torch.no_grad()(torch.relu)(a), b * 1),
    "no_grad_and_more": lambda a, b: (torch.no_grad()(torch.exp)(b) * a, a + torch.no_grad()(torch.exp)(a)),
}


def parts(o: Any) -> list[Any]:
    return [o] if isinstance(o, torch.Tensor) else [t for each in o for t in parts(each)] if o is not None else []


def total(o: Any) -> Any:
    return sum(t.sum() for t in parts(o))


def unpacked(o: Any) -> Any:
    return [t for each in parts(o) for t in fw.unpack_dual(each)]


def duals(f: Any, g: Any, at: int) -> Any:
    with fw.dual_level():
        given = [x, g]
        given[at] = fw.make_dual(given[at], y)
        return unpacked(f(*given))


def both_dual(f: Any, g: Any) -> Any:
    with fw.dual_level():
        return unpacked(f(fw.make_dual(x, g * 2), fw.make_dual(g, y)))


def of_cotangents(of: Any, f: Any, g: Any) -> Any:
    """Gradients by g, as a function of what is multiplied with the cotangents."""
    roots = [r for r in parts(f(x, g)) if r.requires_grad]

    def pull(c: Any) -> Any:
        found = torch.autograd.grad(
            roots, g, [c * r.detach() for r in roots], create_graph=True, retain_graph=True, allow_unused=True
        )[0]
        return found.clone() if found is not None else c * 1

    return of(pull)


AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "grad of the plain one": lambda f, g: grad(lambda z: total(f(z, g)))(x),
    "grad of its own": lambda f, g: grad(lambda z: total(f(x, z)))(g),
    "vjp": lambda f, g: vjp(lambda z: total(f(z, g)), x)[1](y[0]),
    "jvp": lambda f, g: jvp(lambda z: f(z, g), (x,), (y,)),
    "jvp along it": lambda f, g: jvp(lambda z: f(z, y), (x,), (g,)),
    "jacrev": lambda f, g: jacrev(lambda z: f(z, g))(x),
    "jacfwd": lambda f, g: jacfwd(lambda z: f(z, g))(x),
    "hessian": lambda f, g: hessian(lambda z: total(f(z, g)))(x),
    "vmap": lambda f, g: vmap(f, in_dims=(0, None))(batch, g),
    "vmap of grad": lambda f, g: vmap(lambda z: grad(lambda w: total(f(w, g)))(z))(batch),
    "grad of vmap": lambda f, g: grad(lambda z: total(vmap(f, in_dims=(0, None))(z, g)))(batch),
    "dual plain one": lambda f, g: duals(f, g, 0),
    "dual of its own": lambda f, g: duals(f, g, 1),
    "both dual": both_dual,
    "cotangents in grad": lambda f, g: of_cotangents(lambda pull: grad(lambda c: pull(c).sum())(x[0]), f, g),
    "cotangents in vmap": lambda f, g: of_cotangents(lambda pull: vmap(pull)(batch[:, 0]), f, g),
    "cotangents in jvp": lambda f, g: of_cotangents(lambda pull: jvp(pull, (x[0],), (y[0],)), f, g),
    "cotangents in jacrev": lambda f, g: of_cotangents(lambda pull: jacrev(pull)(x[0]), f, g),
    "jacobian forwards": lambda f, g: jacobian(f, (x, g.detach()), vectorize=True, strategy="forward-mode"),
    "jacobian": lambda f, g: jacobian(f, (x, g), create_graph=True),
    "grad of its own without grad mode": lambda f, g: torch.no_grad()(lambda: grad(lambda z: total(f(x, z)))(g))(),
    "jvp of its own": lambda f, g: jvp(lambda z: f(x, z), (g,), (y,)),
    "jvp of its own without grad mode": lambda f, g: torch.no_grad()(lambda: jvp(lambda z: f(x, z), (g,), (y,)))(),
    "jacfwd of its own": lambda f, g: jacfwd(lambda z: f(x, z))(g),
    "vmap of its own": lambda f, g: vmap(lambda z: f(x, g * z))(batch),
    "grad of grad of its own": lambda f, g: grad(lambda z: (grad(lambda w: (w * total(f(x, w))).sum())(z) ** 2).sum())(
        g
    ),
    "without grad mode": lambda f, g: torch.no_grad()(lambda: jvp(lambda z: f(z, g), (x,), (y,)))(),
}


def seen(result: Any, g: Any) -> list[Any]:
    found: list[Any] = []
    for t in parts(result):
        gradient = torch.autograd.grad(t.sum(), g, retain_graph=True, allow_unused=True)[0] if t.requires_grad else None
        found.append(
            (tuple(t.shape), t.requires_grad, t.is_leaf, t.detach().clone().tolist())
        )  # also of zeros without memory
        # A gradient of zeros, or none: which of them is not compared.
        found.append([0.0] * 3 if gradient is None else gradient.clone().tolist())
    return found


@pytest.mark.parametrize("around", AROUND, ids=lambda name: name.replace(" ", "_"))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_requires_grad(name: str, around: str) -> None:
    def outcomes(f: Any) -> list[Any]:
        found = []
        for _ in range(3):
            g = torch.tensor([0.3, 0.7, -1.1], dtype=torch.float64, requires_grad=True)
            try:
                found.append(seen(AROUND[around](f, g), g))
            except RuntimeError as error:
                found.append([str(error)])
        return found

    eager, compiled = outcomes(FUNCTIONS[name]), outcomes(tatara.compile(FUNCTIONS[name]))
    for wanted, got in zip(eager, compiled, strict=True):
        assert len(wanted) == len(got)
        for a, b in zip(wanted, got, strict=True):
            if isinstance(a, tuple) and isinstance(b, tuple):
                assert a[:3] == b[:3]
                torch.testing.assert_close(torch.tensor(a[3]), torch.tensor(b[3]))
            elif isinstance(a, list) and isinstance(b, list):
                torch.testing.assert_close(torch.tensor(a), torch.tensor(b))
            else:
                assert a == b
