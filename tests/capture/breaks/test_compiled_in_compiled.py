"""Compiled functions and modules that compiled code calls: they are traced as what they were made of."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.linspace(-2, 2, 8).reshape(2, 4)


def _square(x: Any) -> Any:
    return (x * x).sum()


class _Model:
    def __init__(self, compile: Any) -> None:
        self.scale = torch.tensor(3.0)
        self.bound = compile(self.plain)

    def plain(self, x: Any) -> Any:
        return x * self.scale

    def decorated(self, x: Any, power: int = 2) -> Any:
        return (x * self.scale) ** power


def _function(compile: Any) -> Any:
    inner = compile(_square)
    return lambda x: inner(x.sin()) + 1


def _keywords(compile: Any) -> Any:
    inner = compile(lambda x, *rest, scale=1, **more: x * scale + sum(rest) + more["bias"])
    return lambda x: inner(x, 1, x.cos(), scale=2, bias=x) + inner(*[x], **{"bias": 1.0})


def _of_c_code(compile: Any) -> Any:
    inner, keyed = compile(lambda x, y=1: x + y), compile(lambda x: -x.ndim)
    return lambda x: (list(map(inner, [x, x * 2])), functools.partial(inner, y=2)(x), sorted([x[0], x], key=keyed))


def _module(compile: Any) -> Any:
    torch.manual_seed(0)
    inner = compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()))
    return lambda x: inner(x.sin()).cos()


def _part_of_a_module(compile: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(compile(torch.nn.Linear(4, 4)), torch.nn.Tanh(), compile(torch.nn.Linear(4, 4)))


def _in_place(compile: Any) -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    for layer in (layers, layers[0]):
        layer._compiled_call_impl = compile(layer._call_impl)
    return lambda x: layers(x) * 2


def _methods(compile: Any) -> Any:
    class Model(_Model):
        decorated = compile(_Model.decorated)

    model = Model(compile)
    return lambda x: model.decorated(model.bound(x), power=3)


def _recursive(compile: Any) -> Any:
    def inner(x: Any, n: int) -> Any:
        return x if n == 0 else again(x.sin(), n - 1)

    again = compile(inner)
    return lambda x: again(x, 3) + 1


def _chain(compile: Any) -> Any:
    one = compile(lambda x: x + 1)
    two = compile(lambda x: one(x) * one(x))
    return lambda x: two(x) - one(x)


PROGRAMS = [_function, _keywords, _of_c_code, _module, _part_of_a_module, _in_place, _methods, _recursive, _chain]


def _same(seen: Any, expected: Any) -> None:
    torch.testing.assert_close(seen, expected)
    tensors = [(seen, expected)] if isinstance(seen, torch.Tensor) else []
    assert all(a.requires_grad == b.requires_grad and a.stride() == b.stride() for a, b in tensors)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_it_is_one_graph(program: Any, fullgraph: bool) -> None:
    eager = program(lambda f: f)
    compiled = tatara.compile(program(functools.partial(tatara.compile, fullgraph=fullgraph)))
    with counts() as grown:
        for _ in range(4):
            _same(compiled(X), eager(X))
    assert (grown["graphs"], grown["breaks"], grown["recompiles"], grown["guard_hits"]) == (1, 0, 0, 3)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_sizes_become_symbols_in_it(program: Any) -> None:
    eager, compiled = program(lambda f: f), tatara.compile(program(tatara.compile))
    for rows in (2, 3, 4, 5):
        x = torch.linspace(-1, 1, rows * 4).reshape(rows, 4)
        with counts() as grown:
            _same(compiled(x), eager(x))
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)


@pytest.mark.parametrize("program", [_module, _part_of_a_module, _in_place], ids=lambda p: p.__name__)
def test_gradients_go_through_it(program: Any) -> None:
    eager, compiled = program(lambda f: f), program(tatara.compile)
    step = tatara.compile(lambda x: compiled(x).square().mean())
    for _ in range(3):
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        with counts() as grown:
            step(x).backward()
        eager(y).square().mean().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)


def test_numbers_that_vary_are_symbols_in_it() -> None:
    inner = tatara.compile(lambda x, n, scale: x * n + scale)
    compiled = tatara.compile(lambda x, n: inner(x, n + 1, scale=n / 2))
    for n in range(2, 7):
        with counts() as grown:
            torch.testing.assert_close(compiled(X, n), X * (n + 1) + n / 2)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)


def test_which_one_is_called_is_guarded() -> None:
    first, second = tatara.compile(lambda x: x + 1), tatara.compile(lambda x: x - 1)
    given = tatara.compile(lambda x, f: f(x) * 2)
    holder = {"f": first}
    found = tatara.compile(lambda x: holder["f"](x) * 2)
    for f, expected in ((first, (X + 1) * 2), (second, (X - 1) * 2), (first, (X + 1) * 2)):
        holder["f"] = f
        torch.testing.assert_close(given(X, f), expected)
        torch.testing.assert_close(found(X), expected)
    first._tatara_function.__defaults__ = None
    with counts() as grown:
        torch.testing.assert_close(found(X), (X + 1) * 2)
    assert (grown["graphs"], grown["breaks"]) == (0, 0)


def test_what_its_function_reads_is_guarded() -> None:
    state = {"scale": 2.0}

    @tatara.compile
    def inner(x: Any, bias: float = 1.0) -> Any:
        return x * state["scale"] + bias

    compiled = tatara.compile(lambda x: inner(x).sin())
    torch.testing.assert_close(compiled(X), (X * 2 + 1).sin())
    state["scale"] = 3.0
    torch.testing.assert_close(compiled(X), (X * 3 + 1).sin())
    inner._tatara_function.__defaults__ = (5.0,)
    torch.testing.assert_close(compiled(X), (X * 3 + 5).sin())


def test_one_that_is_made_in_the_call() -> None:
    def program(x: Any, compile: Any) -> Any:
        return compile(lambda y: y + x)(x * 2)

    compiled = tatara.compile(program)
    for _ in range(3):
        torch.testing.assert_close(compiled(X, tatara.compile), program(X, lambda f: f))


def test_a_break_in_it_is_one_of_the_caller(capsys: Any) -> None:
    inner = tatara.compile(lambda x: (print("inside"), x * 2)[1] + 1)
    compiled = tatara.compile(lambda x: inner(x.sin()).cos())
    for _ in range(4):
        with counts() as grown:
            torch.testing.assert_close(compiled(X), (X.sin() * 2 + 1).cos())
    assert capsys.readouterr().out == "inside\n" * 4
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)


@pytest.mark.parametrize("of_c_code", [False, True])
def test_fullgraph_refuses_a_break_where_it_is_called(of_c_code: bool, capsys: Any) -> None:
    state: list[int] = []
    inner = tatara.compile(lambda x: (print("inside"), x * 2)[1], fullgraph=True)

    def program(x: Any) -> Any:
        state.append(1)
        y = x.sin()
        try:
            y = list(map(inner, [y]))[0] if of_c_code else inner(y)
        except tatara.Unsupported as error:
            state.append(str(error).count("print"))
        return y + 1

    compiled = tatara.compile(program)
    for n in range(1, 5):
        with counts() as grown:
            torch.testing.assert_close(compiled(X), X.sin() + 1)
        assert state == [1, 1] * n
    assert capsys.readouterr().out == ""
    assert grown["recompiles"] == 0
    reasons = [b.reason for b in report_of(compiled).breaks]
    assert reasons[0] == "call of a compiled function with fullgraph=True, which is no whole graph"


@pytest.mark.parametrize("choice", [{"backend": "eager"}, {"dynamic": False}, {"options": {"recompile_limit": 3}}])
def test_choices_of_its_own_are_kept(choice: Any) -> None:
    inner = tatara.compile(lambda x: x * 2, **choice)
    compiled = tatara.compile(lambda x: inner(x.sin()).cos())
    for _ in range(4):
        with counts() as grown:
            torch.testing.assert_close(compiled(X), (X.sin() * 2).cos())
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)
    assert [g.problem for g in report_of(inner).graphs] == [""]
    same = tatara.compile(lambda x: inner(x.sin()).cos(), **choice)
    with counts() as grown:
        torch.testing.assert_close(same(X), (X.sin() * 2).cos())
    assert (grown["graphs"], grown["breaks"]) == (1, 0)


def test_without_torch_functions_too() -> None:
    numpy = pytest.importorskip("numpy")
    inner = tatara.compile(lambda a, b: numpy.sqrt(a) + b)
    compiled = tatara.compile(lambda a: inner(a * 2, 1.5).sum())
    a = numpy.arange(6.0)
    with counts() as grown:
        for _ in range(3):
            numpy.testing.assert_allclose(compiled(a), (numpy.sqrt(a * 2) + 1.5).sum())
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (1, 0, 0)
