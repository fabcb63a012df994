"""Every command of the pages works: short ones are run, of long ones targets, programs and options are looked for."""

from __future__ import annotations

import pathlib
from typing import Any

import docs_commands
import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

COMMANDS = docs_commands.commands()


@pytest.fixture
def names() -> dict[str, Any]:
    """What expressions of the pages take for granted."""

    def fn(x: Any) -> Any:
        return x.sin() + 1

    with torch.no_grad():
        x = torch.ones(8)
        return {
            "tatara": tatara,
            "fn": fn,
            "x": x,
            "b": x,
            "centre": lambda x, b: fn(x + b),
            "step": lambda: fn(x),
            "model": fn,
        }


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_command_works(command: str, tmp_path: pathlib.Path) -> None:
    assert docs_commands.check(command, tmp_path) is None, COMMANDS[command]


def test_the_expressions_work(names: dict[str, Any]) -> None:
    found = docs_commands.expressions()
    assert len(found) > 8
    wrong = {text: docs_commands.expression_problem(text, names) for text in found}
    assert {text: (problem, found[text]) for text, problem in wrong.items() if problem} == {}


def test_many_commands_are_found() -> None:
    expected = {
        "make demo",
        "tatara env",
        "tatara-opt --list",
        "TATARA_LOG=llvm,passes",
        "pip install .",
        ".ci/run",
        "bench/train.py --rounds 15",
        "--part 0/4",
        'make zoo ARGS="--classes =BertForMaskedLM --out build/one.jsonl"',
    }
    assert expected <= set(COMMANDS)


@pytest.mark.parametrize(
    "command",
    [
        "make nothing",
        "make demo ARGS=--rounds",
        'make opinfo ARGS="--none 3"',
        'make opinfo ARGS="-j two"',
        "tatara nothing",
        "tatara env --none",
        "tatara demo --none",
        "tatara explain program.py:none",
        "tatara-opt --pass none pass-0.graph",
        "tatara-opt --none",
        "tatara demo --rounds two",
        "TATARA_LOG=nothing",
        "TATARA_OPT_LEVEL=9",
        "TATARA_NONE=1",
        "TATARA_UPDATE_NONE=1 .venv/bin/python -m pytest tests/api/test_rooms.py",
        "python tools/sweeps/none.py -j 2",
        "python tools/sweeps/vmap.py --none",
        ".venv/bin/python tools/lint.py nothing",
        ".venv/bin/python -m pytest -q tests/api/test_rooms.py -k no_such_test",
        "python -m nothing",
        ".venv/bin/python -m pytest tests/api/test_none.py",
        "bench/train.py --none 15",
        "build/py311/tests/unit/tatara_unit_tests --none",
        "pip install none",
        "--no-such-option 3",
        "gdb --args python",
        "build/py311/none",
    ],
)
def test_a_wrong_command_is_found(command: str, tmp_path: pathlib.Path) -> None:
    assert docs_commands.is_command(command)
    assert docs_commands.check(command, tmp_path)


@pytest.mark.parametrize(
    "text", ["tatara.none", "tatara.stats()['none']", "tatara.compile(fn, none=1)", "tatara.config.none"]
)
def test_a_wrong_expression_is_found(text: str, names: dict[str, Any]) -> None:
    assert docs_commands.expression_problem(text, names)


@pytest.mark.parametrize(
    "text", ["x + 1", "graph(%0: f32[64])", "symbol s0 [2, 100] = 6", "tools/sweeps/sweep.py", "make_fx", "sort"]
)
def test_what_is_no_command_is_not_found(text: str) -> None:
    assert not docs_commands.is_command(text)
