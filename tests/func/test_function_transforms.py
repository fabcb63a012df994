"""torch.func's transforms inside compiled code: one graph, with eager's values, types, layouts and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.autograd.forward_ad as forward_ad  # noqa: E402
from torch.func import (  # noqa: E402
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from torch.utils._pytree import tree_flatten  # noqa: E402

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]

Function = Callable[..., Any]


def _linear() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 4)


LAYER = _linear()


def _row(x: Any) -> Any:
    return LAYER(x).tanh().sum()


def _vector(x: Any) -> Any:
    return LAYER(x).tanh()


def _local(x: Any) -> Any:
    """Writes to a tensor of its own."""
    y = x.clone()
    y[0] = x[1] * 2
    y.mul_(3)
    return (y * x).sum()


def _with_aux(x: Any) -> Any:
    return _row(x), {"twice": x * 2, "self": x, "view": x.view(2, 2)}


def _partly_constant(x: Any) -> Any:
    y = x.sin()
    with torch.no_grad():
        z = y * x
    return (y * z + z.detach()).sum()


def _loss(parameters: Any, x: Any) -> Any:
    return (functional_call(LAYER, parameters, (x,)) ** 2).sum()


def _seen() -> Function:
    calls: list[int] = []

    def f(x: Any) -> Any:
        def inner(y: Any) -> Any:
            calls.append(len(calls))
            return (y * y).sum()

        return grad(inner)(x), len(calls)

    return f


def _complex(x: Any) -> Any:
    z = torch.complex(x, x.cos())
    return (z * z).abs().sum()


GRADIENTS: dict[str, Function] = {
    "grad": lambda x: grad(_row)(x),
    "made outside": grad(_row),
    "grad of grad": lambda x: grad(lambda y: grad(_row)(y).sin().sum())(x),
    "third": lambda x: grad(lambda z: grad(lambda y: grad(lambda w: (w**4).sum())(y).sum())(z).sum())(x),
    "value": lambda x: grad_and_value(_row)(x),
    "vjp": lambda x: vjp(_vector, x)[1](x.cos()),
    "vjp of several": lambda x: vjp(lambda a, b: (a * b, (a.sin(), b)), x, x + 1)[1]((x, (x, x))),
    "vjp of vjp": lambda x: vjp(lambda y: vjp(_vector, y)[1](y)[0], x)[1](x),
    "vjp twice": lambda x: (lambda pull: (pull(x), pull(x * 2)))(vjp(_vector, x)[1]),
    "aux": lambda x: grad(_with_aux, has_aux=True)(x),
    "vjp aux": lambda x: vjp(_with_aux, x, has_aux=True)[2],
    "argnums": lambda x: grad(lambda a, b: (a * b.sin()).sum(), argnums=(1, 0))(x, x),
    "last argument": lambda x: grad(lambda a, b: (a * b.sin()).sum(), argnums=-1)(x, x),
    "tree": lambda x: grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": [x + 1]}),
    "keyword": lambda x: grad(lambda a, *, b: (a * b).sum())(x, b=x * 3),
    "unused": lambda x: grad(lambda a, b: a.sum(), argnums=(0, 1))(x, x),
    "constant": lambda x: grad(lambda a: (x * 2).sum())(x),
    "captured": lambda x: grad(lambda a: (a * x).sum())(x),
    "local": lambda x: grad(_local)(x),
    "partly constant": lambda x: grad(_partly_constant)(x),
    "complex": lambda x: grad(_complex)(x),
    "no grad around": torch.no_grad()(lambda x: (grad(_row)(x), x * 2)),
    "functional call": lambda x: grad(_loss)(dict(LAYER.named_parameters()), x),
    "list appended": _seen(),
    "beside other code": lambda x: (grad(_row)(x.sin()).cos() + x, x.exp()),
}


def _dual(x: Any) -> Any:
    with forward_ad.dual_level():
        made = forward_ad.make_dual(x, x.cos())
        primal, tangent = forward_ad.unpack_dual(_vector(made).sin())
        constant = forward_ad.unpack_dual(x)[1] is None
        return primal, tangent, constant


FORWARD: dict[str, Function] = {
    "jvp": lambda x: jvp(_vector, (x,), (x.cos(),)),
    "jvp of two": lambda x: jvp(lambda a, b: (a * b, a.sin()), (x, x + 1), (x.cos(), x)),
    "jvp aux": lambda x: jvp(lambda a: (a.sin(), {"a": a * 2}), (x,), (x,), has_aux=True),
    "jvp of jvp": lambda x: jvp(lambda y: jvp(_vector, (y,), (x,))[1], (x,), (x.cos(),)),
    "jvp of grad": lambda x: jvp(grad(_row), (x,), (x.cos(),)),
    "jvp of vjp": lambda x: jvp(lambda y: vjp(_vector, y)[1](x)[0], (x,), (x.cos(),)),
    "grad of jvp": lambda x: grad(lambda y: jvp(_vector, (y,), (x,))[1].sum())(x),
    "jvp of constant": lambda x: jvp(lambda y: y * 0 + x.sign(), (x,), (x,)),
    "jvp of independent": lambda x: jvp(lambda y: x.sin(), (x,), (x,)),
    "jvp of local": lambda x: jvp(_local, (x,), (x.cos(),)),
    "jvp of views": lambda x: jvp(lambda y: y.view(2, 2).t()[1].expand(3, 2) * y[:2], (x,), (x.cos(),)),
    "jvp of product": lambda x: jvp(lambda y: (y.view(2, 2) @ y.view(2, 2).t()).softmax(0), (x,), (x.cos(),)),
    "jvp under no_grad": lambda x: jvp(torch.no_grad()(_vector), (x,), (x.cos(),)),
    "jvp with gradients off": torch.no_grad()(lambda x: jvp(_vector, (x,), (x.cos(),))),
    "jacfwd": lambda x: jacfwd(_vector)(x),
    "jacrev": lambda x: jacrev(_vector)(x),
    "jacfwd argnums": lambda x: jacfwd(lambda a, b: a * b.sin(), argnums=(0, 1))(x, x),
    "jacrev argnums": lambda x: jacrev(lambda a, b: (a * b.sin(), b), argnums=(1, 0))(x, x),
    "jacfwd aux": lambda x: jacfwd(lambda a: (a.sin(), a * 2), has_aux=True)(x),
    "jacrev aux": lambda x: jacrev(lambda a: (a.sin(), a * 2), has_aux=True)(x),
    "jacrev chunk": lambda x: jacrev(_vector, chunk_size=3)(x),
    "hessian": lambda x: hessian(_row)(x),
    "jacrev of jacfwd": lambda x: jacrev(jacfwd(_vector))(x),
    "jacfwd of jacrev": lambda x: jacfwd(jacrev(_vector))(x),
    "jacrev of jacrev": lambda x: jacrev(jacrev(_vector))(x),
    "jacfwd of jacfwd": lambda x: jacfwd(jacfwd(_vector))(x),
    "dual numbers": _dual,
}
BATCHES: dict[str, Function] = {
    "vmap": lambda x: vmap(_row)(x),
    "made outside": vmap(_row),
    "of vectors": lambda x: vmap(_vector)(x),
    "of grad": lambda x: vmap(grad(_row))(x),
    "of grad and value": lambda x: vmap(grad_and_value(_row))(x),
    "of grad of a write": lambda x: vmap(grad(_local))(x),
    "grad of": lambda x: grad(lambda y: vmap(_row)(y).sin().sum())(x),
    "of itself": lambda x: vmap(vmap(lambda a: a.sin() * 2))(x),
    "products of all pairs": lambda x: vmap(lambda a: vmap(lambda b: a @ b)(x))(x),
    "jvp of": lambda x: jvp(vmap(_row), (x,), (x.cos(),)),
    "of jvp": lambda x: vmap(lambda a, b: jvp(_vector, (a,), (b,))[1])(x, x.cos()),
    "of vjp": lambda x: vmap(lambda a, b: vjp(_vector, a)[1](b)[0])(x, x.cos()),
    "of hessian": lambda x: vmap(hessian(_row))(x),
    "of jacobians": lambda x: (vmap(jacrev(_vector))(x), vmap(jacfwd(_vector))(x)),
    "in_dims": lambda x: vmap(lambda a, d: a * d["b"][:5], in_dims=(1, {"b": None}))(x, {"b": x[:, 0]}),
    "in_dims 1": lambda x: vmap(lambda a: a.sin(), in_dims=1)(x),
    "negative in_dims": lambda x: vmap(lambda a: a.sin(), in_dims=-1)(x),
    "out_dims": lambda x: vmap(lambda a: (a * 2, a.sum()), out_dims=(1, 0))(x),
    "negative out_dims": lambda x: vmap(lambda a: a * 2, out_dims=-1)(x),
    "tree": lambda x: vmap(lambda d: {"s": d["a"] + d["b"][0]})({"a": x, "b": [x.cos()]}),
    "keyword": lambda x: vmap(lambda a, k: a * k)(x, k=x[0]),
    "per sample": lambda x: vmap(grad(_loss), in_dims=(None, 0))(dict(LAYER.named_parameters()), x),
    "chunks": lambda x: vmap(grad(_row), chunk_size=2)(x),
    "write to a local": lambda x: vmap(lambda a: a.clone().mul_(2).add_(a))(x),
    "reductions": lambda x: vmap(lambda a: (a.max(), a.argmax(), a.softmax(0), a.cumsum(0)))(x),
    "indices": lambda x: vmap(lambda a: torch.where(a > 0, a, a.exp()).flip(0)[1:])(x),
    "with gradients off": torch.no_grad()(lambda x: vmap(grad(_row))(x)),
}


def leaves(value: Any) -> list[Any]:
    return list(tree_flatten(value)[0])


def one_graph(f: Function, *arguments: Any) -> None:
    """Nothing runs in eager."""
    report = tatara.explain(f)(*arguments)
    assert [b.reason for b in report.breaks] == []
    assert [g.fallback for g in report.graphs if g.fallback] == []
    assert len(report.graphs) == 1


def compare(f: Function, *arguments: Any) -> None:
    theirs = f(*arguments)
    compiled = tatara.compile(f)
    for _ in range(3):
        same(compiled(*arguments), theirs)
    assert compiled._report()["recompiles"] == []


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    f = GRADIENTS[name]
    x = torch.randn(4)
    if name == "list appended":
        theirs, ours = [f(x)[0], f(x)[0]], tatara.compile(_seen())
        for k in range(3):
            result, count = ours(x)
            same(result, theirs[0])
            assert count == k + 1
        return
    compare(f, x)
    tatara.reset()
    one_graph(f, x)


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    x = torch.randn(4)
    compare(FORWARD[name], x)
    tatara.reset()
    one_graph(FORWARD[name], x)


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str) -> None:
    x = torch.randn(5, 4)
    compare(BATCHES[name], x)
    tatara.reset()
    one_graph(BATCHES[name], x)


@pytest.mark.parametrize("name", ["grad", "grad of grad", "vjp", "functional call", "local", "no grad around"])
def test_gradients_of_transforms(name: str) -> None:
    """What a transform gives can be differentiated from outside, as in eager."""
    f = GRADIENTS[name]

    def run(g: Function, x: Any) -> list[Any]:
        LAYER.zero_grad()
        results = [r for r in leaves(g(x)) if r.requires_grad]
        if results:
            sum((r * r).sum() for r in results).backward()
        return [x.grad, *[p.grad for p in LAYER.parameters()]]

    compiled = tatara.compile(f)
    for seed in range(3):
        x = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        theirs = run(f, x.clone().requires_grad_())
        ours = run(compiled, x.clone().requires_grad_())
        for a, e in zip(ours, theirs, strict=True):
            assert (a is None) == (e is None)
            if e is not None:
                torch.testing.assert_close(a, e)


def test_examples_as_they_are_and_shared_results() -> None:
    """Memory is shared as in eager."""

    def f(x: Any) -> Any:
        def inner(a: Any) -> Any:
            b = a * 2
            return a, b, b[0]

        return vmap(inner)(x)

    compiled = tatara.compile(f)
    for _ in range(2):
        x = torch.randn(5, 4)
        same(compiled(x), f(x))
        given, doubled, first = compiled(x)
        doubled.zero_()
        x.fill_(7)
        assert given.sum().item() == 140 and first.sum().item() == 0


@pytest.mark.smoke
def test_writes_to_the_batch_itself() -> None:
    def f(x: Any) -> Any:
        return vmap(lambda a: a.mul_(2).sum())(x)

    compiled = tatara.compile(f)
    for _ in range(3):
        x, y = torch.ones(5, 4), torch.ones(5, 4)
        same(compiled(x), f(y))
        same(x, y)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers(randomness: str) -> None:
    def f(x: Any) -> Any:
        return vmap(lambda a: a + torch.rand(4) + torch.nn.functional.dropout(a), randomness=randomness)(x)

    x = torch.randn(5, 4)
    compiled = tatara.compile(f)
    for seed in range(3):
        torch.manual_seed(seed)
        theirs = f(x), torch.rand(2)
        torch.manual_seed(seed)
        same((compiled(x), torch.rand(2)), theirs)


@pytest.mark.smoke
def test_sizes_may_vary() -> None:
    def f(x: Any) -> Any:
        return grad(lambda y: (y.sin() * y).sum())(x) + 1, vmap(lambda y: y.cos() * 2)(x), jvp(torch.sin, (x,), (x,))

    f(torch.randn(2))
    compiled = tatara.compile(f)
    for n in (3, 5, 7, 9, 11):
        x = torch.randn(n)
        same(compiled(x), f(x))
    assert len(compiled._report()["recompiles"]) <= 1


def _mutates_captured(x: Any) -> Any:
    other = torch.zeros(4)

    def inner(y: Any) -> Any:
        other.add_(y)
        return y.sum()

    return grad(inner)(x)


def _batched_write(x: Any) -> Any:
    def inner(y: Any) -> Any:
        total = torch.zeros(())
        total.add_(y.sum())
        return total

    return vmap(inner)(x)


def _in_place(x: Any) -> Any:
    return grad(lambda y: y.mul_(2).sum())(x)


ERRORS: dict[str, Function] = {
    "not a scalar": lambda x: grad(_vector)(x),
    "not a tensor": lambda x: grad(lambda y: 3.0)(x),
    "no pair": lambda x: grad(_row, has_aux=True)(x),
    "argnums": lambda x: grad(_row, argnums=3)(x),
    "integers": lambda x: grad(lambda y: y.sum())(x.long()),
    "not of tensors": lambda x: grad(lambda d: d.sum())(3),
    "leaf written": _in_place,
    "captured written": _mutates_captured,
    "other structure": lambda x: vjp(lambda y: (y, y), x)[1](x),
    "other shape": lambda x: vjp(_vector, x)[1](x[:2]),
    "vmap of numbers": lambda x: vmap(lambda a: 3.0)(x),
    "vmap of sizes": lambda x: vmap(lambda a, b: a + b)(x, x[:2]),
    "vmap in_dims": lambda x: vmap(lambda a: a, in_dims=2)(x),
    "vmap out_dims": lambda x: vmap(lambda a: a * 2, out_dims=(0, 0))(x),
    "vmap batched write": _batched_write,
    "vmap random": lambda x: vmap(lambda a: a + torch.randn(()))(x),
    "vmap item": lambda x: vmap(lambda a: a.item())(x),
    "vmap branch": lambda x: vmap(lambda a: a if a > 0 else -a)(x),
    "vmap None": lambda x: vmap(lambda a: a * 2, out_dims=None)(x),
    "jvp structure": lambda x: jvp(_vector, (x,), (x, x)),
    "jvp shape": lambda x: jvp(_vector, (x,), (x[:2],)),
    "jvp integers": lambda x: jvp(lambda y: y, (x.long(),), (x.long(),)),
    "jvp no tuple": lambda x: jvp(_vector, x, x),
    "jvp strict": lambda x: jvp(lambda y: x.sin(), (x,), (x,), strict=True),
    "no output": lambda x: vjp(lambda y: None, x),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_eager(name: str) -> None:
    f = ERRORS[name]
    x = torch.randn(4)
    with pytest.raises(Exception) as theirs:
        f(x.clone())
    compiled = tatara.compile(f)
    for _ in range(2):
        with pytest.raises(theirs.type) as ours:
            compiled(x.clone())
        assert str(ours.value) == str(theirs.value)
    # And nothing is left of the levels that were entered.
    assert torch._C._functorch.maybe_current_level() is None
    same(compiled_sum(x), x.sum())


def compiled_sum(x: Any) -> Any:
    return tatara.compile(torch.sum)(x)


def test_a_value_is_asked_for_inside() -> None:
    """Then the call runs in eager, and so do later ones; what is around it stays compiled."""

    def inner(y: Any) -> Any:
        return (y * 2).sum() if y.sum() > 0 else (y * 3).sum()

    def f(x: Any) -> Any:
        return grad(inner)(x.sin()) + 1

    compiled = tatara.compile(f)
    for sign in (1, -1, 1):
        x = torch.ones(4) * sign
        same(compiled(x), f(x))
    assert torch._C._functorch.maybe_current_level() is None


def test_prints_come_in_each_call(capsys: Any) -> None:
    def inner(y: Any) -> Any:
        print("here")
        return (y * y).sum()

    compiled = tatara.compile(lambda x: grad(inner)(x))
    for _ in range(3):
        same(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert capsys.readouterr().out == "here\n" * 3


def test_in_inference_mode() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = tatara.compile(lambda x: grad(_row)(x))
        with torch.inference_mode():
            x = torch.randn(4)
            same(compiled(x), grad(_row)(x))


# ---- Around compiled code ------------------------------------------------------------------------------------------------

WEIGHTS = torch.linspace(-1, 1, 16).view(4, 4)


def _plain_row(x: Any) -> Any:
    return (WEIGHTS @ x).tanh().sum()


def _plain_vector(x: Any) -> Any:
    return (WEIGHTS @ x).tanh()


def _plain_loss(p: Any, x: Any) -> Any:
    return ((p["w"] @ x + p["b"]) ** 2).sum(), {"at": p["b"] * x}


def _dual_of(f: Function, x: Any) -> Any:
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(f(forward_ad.make_dual(x[0], x[1])).sin()))


AROUND: dict[str, tuple[Function, Callable[[Function, Any], Any]]] = {
    "grad": (_plain_row, lambda f, x: grad(f)(x[0])),
    "grad of grad": (_plain_row, lambda f, x: grad(lambda y: grad(f)(y).sin().sum())(x[0])),
    "vjp": (_plain_vector, lambda f, x: vjp(f, x[0])[1](x[1])),
    "vjp of vjp": (_plain_vector, lambda f, x: vjp(lambda y: vjp(f, y)[1](y)[0], x[0])[1](x[1])),
    "jvp": (_plain_vector, lambda f, x: jvp(f, (x[0],), (x[1],))),
    "jvp of jvp": (_plain_vector, lambda f, x: jvp(lambda y: jvp(f, (y,), (x[1],))[1], (x[0],), (x[2],))),
    "jvp of grad": (_plain_row, lambda f, x: jvp(grad(f), (x[0],), (x[1],))),
    "vmap": (_plain_row, lambda f, x: vmap(f)(x)),
    "vmap of vmap": (_plain_row, lambda f, x: vmap(vmap(f))(x[None].expand(2, -1, -1))),
    "vmap of grad": (_plain_row, lambda f, x: vmap(grad(f))(x)),
    "grad of vmap": (_plain_row, lambda f, x: grad(lambda y: vmap(f)(y).sum())(x)),
    "write to a local": (_local, lambda f, x: vmap(grad(f))(x)),
    "hessian": (_plain_row, lambda f, x: hessian(f)(x[0])),
    "jacobians": (_plain_vector, lambda f, x: (jacrev(f)(x[0]), jacfwd(f)(x[0]), jacrev(jacfwd(f))(x[0]))),
    "dict, aux, in_dims": (
        _plain_loss,
        lambda f, x: vmap(grad(f, has_aux=True), in_dims=(None, 0))({"w": WEIGHTS * 2, "b": WEIGHTS[0]}, x),
    ),
    "dual numbers": (_plain_vector, _dual_of),
}


@pytest.mark.parametrize("name", AROUND)
def test_around(name: str) -> None:
    f, use = AROUND[name]
    x = torch.randn(5, 4)
    theirs = use(f, x)
    compiled = tatara.compile(f)
    for _ in range(2):
        for a, e in zip(leaves(use(compiled, x)), leaves(theirs), strict=True):
            torch.testing.assert_close(a, e)
    assert compiled._report()["breaks"] == []
    with counts() as grown:
        use(compiled, x)
    assert grown["guard_hits"] > 0 and grown["kernels_launched"] > 0
    assert all(grown[k] == 0 for k in ("graphs", "fallbacks", "breaks"))
    # Other sizes, and an entry from outside.
    for n in (3, 6):
        y = torch.randn(n, 4)
        for a, e in zip(leaves(use(compiled, y)), leaves(use(f, y)), strict=True):
            torch.testing.assert_close(a, e)


def test_around_with_gradients_from_outside() -> None:
    def run(f: Function) -> list[Any]:
        x = torch.linspace(-1, 1, 20).view(5, 4).requires_grad_()
        y = vmap(f)(x)
        (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), x)
        return [y.detach(), first.detach(), second]

    for a, e in zip(run(tatara.compile(_plain_row)), run(_plain_row), strict=True):
        torch.testing.assert_close(a, e)


SEEN: list[int] = []


def _with_effect(x: Any) -> Any:
    SEEN.append(len(SEEN))
    return (x * x).sum()


def _noisy(x: Any) -> Any:
    return (x * torch.rand(4)).sum()


def _branches(x: Any) -> Any:
    return (x * 2).sum() if x.sum() > 0 else (x * 3).sum()


def _itself(x: Any) -> Any:
    return x.view(2, 2)


REFUSED: dict[str, tuple[Function, str]] = {
    "effect": (_with_effect, "writes to objects"),
    "random": (_noisy, "random numbers"),
    "branch": (_branches, "__bool__"),
    "parameters": (_row, "requires grad"),
    "view": (_itself, "shares memory"),
    "write": (lambda x: x.mul_(2).sum(), "writes to a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_around_in_eager(name: str) -> None:
    """Effects happen as often as in eager, and the report says why."""
    f, reason = REFUSED[name]

    def run(g: Function) -> Any:
        torch.manual_seed(0)
        x = torch.ones(4)
        return jvp(g, (x,), (x * 2,)), x

    SEEN.clear()
    theirs = [run(f) for _ in range(3)]
    count = len(SEEN)
    SEEN.clear()
    compiled = tatara.compile(f)
    for each in theirs:
        same(run(compiled), each)
    assert len(SEEN) == count
    assert any(reason in b["reason"] for b in compiled._report()["breaks"])


def test_around_with_a_captured_tensor_of_the_transform() -> None:
    """A parameter that a transform has put into a module is no constant."""
    layer = torch.nn.Linear(4, 4)
    for p in layer.parameters():
        p.requires_grad_(False)
    compiled = tatara.compile(lambda x: layer(x).sum())

    def use(f: Function, x: Any) -> Any:
        def loss(w: Any) -> Any:
            kept, layer.weight = layer.weight, None
            object.__setattr__(layer, "weight", w)
            layer.__dict__["weight"] = w
            try:
                return vmap(f)(x).pow(2).sum()
            finally:
                del layer.__dict__["weight"]
                layer.weight = kept

        return grad(loss)(layer.weight.detach().clone())

    x = torch.randn(5, 4)
    vmap(compiled)(x)
    for _ in range(2):
        torch.testing.assert_close(use(compiled, x), use(lambda x: layer(x).sum(), x))


@pytest.mark.parametrize("place", ["plain", "transposed", "of a slice", "both transposed"])
@pytest.mark.parametrize("name", ["nothing", "alias_copy", "frac", "fmod", "sin"])
def test_tangents_that_are_handed_back(name: str, place: str) -> None:
    """The tangent itself where eager gives it, else a copy in the layout of its primal."""
    function = {
        "nothing": lambda a: a,
        "alias_copy": torch.alias_copy,
        "frac": torch.frac,
        "fmod": lambda a: torch.fmod(a, 2),
        "sin": torch.sin,
    }[name]
    x, t = torch.randn(3, 3), torch.randn(3, 3)
    x = x.t() if place == "both transposed" else torch.randn(6, 3)[1:4] if place == "of a slice" else x
    t = t.t() if "transposed" in place else t

    def pushed(a: Any, b: Any) -> Any:
        return jvp(function, (a,), (b,))[1]

    theirs, compiled = pushed(x, t), tatara.compile(pushed)
    for _ in range(3):
        ours = compiled(x, t)
        same(ours, theirs)
        assert (ours is t) == (theirs is t)
        assert (ours.data_ptr() == t.data_ptr()) == (theirs.data_ptr() == t.data_ptr())


def test_vmap_of_integers_by_floats_and_of_conjugated_factors() -> None:
    matrices, vectors = torch.randint(0, 9, (2, 3, 3)), torch.randint(0, 9, (2, 3))
    compare(lambda v, m: vmap(lambda a, b: torch.addmv(a, b, a, beta=0.5))(v, m), vectors, matrices)
    z = torch.randn(2, 3, 4, dtype=torch.complex64)
    factors = tatara.compile(lambda a: vmap(torch.svd)(a))
    for _ in range(3):
        assert [f.is_conj() for f in factors(z)] == [False, False, True]


def test_writes_to_a_dual_tensor_reach_its_tangent() -> None:
    def pushed(a: Any, b: Any) -> Any:
        return jvp(lambda y: y.view(-1)[1:].mul_(2).sum() + y.sum(), (a,), (b,))

    compiled = tatara.compile(pushed)
    for _ in range(3):
        ours, theirs = [torch.ones(2, 2), torch.ones(2, 2)], [torch.ones(2, 2), torch.ones(2, 2)]
        same(compiled(*ours), pushed(*theirs))
        same(ours, theirs)


def test_dual_tensors_by_the_operators_that_older_releases_call() -> None:
    def tangent(x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autograd.forward_ad.dual_level():
            dual = torch._VF._make_dual(x, t, level=0)
            primal, moved = torch._VF._unpack_dual(dual.sin() * 2, level=0)
            return primal.clone(), moved.clone()

    x, t = torch.randn(4), torch.randn(4)
    compiled = tatara.compile(tangent, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, t), (2 * x.sin(), 2 * x.cos() * t))


def test_a_batch_that_the_host_gives_another_shape() -> None:
    """Torch's pinv of nothing looks at no tolerance, so that a batch of tolerances alone gives no batch."""

    def program(x: torch.Tensor, tolerances: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda t: torch.linalg.pinv(x, rtol=t))(tolerances)

    x, tolerances = torch.ones(0, 5, 5), torch.tensor([1.0, 0.5])
    compiled = tatara.compile(program)
    expected = program(x, tolerances)
    for _ in range(3):
        made = compiled(x, tolerances)
        assert (made.shape, made.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian"])
def test_results_of_sizes_that_vary_lie_as_in_eager(transform: str) -> None:
    def program(x: torch.Tensor, a: torch.Tensor) -> Any:
        function = (lambda w: (a @ w).sin().sum()) if transform == "hessian" else (lambda w: a @ w)
        return getattr(torch.func, transform)(function)(x)

    compiled = tatara.compile(program)
    for n in (3, 4, 6, 5):
        x, a = torch.randn(n), torch.randn(4, n)
        ours, theirs = compiled(x, a), program(x, a)
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("name", ["sum", "sum of rows", "mean", "einsum", "two transforms"])
def test_transforms_behind_a_part_that_the_host_runs(name: str) -> None:
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "sum": lambda t: t.sum(),
        "sum of rows": lambda t: t.sum(0),
        "mean": lambda t: t.mean(1),
        "einsum": lambda t: torch.einsum("ij,jk->k", t, t.mT),
        "two transforms": lambda t: vmap(lambda r: r.sum())(t),
    }

    def program(x: torch.Tensor) -> Any:
        first = vmap(lambda r: r * 2)(x)
        return torch.func.jacrev(functions[name])(first), vmap(lambda r: r.sin())(x)

    compiled = tatara.compile(program)
    for rows in (2, 2, 3, 5):
        x = torch.randn(rows, 3)
        for ours, theirs in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(ours, theirs)
