"""tools/lint.py finds what it is there to find."""

import importlib.util
import pathlib
import subprocess
import types

import pytest

LINT = pathlib.Path(__file__).parents[2] / "tools" / "lint.py"


@pytest.fixture
def lint(tmp_path: pathlib.Path) -> types.ModuleType:
    """The script as a module, with an empty repository in place of this one."""
    spec = importlib.util.spec_from_file_location("lint_under_test", LINT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    module.ROOT = tmp_path
    return module


def plant(root: pathlib.Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "  PyErr_Clear();",
        "  if (!value) return PyErr_Clear();",
        "  if (PyErr_Occurred() != nullptr) PyErr_Clear();",
        "  PyErr_Fetch(&type, &value, &traceback);",
        "  PyObject* error = PyErr_GetRaisedException();",
        "  _PyErr_Clear(tstate);",
        "  PyErr_Restore(nullptr, nullptr, nullptr);",
        "  PyErr_SetRaisedException(NULL);",
    ],
)
@pytest.mark.parametrize(
    "place", ["capture/planted.cpp", "capture/planted.h", "capture/vm_ops_planted.inc", "bindings/planted.cpp"]
)
def test_an_error_dropped_without_a_look(lint: types.ModuleType, place: str, line: str) -> None:
    plant(lint.ROOT, f"src/{place}", f"void f() {{\n{line}\n}}\n")
    problems = list(lint.layout_problems())
    assert len(problems) == 1
    assert problems[0].startswith(f"src/{place}:2: ")
    assert "may lose a KeyboardInterrupt" in problems[0]


def test_the_helper_may_drop_errors(lint: types.ModuleType) -> None:
    for name in lint.DROPS_ERRORS:
        assert (LINT.parents[1] / name).exists()
        plant(lint.ROOT, name, "void f() {\n  PyErr_Clear();\n}\n")
    plant(lint.ROOT, "src/capture/planted.cpp", "void f() { forget_error(); }\n")
    assert list(lint.layout_problems()) == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("src/ir/planted.cpp", '#include "capture/py.h"\n', "ir may not include capture"),
        ("src/runtime/planted.cpp", "std::mutex lock;\n", "a lock that a fork may leave taken"),
        (
            "src/runtime/planted.cpp",
            "  static auto* made = [] {\n",
            "a static variable that a fork may leave half-made",
        ),
        ("src/runtime/planted.cpp", "// TO" + "DO: later\n", "left over"),
        ("python/tatara/planted.py", "import torch._dynamo\n", "the rival's compiler"),
        ("python/tatara/planted.py", "x = 1\n" * 1001, "more than 1000"),
        ("tape/planted.txt", "x\n", "not a folder of the project"),
    ],
)
def test_other_planted_problems(lint: types.ModuleType, name: str, text: str, found: str) -> None:
    plant(lint.ROOT, name, text)
    problems = list(lint.layout_problems())
    assert len(problems) == 1
    assert found in problems[0]
