"""An operator that fails while a compiled graph runs: eager's own error from the program's line, and what eager wrote before it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


class State:
    def __init__(self) -> None:
        self.before = 0
        self.after = 0
        self.log: list[Any] = []
        self.buffer = torch.zeros(3)
        self.last: Any = None


def attributes(s: Any, m: Any, i: Any) -> Any:
    s.before += 1
    s.log.append(m * 2)
    y = torch.linalg.inv(m)  # fails
    s.after += 1
    s.log.append(y)
    return y + 1


def index(s: Any, m: Any, i: Any) -> Any:
    s.before += 1
    s.last = m + 1
    y = m[i]  # fails
    s.after += 1
    return y * 2


def buffer_before(s: Any, m: Any, i: Any) -> Any:
    s.before += 1
    y = torch.linalg.inv(m)  # fails
    s.buffer += y.sum()
    s.after += 1
    return y


def local_in_place(s: Any, m: Any, i: Any) -> Any:
    z = m * 3
    z += 1
    s.last = z
    y = torch.linalg.inv(m)  # fails
    return y + z


def after_break(s: Any, m: Any, i: Any) -> Any:
    s.before += 1
    if float(m[0, 0]) > 1e9:
        s.before += 100
    s.log.append(m.sum())
    y = torch.linalg.inv(m)  # fails
    s.after += 1
    return y


def before_break(s: Any, m: Any, i: Any) -> Any:
    s.before += 1
    y = torch.linalg.inv(m)  # fails
    s.after += 1
    if float(y.sum()) > 1e9:
        s.after += 100
    return y * 2


def caught(s: Any, m: Any, i: Any) -> Any:
    s.before += 1
    try:
        y = torch.linalg.inv(m)  # fails
        s.after += 1
    except RuntimeError as error:
        s.last = str(error)
        y = m + 5
    return y * 2


def in_callee(s: Any, m: Any, i: Any) -> Any:
    def solve(a: Any) -> Any:
        s.log.append(a)
        return torch.linalg.inv(a)  # fails

    s.before += 1
    y = solve(m + 0)
    s.after += 1
    return y


PROGRAMS = [attributes, index, buffer_before, local_in_place, after_break, before_break, caught, in_callee]


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value


def _run(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    try:
        return _plain(f(*args)), None
    except Exception as error:
        frames = [(frame.name, frame.line) for frame in traceback.extract_tb(error.__traceback__)]
        ours = [frame for frame in frames if frame[1] and frame[1].endswith("# fails")]
        return (type(error), str(error)), ours


@pytest.mark.filterwarnings("ignore:tatara")
@pytest.mark.parametrize("backend", ["tatara", "eager"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_as_eager(f: Callable[..., Any], grad: bool, backend: str) -> None:
    good, bad = torch.eye(3) * 2, torch.ones(3, 3)
    good_index, bad_index = torch.tensor([0, 2]), torch.tensor([1, 7])
    if f is index:
        bad = good
    if grad:
        good, bad = good.requires_grad_(), bad.requires_grad_()
    compiled = tatara.compile(f, backend=backend)
    ours, eagers = State(), State()
    failed = 0
    for m, i in [(good, good_index)] * 3 + [(bad, bad_index), (good, good_index), (bad, bad_index), (good, good_index)]:
        got, expected = _run(compiled, ours, m, i), _run(f, eagers, m, i)
        if not (f is index and expected[1] is not None):  # the sizes in the text are eager's either way
            assert got[0] == expected[0]
        assert got[1] == expected[1]
        failed += expected[1] is not None
        assert {k: _plain(v) for k, v in vars(ours).items()} == {k: _plain(v) for k, v in vars(eagers).items()}
    assert failed == (0 if f is caught else 2)


def test_keyboard_interrupt_is_not_run_again() -> None:
    count = 0

    def backend(graph: Any, examples: Any) -> Any:
        def run(*args: Any) -> Any:
            nonlocal count
            count += 1
            raise KeyboardInterrupt

        return run

    compiled = tatara.compile(lambda x: x + 1, backend=backend)
    x = torch.randn(3)
    compiled(x)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    assert count == 1


def test_error_of_a_users_backend_is_its_own() -> None:
    def backend(graph: Any, examples: Any) -> Any:
        def run(*args: Any) -> Any:
            raise ValueError("the backend's own")

        return run

    compiled = tatara.compile(lambda x: x + 1, backend=backend)
    x = torch.randn(3)
    compiled(x)
    with pytest.raises(ValueError, match="the backend's own"):
        compiled(x)


def test_written_input_is_written_once() -> None:
    """Where a graph writes to its inputs, nothing is run again after the first write."""

    def f(total: Any, m: Any) -> Any:
        total += 1
        return torch.linalg.inv(m) + total

    compiled = tatara.compile(f)
    total, good, bad = torch.zeros(3), torch.eye(3), torch.ones(3, 3)
    for n in range(3):
        torch.testing.assert_close(compiled(total, good), torch.eye(3) + n + 1)
    before = total.clone()
    with pytest.raises(RuntimeError, match="singular"):
        compiled(total, bad)
    assert (total - before).max() <= 1
