"""What a program can see of its own frames: tracebacks, warnings, callers, tracers and profilers."""

from __future__ import annotations

import cProfile
import inspect
import pstats
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad")

X = torch.arange(6.0).reshape(2, 3)


def error_of(f: Callable[..., Any], *args: Any) -> BaseException:
    try:
        f(*args)
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("no exception")


def frames_of(error: BaseException) -> list[tuple[str, str, int | None]]:
    """Past this file's own error_of()."""
    return [(f.filename, f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__)[1:]]


def inner(x: Any, n: int) -> Any:
    y = x * n
    if n > 2:
        raise ValueError(f"too many: {n}")
    return y


def direct(x: Any) -> Any:
    return inner(x + 1, 3)


def cause(x: Any) -> Any:
    try:
        return inner(x, 3)
    except ValueError as error:
        raise RuntimeError("outer") from error


def context(x: Any) -> Any:
    try:
        return inner(x, 3)
    except ValueError:
        return {}["missing"]


def suppressed(x: Any) -> Any:
    try:
        return inner(x, 3)
    except ValueError:
        raise RuntimeError("alone") from None


def through_generator(x: Any) -> Any:
    def rows() -> Iterator[Any]:
        for i in range(5):
            yield inner(x, i)

    return sum(rows())


def through_sort(x: Any) -> Any:
    return sorted([1, 3, 2], key=lambda n: inner(x, n).sum().item())


def after_break(x: Any) -> Any:
    y = x * 2
    if y.sum() > 0:
        y = inner(y, 3)
    return y


def in_module(x: Any) -> Any:
    class M(torch.nn.Module):
        def forward(self, y: Any) -> Any:
            return inner(y, 3)

    return M()(x)


RAISING = [direct, cause, context, suppressed, through_generator, through_sort, after_break, in_module]


@pytest.mark.parametrize("f", RAISING, ids=lambda f: f.__name__)
def test_traceback(f: Any) -> None:
    compiled = tatara.compile(f)
    for _ in range(3):
        ours: BaseException | None = error_of(compiled, X)
        eager: BaseException | None = error_of(f, X)
        while eager is not None:
            assert ours is not None
            assert (type(ours), str(ours)) == (type(eager), str(eager))
            assert frames_of(ours) == frames_of(eager)
            assert ours.__suppress_context__ == eager.__suppress_context__
            assert (ours.__cause__ is None) == (eager.__cause__ is None)
            ours, eager = ours.__cause__ or ours.__context__, eager.__cause__ or eager.__context__
        assert ours is None


def warns(x: Any) -> Any:
    warnings.warn("here", UserWarning, stacklevel=1)
    deeper(x)
    return x + 1


def deeper(x: Any) -> None:
    warnings.warn("at the caller", DeprecationWarning, stacklevel=2)


@pytest.mark.parametrize("f", [warns, lambda x: warns(x * 2) + 1], ids=["root", "callee"])
def test_warnings_name_the_users_line(f: Any) -> None:
    compiled = tatara.compile(f)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            compiled(X)
        with warnings.catch_warnings(record=True) as eager:
            warnings.simplefilter("always")
            f(X)
        assert [(w.category, str(w.message), w.filename, w.lineno) for w in ours] == [
            (w.category, str(w.message), w.filename, w.lineno) for w in eager
        ]


def callers(x: Any) -> Any:
    y = x + 1
    names = who()
    return y, names


def who() -> list[Any]:
    frame: Any = sys._getframe(1)
    stack = [(f.function, f.lineno) for f in inspect.stack()[:2]]
    return [frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals), stack]


def test_callers() -> None:
    compiled = tatara.compile(callers)
    for _ in range(3):
        ours, eager = compiled(X), callers(X)
        assert torch.equal(ours[0], eager[0])
        assert ours[1] == eager[1]


def talks(x: Any) -> Any:
    y = x * 2
    print("sum", y.sum().item(), "shape", tuple(y.shape))
    return y + 1


def test_print(capsys: Any) -> None:
    compiled = tatara.compile(talks)
    for _ in range(3):
        assert torch.equal(compiled(X), talks(X))
        first, second = capsys.readouterr().out.splitlines()
        assert first == second


def works(x: Any) -> Any:
    y = inner(x, 1)
    return y + inner(x, 2)


def lines_run(f: Callable[..., Any], *args: Any) -> list[tuple[str, str, int]]:
    seen: list[tuple[str, str, int]] = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name in ("works", "inner"):
            seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        f(*args)
    finally:
        sys.settrace(before)
    return seen


def test_settrace_sees_the_lines_of_a_first_call() -> None:
    """A tracer set before the function was compiled sees it as eager runs it; the graph serves later calls."""
    eager = lines_run(works, X)
    assert len(eager) > 5
    compiled = tatara.compile(works)
    assert lines_run(compiled, X) == eager
    assert torch.equal(compiled(X), works(X))


def test_profiler() -> None:
    compiled = tatara.compile(works)
    profile = cProfile.Profile()
    profile.enable()
    ours = [compiled(X) for _ in range(2)]
    profile.disable()
    for y in ours:
        assert torch.equal(y, works(X))
    names = {name for _, _, name in pstats.Stats(profile).stats}  # type: ignore[attr-defined]
    assert {"works", "inner"} <= names


def test_profile_function_is_called() -> None:
    events: list[str] = []
    compiled = tatara.compile(works)
    sys.setprofile(lambda frame, event, arg: events.append(f"{event} {frame.f_code.co_name}"))
    try:
        y = compiled(X)
    finally:
        sys.setprofile(None)
    assert torch.equal(y, works(X))
    assert events.count("call inner") == 2
