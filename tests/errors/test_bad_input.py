"""Bad input: eager's own errors from the user's line, and objects left as eager leaves them."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tatara = pytest.importorskip("tatara")

pytestmark = pytest.mark.usefixtures("fresh")


def _error_of(function: Any, *args: Any) -> BaseException:
    with pytest.raises(Exception) as info:
        function(*args)
    return info.value


def _line_of(error: BaseException, function: Any) -> int:
    """Line inside `function` at which the error passed."""
    return next(f.lineno for f in traceback.extract_tb(error.__traceback__) if f.name == function.__name__) or 0


def _mismatched(a: Any, b: Any) -> Any:
    c = a * 2
    return c + b


def _matmul(a: Any, b: Any) -> Any:
    c = a + 1
    return (c @ b).relu()


def _joined(a: Any, b: Any) -> Any:
    return torch.cat([a + 1, b]) * 2


def _in_place(a: Any, b: Any) -> Any:
    c = a + 1
    c.add_(b)
    return c


def _linear(a: Any, b: Any) -> Any:
    c = a * 2
    return torch.nn.functional.linear(c, b) + 1


def _reshaped(a: Any, b: Any) -> Any:
    c = a + b
    return c.view(5)


def _wrong_dimension(a: Any, b: Any) -> Any:
    return (a + b).softmax(4)


def _ambiguous(a: Any, b: Any) -> Any:
    c = a + b
    return 1 if c else 2


def _ones(*shape: int, **kwargs: Any) -> Any:
    return torch.ones(*shape, **kwargs)


# Function, arguments that are right, arguments that are wrong.
_ERRORS: dict[str, tuple[Any, tuple[Any, Any], tuple[Any, Any]]] = {
    "broadcast": (_mismatched, (_ones(3), _ones(3)), (_ones(3), _ones(4))),
    "device": (_mismatched, (_ones(3), _ones(3)), (_ones(3), _ones(3, device="meta"))),
    "device of a list": (_joined, (_ones(3), _ones(3)), (_ones(3), _ones(3, device="meta"))),
    "matmul": (_matmul, (_ones(3, 4), _ones(4, 3)), (_ones(3, 4), _ones(3, 4))),
    "matmul dtype": (_matmul, (_ones(3, 4), _ones(4, 3)), (_ones(3, 4), _ones(4, 3, dtype=torch.float64))),
    "cat": (_joined, (_ones(3, 4), _ones(2, 4)), (_ones(3, 4), _ones(3, 3))),
    "in place": (_in_place, (_ones(2, 3), _ones(3)), (_ones(3), _ones(2, 3))),
    "linear": (_linear, (_ones(2, 3), _ones(4, 3)), (_ones(2, 3), _ones(4, 5))),
    "view": (_reshaped, (_ones(5, 1), _ones(5, 1)), (_ones(4, 3), _ones(4, 3))),
    "no tensor": (_mismatched, (_ones(3), _ones(3)), (_ones(3), "text")),
    "truth": (_ambiguous, (_ones(1), _ones(1)), (_ones(2), _ones(2))),
}


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", list(_ERRORS))
def test_error_is_eagers_from_the_users_line(name: str, warm: bool) -> None:
    function, right, wrong = _ERRORS[name]
    compiled = tatara.compile(function)
    if warm:
        assert str(compiled(*right)) == str(function(*right))
    expected = _error_of(function, *wrong)
    for _ in range(2):
        actual = _error_of(compiled, *wrong)
        assert type(actual) is type(expected)
        assert str(actual) == str(expected)
        assert _line_of(actual, function) == _line_of(expected, function)
    assert str(compiled(*right)) == str(function(*right))


def test_error_where_eager_raises_on_every_call() -> None:
    compiled = tatara.compile(_wrong_dimension)
    expected = _error_of(_wrong_dimension, torch.ones(3), torch.ones(3))
    for _ in range(2):
        actual = _error_of(compiled, torch.ones(3), torch.ones(3))
        assert (type(actual), str(actual)) == (type(expected), str(expected))


def test_error_in_a_module_names_the_users_lines() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(6, 2)).eval()
    compiled = tatara.compile(model)
    with torch.no_grad():
        expected, actual = _error_of(model, torch.ones(3, 4)), _error_of(compiled, torch.ones(3, 4))
    assert (type(actual), str(actual)) == (type(expected), str(expected))
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(expected.__traceback__) if "torch/nn" in f.filename]
    ours = [(f.filename, f.lineno) for f in traceback.extract_tb(actual.__traceback__)]
    assert frames and all(frame in ours for frame in frames)


def _gather(table: Any, index: Any) -> Any:
    return table[index] + 1


@pytest.mark.parametrize("bad", [5, -6])
def test_index_out_of_bounds(bad: int) -> None:
    compiled = tatara.compile(_gather)
    table = torch.randn(5, 2)
    compiled(table, torch.tensor([0, 4]))
    expected, actual = (
        _error_of(_gather, table, torch.tensor([0, bad])),
        _error_of(compiled, table, torch.tensor([0, bad])),
    )
    assert type(actual) is type(expected)
    assert str(bad) in str(actual)
    assert torch.equal(compiled(table, torch.tensor([1])), _gather(table, torch.tensor([1])))


class _Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[int] = []


def _fails_midway(counter: _Counter, x: Any) -> Any:
    for i in range(4):
        counter.calls += 1
        counter.seen.append(i)
        x = x + i
        if i == 2:
            raise ValueError("stop")
    return x


def test_exception_in_a_loop_leaves_objects_as_eager() -> None:
    ours, theirs = _Counter(), _Counter()
    compiled = tatara.compile(_fails_midway)
    for _ in range(2):
        expected, actual = _error_of(_fails_midway, theirs, torch.ones(2)), _error_of(compiled, ours, torch.ones(2))
        assert str(actual) == str(expected)
        assert (ours.calls, ours.seen) == (theirs.calls, theirs.seen)


class _Ledger:
    """Everything that a loop may change."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.table: dict[str, Any] = {"last": -1}
        self.names: set[str] = set()
        self.buffer = torch.zeros(3)
        self.total = 0

    def state(self) -> Any:
        return (
            [float(x) if isinstance(x, torch.Tensor) else x for x in self.items],
            dict(self.table),
            sorted(self.names),
            self.buffer.tolist(),
            self.total,
        )


def _books(ledger: _Ledger, x: Any, limit: int) -> Any:
    for i in range(6):
        ledger.items.append((x * i).sum())
        ledger.table["last"] = i
        ledger.names.add(f"step {i}")
        ledger.buffer.add_(x)
        if i == 1:
            ledger.items.pop(0)
        x = x.view(-1)[: 3 if i < limit else 2]  # the in-place addition of the next step does not broadcast
        ledger.total += 1
    return x


@pytest.mark.parametrize("limit", [0, 2, 4])
def test_objects_after_an_operators_exception_in_a_loop(limit: int) -> None:
    ours, theirs = _Ledger(), _Ledger()
    compiled = tatara.compile(_books)
    x = torch.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        expected = _error_of(_books, theirs, x, limit)
        actual = _error_of(compiled, ours, x, limit)
        assert (type(actual), str(actual)) == (type(expected), str(expected))
        assert _line_of(actual, _books) == _line_of(expected, _books)
        assert ours.state() == theirs.state()
    assert str(compiled(ours, x, 6)) == str(_books(theirs, x, 6))
    assert ours.state() == theirs.state()


def _from_a_callee(log: list[str], x: Any, bad: int) -> Any:
    def step(i: int, y: Any) -> Any:
        log.append(f"before {i}")
        try:
            if i == bad:
                raise KeyError(i)
            return y + i
        finally:
            log.append(f"after {i}")

    for i in range(4):
        x = step(i, x)
    return x


def test_exception_of_a_callee_runs_its_finally() -> None:
    compiled = tatara.compile(_from_a_callee)
    for bad in (2, 0, 2, 7):
        ours: list[str] = []
        theirs: list[str] = []
        try:
            expected: Any = _from_a_callee(theirs, torch.ones(2), bad).tolist()
        except KeyError as error:
            expected = repr(error)
        try:
            actual: Any = compiled(ours, torch.ones(2), bad).tolist()
        except KeyError as error:
            actual = repr(error)
        assert (ours, actual) == (theirs, expected)
