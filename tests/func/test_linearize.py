"""torch.func.linearize inside compiled code and around it: eager's results, and one graph where it is a function of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.func import grad, jvp, linearize, vmap  # noqa: E402

import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]

torch.manual_seed(0)
LAYER = nn.Linear(4, 4)
SCALE = torch.randn(4)
# Torch loads things with the first ones, which would cost a compilation.
vmap(lambda t: jvp(LAYER, (SCALE,), (t,))[1])(torch.eye(4))


def _vector(x: Any) -> Any:
    return (LAYER(x) * SCALE).tanh()


def _tree(d: Any) -> Any:
    return {"a": d["a"].sin() * d["b"], "n": 3, "list": [d["b"].cos(), None]}


def _local(x: Any) -> Any:
    y = x * 2
    y[0] = x[1].exp()
    return y.mul_(x)


def _late(x: Any) -> Any:
    maps = []
    for i in (2, 3):
        maps.append(linearize(lambda y: y**i, x)[1])  # noqa: B023
    return [each(x) for each in maps]


def _after(output: Any, jvp_fn: Any, *calls: Callable[[Any], Any]) -> Any:
    return output, *[call(jvp_fn) for call in calls]


ONE_GRAPH: dict[str, Callable[[Any], Any]] = {
    "once": lambda x: _after(*linearize(_vector, x), lambda j: j(x.cos())),
    "twice": lambda x: _after(*linearize(_vector, x), lambda j: j(x.cos()), lambda j: j(x.exp())),
    "basis": lambda x: _after(*linearize(_vector, x), lambda j: vmap(j)(torch.eye(4))),
    "basis behind": lambda x: _after(*linearize(_vector, x), lambda j: vmap(j, 1, 1)(torch.eye(4)[:, :3])),
    "tree": lambda x: _after(*linearize(_tree, {"a": x, "b": x + 1}), lambda j: j({"a": x, "b": x * 2})),
    "two": lambda x: _after(*linearize(lambda a, b: (a * b, a.sum()), x, x.exp()), lambda j: j(x, x * 2)),
    "of vmap": lambda x: _after(*linearize(vmap(lambda y: y * y.sin()), x), lambda j: j(x)),
    "without gradients": lambda x: _after(*linearize(torch.no_grad()(lambda y: y.sin() * 2), x), lambda j: j(x)),
    "a number": lambda x: _after(*linearize(lambda y: y * y, x.sum()), lambda j: j(x.sum())),
    "the argument": lambda x: _after(*linearize(lambda y: y, x), lambda j: j(x)),
    "complex": lambda x: _after(*linearize(lambda y: y * 1j + y.exp(), x), lambda j: j(x)),
    "matrix": lambda x: _after(
        *linearize(lambda y: (y.t() @ y).softmax(0), x.view(2, 2).t()), lambda j: j(x.view(2, 2))
    ),
    "in a loop": lambda x: [linearize(lambda y, i=i: y**i, x)[1](x) for i in (2, 3)],
    "called late": _late,
    "wrong structure": lambda x: linearize(_vector, x)[1](x, x),
    "wrong shape": lambda x: linearize(_vector, x)[1](x[:2]),
    "wrong type": lambda x: linearize(_vector, x)[1](x.double()),
    "wrong device": lambda x: linearize(_vector, x)[1](torch.empty(4, device="meta")),
    "no tensor": lambda x: linearize(_vector, x)[1](3.0),
    "keyword": lambda x: linearize(_vector, x)[1](t=x),
}

WITHOUT_GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "constant": lambda x: _after(*linearize(lambda y: (y * 2, torch.ones(3)), x), lambda j: j(x)),
    "detached": lambda x: _after(*linearize(lambda y: (y * y.detach(), y.detach()), x), lambda j: j(x)),
    "of grad": lambda x: _after(*linearize(grad(lambda y: _vector(y).sum()), x), lambda j: j(x)),
    "by its tangents": lambda x: _after(*linearize(_vector, x), lambda j: grad(lambda t: j(t).sum())(x)),
    "jvp of it": lambda x: _after(*linearize(_vector, x), lambda j: jvp(j, (x,), (x.cos(),))),
}

BROKEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "random": (
        lambda x: _after(*linearize(lambda y: nn.functional.dropout(y, 0.5, True), x), lambda j: j(x), lambda j: j(x)),
        "it draws random numbers",
    ),
    "no tensor": (lambda x: linearize(lambda a, b: a * b, x, 3.0)[1](x, 3.0), "no tensor"),
    "no derivative": (
        lambda x: linearize(lambda a: a * 2, x.long())[1](x.long()),
        "an argument that has no derivative",
    ),
    "an integer": (lambda x: _after(*linearize(lambda y: y.long(), x), lambda j: j(x)), "no derivative"),
    "an error": (lambda x: linearize(lambda y: y @ torch.ones(7), x), "linearize"),
    "a tensor of its own": (lambda x: _after(*linearize(lambda y: SCALE, x), lambda j: j(x)), "has not made"),
}


def _outcome(f: Callable[[Any], Any], x: Any) -> Any:
    torch.manual_seed(5)
    try:
        result = f(x.clone())
    except Exception as error:
        result = (type(error).__name__, str(error))
    return result, torch.rand(2)


def _check(program: Callable[[Any], Any]) -> Any:
    compiled = tatara.compile(program)
    for seed in range(3):
        x = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        same(_outcome(compiled, x), _outcome(program, x))
    return compiled


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name: str, gradients: bool) -> None:
    with torch.set_grad_enabled(gradients):
        _check(ONE_GRAPH[name])
    stats = tatara.stats()
    fails = name.startswith(("wrong", "no ", "keyword"))  # at the call, where nothing is left to compile
    breaks = 1 if name.startswith("wrong") else 0  # an exception that leaves for the second time is a break
    assert [stats[k] for k in ("graphs", "breaks", "fallbacks", "recompiles")] == [0 if fails else 1, breaks, 0, 0]


@pytest.mark.parametrize("name", WITHOUT_GRADIENTS)
def test_one_graph_without_gradients(name: str) -> None:
    with torch.no_grad():
        _check(WITHOUT_GRADIENTS[name])
    assert [tatara.stats()[k] for k in ("graphs", "breaks", "fallbacks", "recompiles")] == [1, 0, 0, 0]


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_graph(name: str) -> None:
    program, reason = BROKEN[name]
    with torch.no_grad():
        _check(program)
        with pytest.raises(tatara.Unsupported, match=reason):
            tatara.compile(program, fullgraph=True)(torch.ones(4))


def test_a_transform_beside_gradients() -> None:
    """Eager fails there: what its graph keeps is a parameter."""
    _check(WITHOUT_GRADIENTS["of grad"])


@pytest.mark.parametrize("gradients", [True, False])
def test_the_map_outlives_the_call(gradients: bool) -> None:
    def program(x: Any) -> Any:
        inner = vmap(lambda y: y * y.sin())
        return linearize(lambda y: inner(_vector(y) * SCALE), x.exp())

    compiled = tatara.compile(program)
    with torch.set_grad_enabled(gradients):
        kept = []
        for seed in range(3):
            x = torch.randn(4, generator=torch.Generator().manual_seed(seed))
            kept.append((compiled(x), program(x)))
        for (output, push), (expected, theirs) in reversed(kept):
            same(output, expected)
            for _ in range(2):
                same(push(SCALE), theirs(SCALE))
            same(vmap(push)(torch.eye(4)), vmap(theirs)(torch.eye(4)))
            with pytest.raises(RuntimeError, match="doesn't match the shape"):
                push(SCALE[:2])
            # And in compiled code again.
            later = tatara.compile(lambda t, push=push: push(t).sin())
            for _ in range(2):
                same(later(SCALE), theirs(SCALE).sin())


@pytest.mark.smoke
def test_around_a_graph_break() -> None:
    seen: list[float] = []

    def program(x: Any) -> Any:
        output, push = linearize(_vector, x.sin())
        seen.append(float(output.sum()))
        return output, push(x), push(x * 2)

    with torch.no_grad():
        _check(program)
    assert seen[::2] == pytest.approx(seen[1::2])


def test_writes_to_tensors_of_its_own() -> None:
    """Eager's tangents are wrong there: it takes parts of such a function for constants."""
    compiled = tatara.compile(lambda x: _after(*linearize(_local, x), lambda j: j(x.cos())))
    for seed in range(3):
        x = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        same(compiled(x), jvp(_local, (x,), (x.cos(),)))
    assert [tatara.stats()[k] for k in ("graphs", "breaks", "fallbacks")] == [1, 0, 0]


def test_effects_happen_as_in_eager() -> None:
    calls: list[int] = []
    buffer = torch.zeros(4)

    def noted(x: Any) -> Any:
        calls.append(len(calls))
        return x.sin()

    def writes(y: Any) -> Any:
        buffer.add_(1)
        return y * buffer

    x = torch.ones(4)
    for program in (lambda x: linearize(noted, x)[1](x), lambda x: linearize(writes, x)[1](x)):
        compiled = tatara.compile(program)
        for _ in range(3):
            found = []
            for run in (program, compiled):
                calls.clear()
                buffer.zero_()
                found.append((run(x), len(calls), buffer.clone()))
            same(found[1], found[0])


def test_inside_of_other_transforms() -> None:
    """Eager cannot do these."""

    def push(x: Any) -> Any:
        return linearize(lambda y: y**3, x)[1](torch.ones_like(x))

    x = torch.tensor([1.0, 2.0, 3.0])
    for program, expected in (
        (lambda x: vmap(push)(x), 3 * x**2),
        (lambda x: grad(lambda y: push(y).sum())(x), 6 * x),
        (lambda x: jvp(push, (x,), (x,))[1], 6 * x * x),
    ):
        tatara.reset()
        compiled = tatara.compile(program)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), expected)
        assert [tatara.stats()[k] for k in ("graphs", "breaks", "fallbacks")] == [1, 0, 0]


def test_sizes_that_vary() -> None:
    def program(x: Any) -> Any:
        output, push = linearize(lambda y: (y[: y.shape[0] // 2] * y.shape[0]).tanh(), x)
        return output, push(x.cos())

    compiled = tatara.compile(program)
    for rows in (4, 6, 8, 10, 6):
        x = torch.randn(rows, generator=torch.Generator().manual_seed(rows))
        same(compiled(x), program(x))
    assert tatara.stats()["breaks"] == 0

    def returned(x: Any) -> Any:
        return linearize(lambda y: y.view(2, y.shape[0] // 2).sum(0), x)

    compiled = tatara.compile(returned)
    for rows in (4, 6, 8, 10, 6):
        x = torch.randn(rows, generator=torch.Generator().manual_seed(rows))
        (output, push), (expected, theirs) = compiled(x), returned(x)
        same((output, push(x)), (expected, theirs(x)))


def test_of_a_compiled_function() -> None:
    compiled = tatara.compile(_vector)
    x = torch.randn(4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for _ in range(3):
            (output, push), (expected, theirs) = linearize(compiled, x), linearize(_vector, x)
            same((output, push(x)), (expected, theirs(x)))


def test_parameters_made_between_graphs() -> None:
    """Each call makes tensors of its own."""

    def made(*tensors: Any) -> Any:
        print(end="")
        return [nn.Parameter(t.detach().clone(), False) for t in tensors]

    def program(x: Any) -> Any:
        print(end="")
        return made(x, x.cos(), x.sin())

    compiled = tatara.compile(program)
    for seed in range(3):
        x = torch.randn(2, generator=torch.Generator().manual_seed(seed))
        same(compiled(x), program(x))
