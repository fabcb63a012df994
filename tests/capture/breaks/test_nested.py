"""Graph breaks below the compiled function, branches on constants, and what must stay out of a trace."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad")

X = torch.linspace(-2, 2, 8).reshape(2, 4)


class Block(torch.nn.Module):
    def __init__(self, talks: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.talks = talks

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.linear(x))
        if self.talks:
            print("mean", float(y.mean()) > 0)
        return y * 2 + x


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(i == 1) for i in range(3)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x.sin() + 1


@pytest.mark.smoke
@pytest.mark.usefixtures("host_products")
def test_modules_below_a_break_are_compiled(capsys: Any) -> None:
    net = Net().eval()
    compiled = tatara.compile(net)
    for _ in range(5):
        torch.testing.assert_close(compiled(X), net(X))
    assert capsys.readouterr().out == "mean True\n" * 10
    with counts() as grown:
        torch.testing.assert_close(compiled(X), net(X))
    assert (grown["graphs"], grown["breaks"]) == (0, 0)
    # Three linear layers, each in a plan: none is left to eager.
    assert grown["host_calls"] == 3


def test_callees_of_a_function_that_cannot_be_traced() -> None:
    def inner(x: Any) -> Any:
        return (x * 2).tanh() + 1

    calls: list[int] = []

    def outer(x: Any) -> Any:
        calls.append(inner(x).shape[0])
        return inner(x)

    compiled = tatara.compile(outer)
    for _ in range(4):
        torch.testing.assert_close(compiled(X), outer(X))
    assert len(calls) == 8


@pytest.mark.smoke
def test_exception_below_a_break_reaches_its_handler() -> None:
    def inner(x: Any) -> Any:
        if x.sum().item() > 100:
            return x
        y = x * 2
        raise ValueError(f"no {y.shape[0]}")

    def outer(x: Any) -> Any:
        try:
            return inner(x) + 1
        except ValueError as error:
            return x - len(str(error))

    compiled = tatara.compile(outer)
    for x in (X, X + 100, X, X + 100):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), outer(x))


def test_branch_on_a_tensor_without_inputs_is_no_break() -> None:
    def f(x: Any) -> Any:
        positions = torch.arange(x.shape[1])[None]
        gaps = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1)
        if (gaps != 1).cumsum(-1)[:, -1].any():
            return x - 1
        mask = torch.zeros(4, 4)
        mask[0, 1] = 2
        return x + mask.sum().item()

    report = tatara.explain(f)(X)
    assert len(report.graphs) == 1 and not report.breaks
    torch.testing.assert_close(tatara.compile(f)(X), f(X))


def test_constants_written_with_inputs_are_none() -> None:
    def f(x: Any) -> Any:
        total = torch.zeros(4)
        view = total[:2]
        view[0] = x.sum()
        if total.sum() > 0:
            return x + 1
        return x - 1

    def g(x: Any) -> Any:
        noise = torch.rand(3)
        return x + 1 if noise.sum() > 1.5 else x - 1

    compiled = tatara.compile(f)
    for x in (X + 1, -X - 1) * 3:
        torch.testing.assert_close(compiled(x), f(x))
    assert report_of(compiled).breaks
    random = tatara.compile(g)
    for seed in range(6):
        torch.manual_seed(seed)
        expected = g(X)
        torch.manual_seed(seed)
        torch.testing.assert_close(random(X), expected)


def test_garbage_collection_is_no_part_of_a_trace() -> None:
    log: list[str] = []

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            log.append("died")

    def f(x: Any) -> Any:
        for _ in range(50):
            x = x + [len([[]])][0]
        return x

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(3):
            Cycle()
            report = tatara.explain(f)(X)
            assert len(report.graphs) == 1 and not report.breaks
            assert gc.isenabled()
    finally:
        gc.set_threshold(*threshold)
    assert log


def _closure_of_a_number(x: Any, k: Any) -> Any:
    def inner(y: Any) -> Any:
        return y * k

    print(end="")
    return inner(x)


def _closure_of_a_list(x: Any, k: Any) -> Any:
    mine: list[Any] = []

    def inner(y: Any) -> Any:
        mine.append(k)
        return y.sin()

    print(end="")
    inner(x)
    inner(x)
    return mine


def _closure_that_is_written(x: Any, k: Any) -> Any:
    count = k

    def inner(y: Any) -> Any:
        nonlocal count
        count = count + 1
        return y * count

    print(end="")
    return inner(x), inner(x), count


def _method_of_a_local_class(x: Any, k: Any) -> Any:
    class Scale:
        def __init__(self, by: Any) -> None:
            self.by = by

        def apply(self, y: Any) -> Any:
            return y * self.by + k

    scale = Scale(k)
    print(end="")
    return scale.apply(x)


@pytest.mark.parametrize(
    "program", [_closure_of_a_number, _closure_of_a_list, _closure_that_is_written, _method_of_a_local_class]
)
@pytest.mark.parametrize("tensors", [False, True])
def test_functions_made_anew_below_a_break(program: Any, tensors: bool) -> None:
    """Each call makes another function of the same code, with cells of its own."""
    compiled = tatara.compile(program)
    for k in (2, 3, 4, 5, 2, 3, 6):
        value = torch.tensor(float(k)) if tensors else k
        ours, theirs = compiled(X, value), program(X, value)
        assert len(ours) == len(theirs)
        for a, e in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, e)


class Nest(torch.nn.Module):
    """A model in a model, and so on: the innermost one talks."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.inner = Nest(depth - 1) if depth > 0 else Block(True)
        self.plain = Block(False)

    def around(self, x: Any, **options: Any) -> Any:
        return self.inner(x, **options) * 2

    def forward(self, x: Any, **options: Any) -> Any:
        x = self.plain(torch.tanh(self.linear(x)))
        if isinstance(self.inner, Nest):
            return self.around(x, **options) + x
        if options.get("fails"):
            raise ValueError("it fails inside")
        return self.inner(x) - x if not options.get("quiet") else x


@pytest.mark.parametrize("depth", [1, 6])
@pytest.mark.usefixtures("host_products")
def test_a_break_far_below_settles_as_fast_as_a_near_one(depth: int, capsys: Any) -> None:
    net = Nest(depth)
    compiled = tatara.compile(net)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), net(X))
    with counts() as grown:
        for _ in range(3):
            torch.testing.assert_close(compiled(X), net(X))
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)
    # A linear layer before each call, and one in each block.
    assert grown["host_calls"] == 3 * (2 * (depth + 1) + 1)
    assert capsys.readouterr().out == "mean True\n" * 12


def test_calls_that_break_below_and_then_do_not(capsys: Any) -> None:
    """What later calls do otherwise is done as in eager, its exceptions too."""
    net = Nest(3)
    compiled = tatara.compile(net)
    for options in ({}, {}, {"quiet": True}, {"fails": True}, {}, {"quiet": True}, {"quiet": True}, {"fails": True}):
        said = []
        for call in (compiled, net):
            if options.get("fails"):
                with pytest.raises(ValueError, match="it fails inside"):
                    call(X, **options)
            else:
                said.append((call(X, **options), capsys.readouterr().out))
        if said:
            torch.testing.assert_close(said[0][0], said[1][0])
            assert said[0][1] == said[1][1]
