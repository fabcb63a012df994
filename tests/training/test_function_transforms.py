"""torch.func's transforms inside compiled code: one graph, with eager's values, types, layouts and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.func import functional_call, grad, grad_and_value, vjp  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402

import tatara  # noqa: E402

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


def leaves(value: Any) -> list[Any]:
    return list(tree_flatten(value)[0])


def same(ours: Any, theirs: Any) -> None:
    a, b = tree_flatten(ours), tree_flatten(theirs)
    assert a[1] == b[1]
    for mine, other in zip(a[0], b[0], strict=True):
        if not isinstance(other, torch.Tensor):
            assert mine == other
            continue
        torch.testing.assert_close(mine, other)
        assert mine.stride() == other.stride()
        assert mine.requires_grad == other.requires_grad


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


def test_sizes_may_vary() -> None:
    def f(x: Any) -> Any:
        return grad(lambda y: (y.sin() * y).sum())(x) + 1

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
