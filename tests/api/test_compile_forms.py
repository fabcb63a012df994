"""tatara.compile: what it takes, what it gives back, and what it refuses."""

from __future__ import annotations

import asyncio
import copy
import functools
import math
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad")


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def double_sin(x: Any, scale: float = 2.0) -> Any:
    """Documented."""
    return torch.sin(x) * scale


@tatara.compile
def decorated(x: Any) -> Any:
    return x.exp() + 1


def check(compiled: Any, eager: Any, *args: Any, **kwargs: Any) -> None:
    for _ in range(2):
        same(compiled(*args, **kwargs), eager(*args, **kwargs))


def graphs_of(call: Any) -> int:
    before = tatara.stats()["graphs"]
    call()
    return tatara.stats()["graphs"] - before


def test_decorator_forms() -> None:
    @tatara.compile()
    def with_parentheses(x: Any) -> Any:
        return x + 1

    @tatara.compile(backend="eager", fullgraph=True)
    def with_choices(x: Any) -> Any:
        return x + 1

    for fn in (decorated, with_parentheses, with_choices):
        assert graphs_of(lambda fn=fn: fn(X)) == 1
    torch.testing.assert_close(decorated(X), X.exp() + 1)


def test_functions_keep_their_names() -> None:
    compiled = tatara.compile(double_sin)
    assert compiled.__name__ == "double_sin"
    assert compiled.__doc__ == "Documented."
    assert compiled.__wrapped__ is double_sin
    assert compiled.__module__ == __name__
    check(compiled, double_sin, X)
    check(compiled, double_sin, x=X, scale=3.0)


def test_compiling_twice_compiles_the_original() -> None:
    once = tatara.compile(double_sin)
    twice = tatara.compile(once)
    assert twice._tatara_function is double_sin
    check(twice, double_sin, X)


class Scale:
    factor = 3.0

    def __init__(self, by: float = 2.0) -> None:
        self.by = by

    def method(self, x: Any) -> Any:
        return x * self.by

    def __call__(self, x: Any) -> Any:
        return x.sin() * self.by

    @tatara.compile
    def compiled_method(self, x: Any) -> Any:
        return x * self.by + 1

    @classmethod
    @tatara.compile
    def inner_class_method(cls, x: Any) -> Any:
        return x * cls.factor

    @tatara.compile
    @classmethod
    def outer_class_method(cls, x: Any) -> Any:
        return x * cls.factor - 1

    @tatara.compile
    @staticmethod
    def static(x: Any) -> Any:
        return x - 5


def test_methods() -> None:
    scale = Scale()
    check(tatara.compile(scale.method), scale.method, X)
    torch.testing.assert_close(scale.compiled_method(X), X * 2 + 1)
    torch.testing.assert_close(Scale.compiled_method(scale, X), X * 2 + 1)
    torch.testing.assert_close(Scale.inner_class_method(X), X * 3)
    torch.testing.assert_close(scale.outer_class_method(X), X * 3 - 1)
    torch.testing.assert_close(Scale.static(X), X - 5)
    scale.by = 7.0
    torch.testing.assert_close(scale.compiled_method(X), X * 7 + 1)


def test_callable_objects() -> None:
    scale = Scale()
    compiled = tatara.compile(scale)
    assert graphs_of(lambda: compiled(X)) == 1
    check(compiled, scale, X)
    scale.by = 4.0
    check(compiled, scale, X)


def test_partials() -> None:
    partial = functools.partial(double_sin, scale=5.0)
    compiled = tatara.compile(partial)
    assert isinstance(compiled, functools.partial)
    assert graphs_of(lambda: compiled(X)) == 1
    check(compiled, partial, X)


def test_lambdas_and_closures() -> None:
    offset = X * 2
    fn = lambda x: (x + offset).tanh()  # noqa: E731
    check(tatara.compile(fn), fn, X)


@pytest.mark.parametrize("fn", [torch.sin, torch.nn.functional.relu, torch.Tensor.exp], ids=lambda fn: fn.__name__)
def test_builtin_functions_of_torch(fn: Any) -> None:
    compiled = tatara.compile(fn)
    assert graphs_of(lambda: compiled(X)) == 1
    check(compiled, fn, X)


def test_builtin_functions_of_python() -> None:
    assert tatara.compile(math.sqrt)(4.0) == 2.0
    assert tatara.compile(len)([1, 2]) == 2
    cached = functools.lru_cache(double_sin)
    torch.testing.assert_close(tatara.compile(cached)(X), double_sin(X))


def generator(x: Any) -> Any:
    yield x + 1
    yield x + 2


async def coroutine(x: Any) -> Any:
    await asyncio.sleep(0)
    return x + 1


async def async_generator(x: Any) -> Any:
    yield x + 1


def test_generators_and_coroutines_run_in_eager() -> None:
    compiled = tatara.compile(generator)
    assert [v.sum().item() for v in compiled(X)] == [v.sum().item() for v in generator(X)]
    torch.testing.assert_close(asyncio.run(tatara.compile(coroutine)(X)), X + 1)

    async def first() -> Any:
        async for value in tatara.compile(async_generator)(X):
            return value

    torch.testing.assert_close(asyncio.run(first()), X + 1)
    assert tatara.stats()["graphs"] == 0
    report = tatara.explain(generator)(X)
    assert "generator" in report.breaks[0].reason
    assert report.breaks[0].line == generator.__code__.co_firstlineno
    assert report.breaks[0].file == __file__


@pytest.mark.parametrize("fn", [generator, coroutine, async_generator])
def test_fullgraph_refuses_what_cannot_be_one_graph(fn: Any) -> None:
    with pytest.raises(
        tatara.Unsupported, match=rf"test_compile_forms.py:{fn.__code__.co_firstlineno} in {fn.__name__}"
    ):
        tatara.compile(fn, fullgraph=True)


def test_fullgraph_names_the_line_of_the_break() -> None:
    def breaks(x: Any) -> Any:
        y = x + 1
        print(y.sum().item())
        return y * 2

    line = breaks.__code__.co_firstlineno + 2
    with pytest.raises(tatara.Unsupported, match=rf"test_compile_forms.py:{line} in breaks"):
        tatara.compile(breaks, fullgraph=True)(X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tatara.compile(3), "not callable"),
        (lambda: tatara.compile(Scale), "class Scale"),
        (lambda: tatara.compile(property(double_sin)), "property"),
        (lambda: tatara.compile(double_sin, backend="inductr"), "unknown backend 'inductr'"),
        (lambda: tatara.compile(double_sin, backend="egger"), "did you mean 'eager'"),
        (lambda: tatara.compile(double_sin, backend=5), "takes a callable or one of"),
        (lambda: tatara.compile(double_sin, fullgraph="yes"), "fullgraph takes True or False"),
        (lambda: tatara.compile(double_sin, dynamic=3), "dynamic takes"),
        (lambda: tatara.compile(double_sin, options=["opt_level"]), "options takes a dict"),
        (lambda: tatara.compile(double_sin, options={"optlevel": 1}), "did you mean 'opt_level'"),
        (
            lambda: tatara.compile(double_sin, options={"opt_level": "high"}),
            "takes an integer from 0 to 3, not str 'high'",
        ),
        (lambda: tatara.compile(double_sin, options={"cache_dir": "/x"}), "set tatara.config.cache_dir"),
        (lambda: tatara.disable(3), "disable takes a callable"),
    ],
)
def test_wrong_arguments(make: Any, message: str) -> None:
    with pytest.raises(tatara.InvalidArgument, match=message):
        make()
    with pytest.raises(ValueError, match=message):
        make()


def test_options_are_for_this_function() -> None:
    with tatara.config.patch(cache=False):
        fused = tatara.explain(tatara.compile(lambda x: (x.exp() + 1).sum() * 2))(X)
        apart = tatara.explain(tatara.compile(lambda x: (x.exp() + 1).sum() * 2, options={"disable": "fusion"}))(X)
    assert len(apart.kernels) > len(fused.kernels)
    assert tatara.config.disable == ""


def test_without_fallback_errors_come_out() -> None:
    def fn(x: Any) -> Any:
        return torch.softmax(x, -1)

    wrong = {"disable": "decompose"}
    compiled = tatara.compile(fn, options=wrong)
    check(compiled, fn, X)
    assert "softmax" in tatara.explain(tatara.compile(fn, options=wrong))(X).graphs[0].fallback
    with pytest.raises(tatara.Unsupported, match="softmax"):
        tatara.compile(fn, options={**wrong, "fallback": False})(X)


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_vector_width(bits: int) -> None:
    def fn(x: Any) -> Any:
        return torch.softmax(x * 2 + 1, -1)

    check(tatara.compile(fn, options={"vector_width": bits, "verify": True}), fn, torch.randn(5, 37))


def test_pickling_and_copies() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert pickle.loads(pickle.dumps(tatara.compile(double_sin))) is double_sin
    assert copy.deepcopy(decorated) is decorated
    assert copy.copy(decorated) is decorated


def test_user_backends() -> None:
    seen: list[Any] = []

    def backend(graph: Any, example_inputs: list[Any]) -> Any:
        seen.append((str(graph), len(example_inputs)))
        return lambda *inputs: [out * 1 for out in graph(*inputs)]

    def fn(x: Any, y: Any) -> Any:
        return (x + y).relu()

    check(tatara.compile(fn, backend=backend), fn, X, X)
    assert len(seen) == 1
    assert "relu" in seen[0][0]
    assert seen[0][1] == len({id(X)})

    tatara.register_backend("test-counting", backend)
    assert "test-counting" in tatara.list_backends()
    check(tatara.compile(fn, backend="test-counting"), fn, X, X + 1)
    assert len(seen) == 2

    @tatara.register_backend("test-decorated")
    def another(graph: Any, example_inputs: list[Any]) -> Any:
        return graph

    check(tatara.compile(fn, backend="test-decorated"), fn, X, X)
    with pytest.raises(tatara.InvalidArgument, match="Tatara's own"):
        tatara.register_backend("eager", another)
    with pytest.raises(tatara.InvalidArgument, match="not callable"):
        tatara.register_backend("test-other", 3)


def test_backend_errors_reach_the_caller() -> None:
    def backend(graph: Any, example_inputs: list[Any]) -> Any:
        raise KeyError("from the backend")

    with pytest.raises(KeyError, match="from the backend"):
        tatara.compile(double_sin, backend=backend)(X)

    def too_few(graph: Any, example_inputs: list[Any]) -> Any:
        return lambda *inputs: ()

    compiled = tatara.compile(double_sin, backend=too_few)
    compiled(X)
    with pytest.raises(ValueError, match="returned 0 tensors, the graph has 1"):
        compiled(X)
