"""Capture: guards, breaks, resumption, return values, against eager."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections import OrderedDict, namedtuple
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad", "backend")


class Recorder:
    """A backend that counts graphs and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, example_inputs: list[Any]) -> Any:
        self.graphs.append(graph)
        assert len(example_inputs) == len(graph.inputs)
        return graph


def check(f: Any, *calls: tuple[Any, ...], backend: Any) -> Any:
    compiled = tatara.compile(f, backend=backend)
    for args in calls:
        for _ in range(3):
            same(compiled(*args), f(*args))
    return compiled


X = torch.arange(12.0).reshape(3, 4)
Y = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_one_graph_and_guard_hits() -> None:
    def f(x: Any, y: Any) -> Any:
        return torch.relu(x) + y * 2

    recorder = Recorder()
    check(f, (X, Y), (X + 1, Y), backend=recorder)
    assert len(recorder.graphs) == 1
    assert [n[0] for n in recorder.graphs[0].nodes] == ["relu", "mul", "add"]


@pytest.mark.smoke
def test_recompile_names_the_guard(backend: str) -> None:
    def f(x: Any, n: int) -> Any:
        return x * n

    compiled = check(f, (X, 2), (X, 3), (X[:2], 2), backend=backend)
    assert "value 2 became 3" in report_of(compiled).recompiles[0]
    assert any("sizes [3, 4] became [2, 4]" in r for r in report_of(compiled).recompiles)


def test_three_graphs_over_both_branches() -> None:
    def f(a: Any, b: Any) -> Any:
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    recorder = Recorder()
    compiled = tatara.compile(f, backend=recorder)
    for _ in range(3):
        for b in (torch.ones(3, 4), -torch.ones(3, 4)):
            same(compiled(X, b), f(X, b))
    assert len(recorder.graphs) == 3


@pytest.mark.smoke
def test_break_in_loop(capsys: Any, backend: str) -> None:
    def f(x: Any) -> Any:
        out = []
        for i in range(3):
            x = x * 2 + i
            print("step", i)
            out.append(x)
        return out, x.sum()

    compiled = tatara.compile(f, backend=backend)
    for _ in range(3):
        same(compiled(X), f(X))
        text = capsys.readouterr().out.splitlines()
        assert text == ["step 0", "step 1", "step 2"] * 2


def test_breaks_name_their_lines(backend: str) -> None:
    def f(x: Any) -> Any:
        for i in range(2):
            x = x + i
            print(end="")  # in the loop
        with contextlib.nullcontext():
            x = x * x.sum().item()  # in the block
            try:
                x = x * 2
                if x.max().item() > 1e9:  # in the try
                    x = x - 1
            finally:
                x = x + 1
        return x

    compiled = check(f, (X,), (Y,), backend=backend)
    source, start = inspect.getsourcelines(f)
    wanted = [i for i, text in enumerate(source, start) if "  # in the " in text]
    breaks = report_of(compiled).breaks
    reasons = {b.line: b.reason for b in breaks}
    assert {b.file for b in breaks} == {__file__}
    loop = reasons.pop(start + 1, "iterator")  # one entry serves every turn, so moving on is a break of its own
    assert "iterator" in loop
    assert sorted(reasons) == wanted
    assert "print" in reasons[wanted[0]]
    assert "item" in reasons[wanted[1]]


def test_break_in_with_and_try(backend: str) -> None:
    log: list[str] = []

    class Block:
        def __enter__(self) -> None:
            log.append("enter")

        def __exit__(self, *exc: Any) -> None:
            log.append("exit")

    def f(x: Any) -> Any:
        with Block():
            x = x + 1
            try:
                x = x * x.sum().item()
                raise ValueError("inside")
            except ValueError as error:
                x = x - len(str(error))
            finally:
                x = x * 2
        return x

    check(f, (X,), (Y,), backend=backend)
    assert log == ["enter", "exit"] * (len(log) // 2)


def test_nested_break_is_run_for_real(backend: str) -> None:
    def inner(x: Any) -> Any:
        x = x + 1
        if x.sum() > 0:
            return x * 2
        return x * 3

    def f(x: Any) -> Any:
        y = x * 5
        return inner(y) + y

    check(f, (X,), (-X - 1,), (X,), backend=backend)


def test_attribute_written_outside(backend: str) -> None:
    class Counter:
        def __init__(self) -> None:
            self.n = 0
            self.seen: list[int] = []

    def f(c: Any, x: Any) -> Any:
        for i in range(3):
            c.n += 1
            c.seen.append(i)
            x = x + c.n
        return x

    a, b = Counter(), Counter()
    compiled = tatara.compile(f, backend=backend)
    for _ in range(4):
        same(compiled(a, X), f(b, X))
        assert (a.n, a.seen) == (b.n, b.seen)


Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Box:
    value: Any
    name: str = "box"


@pytest.mark.smoke
def test_return_values(backend: str) -> None:
    def f(x: Any) -> Any:
        y = x + 1
        return {"a": y, "b": [y, x, (y, 3)], "p": Pair(y, "r"), "o": OrderedDict(k=y * 2), "n": None}

    compiled = check(f, (X,), backend=backend)
    result = compiled(X)
    assert result["a"] is result["b"][0]
    assert result["b"][1] is X
    boxed = tatara.compile(lambda x: Box(x * 2), backend=backend)
    for _ in range(2):
        box = boxed(X)
        assert isinstance(box, Box) and box.name == "box"
        same(box.value, X * 2)


@pytest.mark.smoke
def test_views_and_writes(backend: str) -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        v = y[1:, ::2]
        v.mul_(3)
        y[0] = 7
        return y, v

    check(f, (X,), backend=backend)
    y, v = tatara.compile(f, backend=backend)(X)
    v.zero_()
    assert y[1, 0] == 0

    def g(x: Any) -> Any:
        x.add_(1)
        return x * 2

    a, b = X.clone(), X.clone()
    compiled = tatara.compile(g, backend=backend)
    for _ in range(3):
        same(compiled(a), g(b))
        same(a, b)


SCALE = 2.0


@pytest.mark.smoke
def test_globals_and_closures_are_guarded(backend: str) -> None:
    global SCALE
    k = 3

    def f(x: Any) -> Any:
        return x * SCALE + k

    compiled = tatara.compile(f, backend=backend)
    same(compiled(X), f(X))
    SCALE = 5.0
    same(compiled(X), f(X))
    k = 4
    same(compiled(X), f(X))
    SCALE = 2.0


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        self.norm = torch.nn.LayerNorm(4)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        for layer in self.layers:
            x = x + self.drop(torch.nn.functional.gelu(layer(x)))
        return self.norm(x) * scale


def test_modules_stay_modules(backend: str) -> None:
    net = Net().eval()
    compiled = tatara.compile(net, backend=backend, fullgraph=True)
    assert isinstance(compiled, torch.nn.Module)
    assert list(compiled.state_dict()) == list(net.state_dict())
    same(compiled(X), net(X))
    net.layers[1] = torch.nn.Linear(4, 4)
    same(compiled(X), net(X))
    net.norm.weight.fill_(3.0)
    same(compiled(X), net(X))
    compiled.train()
    assert net.training
    torch.manual_seed(1)
    a = compiled(X)
    torch.manual_seed(1)
    same(a, net(X))
    net.register_forward_hook(lambda m, i, o: o + 1)
    net.eval()
    same(compiled(X), net(X))


def test_errors_are_eagers(backend: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return (x * 2) @ y

    compiled = tatara.compile(f, backend=backend)
    for _ in range(2):
        with pytest.raises(RuntimeError) as expected:
            f(X, X)
        with pytest.raises(RuntimeError) as actual:
            compiled(X, X)
        assert str(actual.value) == str(expected.value)


def test_fullgraph_raises_with_the_line() -> None:
    def f(x: Any) -> Any:
        return x + x.sum().item()

    with pytest.raises(tatara.Unsupported, match=r"item.*test_capture\.py"):
        tatara.compile(f, fullgraph=True)(X)


@pytest.mark.parametrize("calls", [1, 2])
def test_fullgraph_raises_instead_of_running_in_eager(calls: int) -> None:
    compiled = tatara.compile(lambda x: x * 2, fullgraph=True)
    for _ in range(calls):
        with pytest.raises(tatara.Unsupported, match="_mkldnn"):
            compiled(torch.eye(3).to_mkldnn())
    assert torch.equal(compiled(torch.eye(3)), torch.eye(3) * 2)
    assert tatara.compile(lambda x: x * 2)(torch.eye(3).to_sparse()).layout == torch.sparse_coo


def test_fullgraph_takes_calls_that_torch_runs() -> None:
    """There is no rule for it, but nothing breaks either."""

    def f(x: Any) -> Any:
        return torch.linalg.eig(x[0, :, :3]).eigenvalues.abs().sin()

    x = torch.ones(2, 3, 4, requires_grad=True)
    with torch.enable_grad():
        assert torch.equal(tatara.compile(f, fullgraph=True)(x), f(x))
    assert torch.equal(tatara.compile(f, fullgraph=True)(x.detach()), f(x).detach())


def test_fullgraph_raises_for_a_graph_that_does_not_compile() -> None:
    def region(x: Any) -> Any:
        return torch.linalg.eig(x[0, :, :3]).eigenvalues.abs()

    def f(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False).sin()

    x = torch.ones(2, 3, 4, requires_grad=True)
    with torch.enable_grad():
        with pytest.raises(tatara.Unsupported, match="does not compile.*in f"):
            tatara.compile(f, fullgraph=True)(x)
        assert torch.equal(tatara.compile(f)(x), f(x))


def test_comprehensions_generators_and_builtins(backend: str) -> None:
    def f(xs: Any) -> Any:
        total = sum(x * 2 for x in xs)
        biggest = sorted([(len(x), i) for i, x in enumerate(xs)], key=lambda t: -t[0])
        names = {f"n{i}": x.shape[0] for i, x in enumerate(xs)}
        return total, biggest, names, list(map(lambda x: x + 1, xs)), [*zip(xs, range(2))]

    check(f, ([X, Y],), ((X, Y, X),), backend=backend)


def test_no_grad_inside_and_training_outside(backend: str) -> None:
    net = Net().eval()

    @torch.no_grad()
    def f(x: Any) -> Any:
        return net(x)

    with torch.enable_grad():
        check(f, (X,), backend=backend)
        compiled = tatara.compile(net, backend=backend)
        result = compiled(X)
        assert result.requires_grad
        result.sum().backward()
        assert net.norm.weight.grad is not None


def test_exceptions_inside(backend: str) -> None:
    def f(x: Any, key: str) -> Any:
        table = {"a": 1}
        try:
            n = table[key]
        except KeyError:
            n = 7
        with contextlib.suppress(ZeroDivisionError):
            n = n // 0
        return x + n

    check(f, (X, "a"), (X, "b"), backend=backend)


def test_random_numbers_are_eagers(backend: str) -> None:
    def f(x: Any) -> Any:
        return x + torch.rand(3, 4) + torch.nn.functional.dropout(x, 0.5, training=True)

    compiled = tatara.compile(f, backend=backend)
    for seed in range(3):
        torch.manual_seed(seed)
        a = compiled(X)
        torch.manual_seed(seed)
        same(a, f(X))


def test_random_numbers_are_drawn_in_the_programs_order(backend: str) -> None:
    """Where an early kernel has a part that reads the later of two draws."""

    def f(x: Any) -> Any:
        doubled = x * 2
        first = torch.rand(16, 16)
        second = torch.rand(16, 16)
        return doubled, first @ x, second + x

    compiled = tatara.compile(f, backend=backend)
    x = torch.ones(16, 16)
    for seed in range(3):
        torch.manual_seed(seed)
        a = compiled(x)
        torch.manual_seed(seed)
        same(a, f(x))


def test_default_and_keyword_arguments(backend: str) -> None:
    def f(x: Any, *rest: Any, k: int = 1, **more: Any) -> Any:
        for r in rest:
            x = x + r
        return x * k + sum(more.values())

    compiled = tatara.compile(f, backend=backend)
    for _ in range(2):
        same(compiled(X), f(X))
        same(compiled(X, Y, 2, k=3, z=4), f(X, Y, 2, k=3, z=4))
        same(compiled(X, k=3, z=5), f(X, k=3, z=5))
