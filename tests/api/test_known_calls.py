"""The table of known callables (src/capture/**/known_calls.def) names what is there, and is the only one of its kind."""

from __future__ import annotations

import importlib
import operator
import pathlib
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import tatara  # noqa: E402
from tatara import _core  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import name_tables  # noqa: E402

(TABLE,) = (ROOT / "src" / "capture").rglob("known_calls.def")
VERSIONS = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
ROW = tuple[str, str, str, str, bool, bool]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text.split("+")[0])[:2]]


def _applies(condition: str) -> bool:
    """Whether a row of these versions is to be there: "torch>=2.9"."""
    if not condition:
        return True
    name, sign, version = re.fullmatch(r"(\w+)(>=|<)([\d.]+)", condition).groups()  # type: ignore[union-attr]
    compare = operator.ge if sign == ">=" else operator.lt
    return compare(_numbers(VERSIONS[name]), _numbers(version))


def _load() -> list[ROW]:
    """Imports what the rows speak of: of each the longest beginning that is a module."""
    for kind, place, *_ in _core.known_calls():
        path = place.strip("/").removesuffix(".py").replace("/", ".") if kind == "python" else place
        parts = path.removesuffix(".__init__").rstrip("*").split(".")
        for end in range(1, len(parts) + 1):
            try:
                importlib.import_module(".".join(parts[:end]))
            except ImportError:
                break
    return _core.known_calls()


ROWS = _load()


def test_each_row_names_something() -> None:
    assert len(ROWS) > 500
    wrong = [row for row in ROWS if row[5] != _applies(row[3])]
    assert wrong == []


def test_a_row_that_names_nothing_is_logged() -> None:
    program = (
        "import torch, numpy, operator\n"
        "del operator.__dict__['itemgetter']\n"
        "import tatara\n"
        "tatara.compile(lambda x: x + 1)(torch.ones(2))\n"
    )
    environment = {"TATARA_LOG": "capture", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    lines = [line for line in done.stderr.splitlines() if "known_calls.def" in line]
    assert len(lines) == 1 and "operator.itemgetter" in lines[0], done.stderr


class _Calls:
    def __init__(self) -> None:
        self.items: list[Any] = []

    def method(self, x: Any) -> Any:
        self.items.append(x)
        return x


def _programs() -> dict[str, Callable[[Any], Any]]:
    def builtins(x: Any) -> Any:
        return x * len([1, 2]) + max(3, 4) + abs(-1) + isinstance(x, torch.Tensor)

    def methods(x: Any) -> Any:
        calls = _Calls()
        y = calls.method(torch.relu(x)).sum(0)
        return y + len(calls.items) + {"a": 1}.get("a", 2) + int("3")

    def spread(x: Any) -> Any:
        return torch.add(*[x, x]) + dict(**{"a": 1})["a"]

    def module(x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (2,)).to(torch.float64)

    return {"builtins": builtins, "methods": methods, "spread": spread, "module": module}


@pytest.mark.parametrize("name", ["builtins", "methods", "spread", "module"])
def test_a_call_looks_its_callable_up_once(name: str) -> None:
    function = _programs()[name]
    compiled = tatara.compile(function)
    before = _core.call_counts()
    assert torch.equal(compiled(torch.ones(2, 2)), function(torch.ones(2, 2)))
    calls, look_ups = (now - then for now, then in zip(_core.call_counts(), before, strict=True))
    assert calls >= 2
    assert look_ups == calls


def test_no_other_table_of_names() -> None:
    assert list(name_tables.problems(ROOT)) == []


PLANTED = [
    'static const Names names = {"append", "extend", "insert"};',
    'constexpr const char* kNames[] = {"print", "open", "exec"};',
    'if (name == "print" || name == "open" || name == "exec") return true;',
    'std::unordered_map<std::string, int> m = {{"sum", 1}, {"mean", 2}, {"prod", 3}};',
    'for (const char* each : {"print", "open",\n                         "exec"}) look(each);',
    'return name.ends_with("/torch/amp/grad_scaler.py");',
]


@pytest.mark.parametrize("text", PLANTED)
def test_a_planted_table_is_found(text: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "src" / "capture" / "trace"
    folder.mkdir(parents=True)
    (folder / "planted.cpp").write_text(f"void f() {{\n  {text}\n}}\n")
    (problem,) = name_tables.problems(tmp_path)
    assert problem.startswith("src/capture/trace/planted.cpp:2: ")


def test_the_list_of_other_tables_only_gets_shorter() -> None:
    for place in name_tables.allowed():
        assert (ROOT / place).is_file(), place
    stale = list(name_tables.stale(ROOT))
    assert stale == []
