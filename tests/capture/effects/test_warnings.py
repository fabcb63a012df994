"""warnings.warn inside of compiled code: what is shown, when and how often, is what eager shows; most of it breaks no graph."""

from __future__ import annotations

import io
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

HEAD = """
import warnings
import torch

class Own(UserWarning):
    pass

class Made(UserWarning):
    def __init__(self, text):
        super().__init__(text.upper())

class Written(UserWarning):
    def __str__(self):
        return "written " + super().__str__()

OLD = UserWarning("old")
"""

PROGRAMS = {
    "plain": """
def program(x):
    y = torch.tanh(x)
    warnings.warn("plain")
    return y * 2
""",
    "category": """
def program(x):
    warnings.warn("future", FutureWarning)
    warnings.warn("own", category=Own, stacklevel=1)
    return x * 2
""",
    "instances": """
def program(x):
    warnings.warn(Own("instance"))
    warnings.warn(DeprecationWarning("another"), UserWarning)
    return x * 2
""",
    "levels": """
def inner(x):
    warnings.warn("one", stacklevel=1)
    warnings.warn("two", stacklevel=2)
    return x * 2

def program(x):
    y = inner(x)
    return inner(y)
""",
    "loop": """
def program(x):
    for i in range(3):
        warnings.warn("same")
        warnings.warn(f"another {i}")
        x = x * 2
    return x
""",
    "sizes": """
def program(x):
    warnings.warn(f"rank {x.dim()} of {tuple(x.shape)}")
    return x * 2
""",
    "branch": """
def program(x):
    if x.dim() > 3:
        warnings.warn("high")
    else:
        warnings.warn("low", Own)
    return x * 2
""",
    "handled": """
def program(x):
    try:
        warnings.warn("perhaps an error", Own)
        y = x * 2
    except Own as error:
        y = x * len(str(error))
    return torch.relu(y)
""",
    "module": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        warnings.warn("in a module", DeprecationWarning, 1, None)
        return torch.relu(x * self.weight)

program = Model()
""",
}
# What capture leaves to eager, in each call or as long as the warning is shown.
LEFT = {
    "caller": """
def program(x):
    warnings.warn("of the caller", stacklevel=2)
    return x * 2
""",
    "beyond": """
def program(x):
    warnings.warn("of nobody", stacklevel=99)
    return x * 2
""",
    "made": """
def program(x):
    warnings.warn("made", Made)
    return x * 2
""",
    "written": """
def program(x):
    warnings.warn(Written("it"))
    warnings.warn("that", Written)
    return x * 2
""",
    "old": """
def program(x):
    warnings.warn(OLD)
    return x * 2
""",
    "source": """
def program(x):
    warnings.warn("of a thing", ResourceWarning, source=OLD)
    return x * 2
""",
    "values": """
def program(x):
    warnings.warn(f"value {x.sum().item()}")
    return x * 2
""",
    "registry": """
def program(x):
    warnings.warn("again")
    globals().pop("__warningregistry__", None)
    warnings.warn("again")
    return x * 2
""",
    "filters": """
def program(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("silent")
    warnings.warn("loud")
    return x * 2
""",
    "recorded": """
def program(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("counted")
        warnings.warn("counted")
        n = len(seen)
    return x * n
""",
    "no category": """
def program(x):
    try:
        warnings.warn("what", int)
    except TypeError as error:
        return x * len(str(error))
    return x
""",
}
ACTIONS = ["default", "once", "module", "ignore", "always", "error"]


def made(source: str) -> types.ModuleType:
    """A module of its own, whose places have shown nothing yet."""
    module = types.ModuleType("programs_that_warn")
    exec(compile(HEAD + source, "programs_that_warn.py", "exec"), vars(module))
    return module


@contextmanager
def fresh() -> Iterator[None]:
    """Python's own way of showing warnings, which pytest has replaced."""
    with warnings.catch_warnings():
        show = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
        warnings._showwarnmsg_impl = _IMPLEMENTATION  # type: ignore[attr-defined]
        try:
            yield
        finally:
            warnings._showwarnmsg_impl = show  # type: ignore[attr-defined]


# As Python has it: a function of the module `warnings`.
_IMPLEMENTATION = types.FunctionType(
    compile(
        "def show(message):\n    if sys.stderr is not None:\n        sys.stderr.write(_formatwarnmsg(message))",
        "warnings.py",
        "exec",
    ).co_consts[0],
    vars(warnings),
)


class Stream:
    """Not one of Python's own."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def write(self, text: str) -> int:
        return self.text.write(text)

    def flush(self) -> None:
        pass

    def getvalue(self) -> str:
        return self.text.getvalue()


def calls(
    module: types.ModuleType,
    steps: list[Callable[[types.ModuleType], None]],
    compiled: bool,
    stream: Callable[[], Any] = io.StringIO,
) -> list[tuple[Any, str]]:
    """The result of each call, or its error, and what was shown; before each, a step."""
    program = tatara.compile(module.program) if compiled else module.program
    rows: list[tuple[Any, str]] = []
    before = sys.stderr
    x = torch.linspace(-1, 1, 3)
    with fresh():
        try:
            for step in steps:
                step(module)
                sys.stderr = stream()
                try:
                    rows.append((program(x).tolist(), sys.stderr.getvalue()))
                except Warning as error:
                    rows.append(((type(error).__name__, str(error)), sys.stderr.getvalue()))
        finally:
            sys.stderr = before
    return rows


def set_action(action: str) -> Callable[[Any], None]:
    return lambda module: warnings.simplefilter(action)  # type: ignore[arg-type]


def nothing(module: types.ModuleType) -> None:
    pass


def forget(module: types.ModuleType) -> None:
    vars(module).pop("__warningregistry__", None)


def forget_some(module: types.ModuleType) -> None:
    vars(module).get("__warningregistry__", {}).clear()


def quiet_list(module: types.ModuleType) -> None:
    """Past simplefilter, so that the interpreter is not told."""
    warnings.filters.insert(0, ("ignore", None, Warning, None, 0))  # type: ignore[attr-defined]


def loud_list(module: types.ModuleType) -> None:
    del warnings.filters[0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", [*PROGRAMS, *LEFT])
def test_what_is_shown_is_what_eager_shows(name: str, action: str) -> None:
    source = {**PROGRAMS, **LEFT}[name]
    steps = [set_action(action), nothing, nothing, forget, nothing]
    expected, result = (calls(made(source), steps, compiled) for compiled in (False, True))
    assert result == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_filters_that_change_between_calls(name: str) -> None:
    steps = [
        *(set_action(action) for action in ("default", "ignore", "ignore", "error", "default", "always", "once")),
        nothing,
        quiet_list,
        nothing,
        loud_list,
        forget_some,
        nothing,
        quiet_list,
        forget,
        loud_list,
        lambda module: warnings.resetwarnings(),
        lambda module: warnings.filterwarnings("ignore", "low|plain|same", append=True),
        lambda module: warnings.filterwarnings("error", module="programs", lineno=3),
        lambda module: warnings.filterwarnings("always", category=DeprecationWarning),
    ]
    expected, result = (calls(made(PROGRAMS[name]), steps, compiled) for compiled in (False, True))
    assert result == expected


@pytest.mark.parametrize("action", ["default", "once", "module", "ignore"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_warning_that_is_shown_once_breaks_no_graph(name: str, action: str) -> None:
    module = made(PROGRAMS[name])
    x = torch.ones(3)
    with fresh():
        warnings.simplefilter(action)  # type: ignore[arg-type]
        before, sys.stderr = sys.stderr, io.StringIO()
        try:
            report = tatara.explain(module.program)(x)
            shown = sys.stderr.getvalue()
        finally:
            sys.stderr = before
    assert not report.breaks and len(report.graphs) == 1, report.breaks
    assert bool(shown) == (action != "ignore")


def test_shown_in_a_way_of_the_programs() -> None:
    """Breaks while it is shown, and no longer."""
    for stream, replace in ((Stream, False), (io.StringIO, True)):
        seen: list[list[Any]] = []
        for compiled in (False, True):
            module = made(PROGRAMS["levels"])
            lines: list[str] = []

            def show(module: Any, lines: list[str] = lines) -> None:
                warnings.simplefilter("default")
                if replace:
                    warnings.showwarning = lambda *args: lines.append(str(args[0]))

            rows = calls(module, [show, nothing, nothing], compiled, stream)
            seen.append([rows, lines])
        assert seen[0] == seen[1]
        module = made(PROGRAMS["levels"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            run = tatara.compile(module.program)
            for _ in range(3):
                run(torch.ones(3))
            assert [str(each.message) for each in caught] == ["one", "two", "two"]
            before = tatara.stats()
            run(torch.ones(3))
            after = tatara.stats()
        assert (after["breaks"], after["graphs"]) == (before["breaks"], before["graphs"])


def test_once_in_two_functions_of_a_module() -> None:
    source = """
def warns():
    warnings.warn("shared", Own, stacklevel=2)

def first(x):
    warns()
    return x + 1

def second(x):
    warns()
    return x + 2
"""
    rows: list[list[str]] = []
    for compiled in (False, True):
        module = made(source)
        runs = [tatara.compile(f) if compiled else f for f in (module.first, module.second)]
        out: list[str] = []
        with fresh():
            for action in ("once", "default", "module"):
                warnings.simplefilter(action)  # type: ignore[arg-type]
                for run in (*runs, *runs):
                    before, sys.stderr = sys.stderr, io.StringIO()
                    try:
                        run(torch.ones(2))
                        out.append(sys.stderr.getvalue())
                    finally:
                        sys.stderr = before
        rows.append(out)
    assert rows[0] == rows[1]


def test_shown_once_though_the_trace_is_taken_back() -> None:
    source = """
def program(x):
    warnings.warn("first")
    y = x.reshape(7, 5)
    warnings.warn("never")
    return y
"""
    with fresh():
        warnings.simplefilter("default")
        run = tatara.compile(made(source).program)
        for count in (1, 0):
            before, sys.stderr = sys.stderr, io.StringIO()
            try:
                with pytest.raises(RuntimeError, match="invalid for input"):
                    run(torch.ones(3))
                assert sys.stderr.getvalue().count("UserWarning: first") == count
                assert "never" not in sys.stderr.getvalue()
            finally:
                sys.stderr = before


def _around(x: Any, action: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter(action)  # type: ignore[arg-type]
        y = torch.tanh(x)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return y * 2


@pytest.mark.parametrize("action", ["ignore", "error", "always"])
def test_filters_around_calls_of_torch_break_no_graph(action: str) -> None:
    x = torch.linspace(-1, 1, 3)
    tatara.reset()
    report = tatara.explain(_around)(x, action)
    assert len(report.graphs) == 1
    assert not report.breaks
    run = tatara.compile(_around)
    filters, items = warnings.filters, list(warnings.filters)
    shows = warnings.showwarning, warnings._showwarnmsg_impl  # type: ignore[attr-defined]
    for _ in range(3):
        assert torch.equal(run(x, action), _around(x, action))
        assert warnings.filters is filters
        assert warnings.filters == items
        assert (warnings.showwarning, warnings._showwarnmsg_impl) == shows  # type: ignore[attr-defined]


def test_an_error_between_filters_leaves_them_as_they_were() -> None:
    def program(x: Any, n: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = torch.tanh(x)
            if n == 0:
                raise KeyError(n)
            return y.reshape(n)

    x = torch.linspace(-1, 1, 3)
    tatara.reset()
    run = tatara.compile(program)
    filters, items = warnings.filters, list(warnings.filters)
    for n in (3, 0, 3, 2, 3, 0):
        found, expected = [], []
        for function, into in ((run, found), (program, expected)):
            try:
                into.append(function(x, n).tolist())
            except (KeyError, RuntimeError) as error:
                into.append((type(error), str(error)))
        assert found == expected
        assert warnings.filters is filters
        assert warnings.filters == items


def test_what_was_shown_is_shown_again_behind_other_filters() -> None:
    """Python forgets what it has shown when filters change, in later calls too."""
    source = """
def program(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = torch.tanh(x)
    return y * 2

def says():
    warnings.warn("again")
"""
    texts = []
    for compiled in (False, True):
        module = made(source)
        says, run = module.says, tatara.compile(module.program) if compiled else module.program
        before, sys.stderr = sys.stderr, io.StringIO()
        try:
            with fresh():
                warnings.simplefilter("default")
                for _ in range(4):
                    says()
                    says()
                    run(torch.ones(2))
            texts.append(sys.stderr.getvalue())
        finally:
            sys.stderr = before
    assert texts[0] == texts[1]
    assert texts[0].count("again") == 4


def test_numpy_between_filters_warns_as_they_say() -> None:
    np = pytest.importorskip("numpy")

    def program(x: Any, action: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter(action)  # type: ignore[arg-type]
            return np.log(x) * 2

    tatara.reset()
    run = tatara.compile(program)
    rows = []
    for function in (program, run):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for action in ("ignore", "always", "ignore", "error", "ignore"):
                try:
                    rows.append(function(np.array([0.0, 1.0]), action).tolist())
                except RuntimeWarning as error:
                    rows.append(str(error))
            rows.append(len(seen))
    assert rows[:6] == rows[6:]
