"""The VM on small programs, and its seam: what an observer may do to a frame. The real test is tools/pyvm.py."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback

import pytest

HERE = pathlib.Path(__file__).parent


def _build_dir() -> str:
    given = os.environ.get("TATARA_VM_DIR")
    if given:
        return given
    if shutil.which("g++") is None:
        pytest.skip("no g++ to build _tatara_vm with, and TATARA_VM_DIR is not set", allow_module_level=True)
    out = os.path.join(tempfile.gettempdir(), f"tatara-pyvm-{sys.version_info[0]}{sys.version_info[1]}-{os.getuid()}")
    # Every worker of pytest-xdist comes here: one builds while the others wait, so nobody loads a half-linked module.
    with open(out + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([str(HERE / "build.sh"), sys.executable, out], check=True, stdout=subprocess.DEVNULL)
        # The linker rewrites the file in place: give each process its own copy to map.
        mine = tempfile.mkdtemp(prefix="tatara-pyvm-")
        atexit.register(shutil.rmtree, mine, ignore_errors=True)
        for built in pathlib.Path(out).glob("_tatara_vm*.so"):
            shutil.copy(built, mine)
    return mine


sys.path.insert(0, _build_dir())
import _tatara_vm as vm  # noqa: E402


@pytest.fixture(params=[None, "count", "perform", "handback", "reload"])
def in_vm(request):
    """Calls a function with the VM on, under each observer; asserts that the VM did run something."""

    def call(function, *args):
        before = vm.stats()
        vm.observe(request.param)
        vm.enable()
        try:
            return function(*args)
        finally:
            vm.disable()
            vm.observe(None)
            after = vm.stats()
            assert after["instructions"] > before["instructions"]
            if request.param is not None:
                entered = after["entered"] - before["entered"]
                left = after["left"] - before["left"]
                assert entered > 0
                # Suspended generators are left once for each time they were entered.
                assert entered == left

    return call


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def numbers(n):
    for i in range(n):
        got = yield i
        if got:
            yield got * 10


def chained(n):
    result = yield from numbers(n)
    yield result


def test_calls_and_recursion(in_vm):
    assert in_vm(fibonacci, 12) == 144


def test_generators(in_vm):
    def run():
        g = numbers(3)
        first = [next(g), g.send(7), next(g)]
        return first, list(chained(3)), sum(x * x for x in numbers(4))

    assert in_vm(run) == ([0, 70, 1], [0, 1, 2, None], 14)


def test_generator_throw_and_close(in_vm):
    log = []

    def worker():
        try:
            yield 1
        except KeyError as error:
            log.append(error.args)
            yield 2
        finally:
            log.append("closed")

    def run():
        g = worker()
        values = [next(g), g.throw(KeyError("k"))]
        g.close()
        return values

    assert in_vm(run) == [1, 2]
    assert log == [("k",), "closed"]


def test_exceptions_and_traceback(in_vm):
    def inner(x):
        return 1 // x

    def outer():
        try:
            inner(0)
        except ZeroDivisionError as error:
            names = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
            lines = [entry.line for entry in traceback.extract_tb(error.__traceback__)]
            try:
                raise ValueError("wrapped") from error
            except ValueError as second:
                return names, lines, type(second.__cause__).__name__
        finally:
            inner(1)

    assert in_vm(outer) == (["outer", "inner"], ["inner(0)", "return 1 // x"], "ZeroDivisionError")


def test_reraise_keeps_one_traceback_entry(in_vm):
    def outer():
        try:
            try:
                raise ValueError("x")
            except ValueError:
                raise
        finally:
            pass

    def run():
        with pytest.raises(ValueError) as caught:
            outer()
        return [entry.name for entry in caught.traceback]

    assert in_vm(run)[-1] == "outer"
    assert in_vm(run).count("outer") == 1


def test_exception_groups(in_vm):
    def run():
        seen = []
        try:
            try:
                raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
            except* ValueError as group:
                seen.append(repr(group.exceptions))
            except* TypeError as group:
                seen.append(repr(group.exceptions))
        except ExceptionGroup as rest:
            seen.append(repr(rest.exceptions))
        return seen

    assert in_vm(run) == ["(ValueError(1),)", "(TypeError(2),)", "(KeyError(3),)"]


def test_with(in_vm):
    log = []

    class Manager:
        def __enter__(self):
            log.append("enter")
            return self

        def __exit__(self, kind, value, tb):
            log.append(kind.__name__ if kind else None)
            return kind is KeyError

    def run():
        with Manager():
            pass
        with Manager(), Manager():
            raise KeyError
        return "after"

    assert in_vm(run) == "after"
    assert log == ["enter", None, "enter", "enter", "KeyError", None]


def test_async(in_vm):
    class Source:
        def __init__(self):
            self.left = 3

        def __aiter__(self):
            return self

        async def __anext__(self):
            if self.left == 0:
                raise StopAsyncIteration
            self.left -= 1
            await asyncio.sleep(0)
            return self.left

    async def produce():
        async for value in Source():
            yield value * 2

    async def main():
        return [x async for x in produce()]

    assert in_vm(lambda: asyncio.run(main())) == [4, 2, 0]


def test_match(in_vm):
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def classify(value):
        match value:
            case {"kind": kind, **rest}:
                return kind, rest
            case [first, *others]:
                return first, others
            case Point(0, y=y):
                return "axis", y
            case int() | str():
                return "scalar"
            case _:
                return None

    def run():
        return [classify(v) for v in ({"kind": 1, "z": 2}, [1, 2, 3], Point(0, 5), 7, "s", 1.5)]

    assert in_vm(run) == [(1, {"z": 2}), (1, [2, 3]), ("axis", 5), "scalar", "scalar", None]


def test_classes_and_super(in_vm):
    def run():
        class Base:
            def __init__(self, *, tag="t", **extra):
                self.tag = tag
                self.extra = extra

        class Derived(Base):
            counter = 0

            def __init__(self, *args, **kwargs):
                super().__init__(**kwargs)
                self.args = args

            @property
            def text(self):
                return f"{self.tag!r:>5}|{len(self.args):03d}|{self.extra}"

        return Derived(1, 2, tag="a", b=3).text

    assert in_vm(run) == "  'a'|002|{'b': 3}"


def test_closures_comprehensions_and_unpacking(in_vm):
    def run():
        total = 0

        def add(n, /, scale=1, *rest, key=0, **more):
            nonlocal total
            total += n * scale + sum(rest) + key + sum(more.values())
            return total

        values = [add(i, 2) for i in range(4) if i != 2]
        first, *middle, last = [*values, add(*(1, 2, 3), **{"key": 4, "z": 5})]
        return first, middle, last, {k: v for k, v in zip("ab", values)}, {x % 3 for x in range(7)}

    assert in_vm(run) == (0, [2, 8], 22, {"a": 0, "b": 2}, {0, 1, 2})


def test_names_missing(in_vm):
    def run():
        out = []
        for code in ("missing_global", "del gone", "import json.nothing", "from json import nothing"):
            try:
                exec(code, {})
            except Exception as error:
                out.append((type(error).__name__, str(error).split(" (")[0]))
        try:
            unbound
            unbound = 1
        except UnboundLocalError as error:
            out.append(str(error))
        return out

    assert in_vm(run) == [
        ("NameError", "name 'missing_global' is not defined"),
        ("NameError", "name 'gone' is not defined"),
        ("ModuleNotFoundError", "No module named 'json.nothing'"),
        ("ImportError", "cannot import name 'nothing' from 'json'"),
        "cannot access local variable 'unbound' where it is not associated with a value",
    ]


def test_frames_are_real(in_vm):
    def inner():
        frame = sys._getframe()
        return frame.f_lineno - frame.f_code.co_firstlineno, frame.f_back.f_code.co_name, dict(frame.f_back.f_locals)

    def outer():
        local = 5
        return inner()

    offset, caller, local_names = in_vm(outer)
    assert (offset, caller, local_names["local"]) == (2, "outer", 5)


def test_recursion_error(in_vm):
    def forever(n):
        return forever(n + 1) + 1

    def run():
        try:
            forever(0)
        except RecursionError as error:
            return str(error)[:32]

    assert in_vm(run) == "maximum recursion depth exceeded"


def test_tracing_is_left_to_cpython(in_vm):
    events = []

    def traced(n):
        m = n + 1
        return m

    def run():
        sys.settrace(lambda frame, event, arg: events.append(event) or (lambda *a: events.append(a[1])))
        try:
            return traced(1)
        finally:
            sys.settrace(None)

    assert in_vm(run) == 2
    assert "call" in events and "line" in events and "return" in events


# What an observer may do with a frame (ScriptedObserver in stress_observer.cpp). ---------------------------------------


def return_at_entry(n):
    return n


def raise_at_entry(n):
    return n


def hand_back_at_entry(n):
    return n + 1


def return_inside(n):
    values = [n]
    values.append(len([n, [n, [sum([n, 1])]]]))  # the observer acts on this line
    return values


def raise_inside(n):
    try:
        values = [[n, [sum([n, 1])]]]  # the observer acts on this line
    except ValueError as error:
        return str(error)
    return values


def run_again(n):
    values = [n]
    values.append(n + 1)  # the observer acts on this line
    return values


def start_in_the_middle(n):
    values = [1 // 0]
    values.append(n)  # the observer starts here, with an empty list in `values`
    return values


def without_return_value():
    def return_at_entry(n):
        pass

    return return_at_entry


@pytest.fixture
def scripted():
    vm.observe("scripted")
    vm.enable()
    yield
    vm.disable()
    vm.observe(None)


def test_observer_returns(scripted):
    assert return_at_entry(1) == 42
    assert return_inside(1) == 43
    assert without_return_value()(1) == 42


def test_observer_raises(scripted):
    with pytest.raises(ValueError, match="from the observer"):
        raise_at_entry(1)
    assert raise_inside(1) == "from the observer"


def test_observer_hands_back(scripted):
    assert hand_back_at_entry(1) == 2


def test_observer_starts_in_the_middle(scripted):
    assert start_in_the_middle(5) == [5]


def test_observer_moves_the_frame(scripted):
    assert run_again(1) == [1000, 1001]
