"""What capture makes of small programs: their tapes, graphs and guards, word for word.

tests/golden/capture/NAME.py is a program and its calls, NAME.txt what becomes of them. TATARA_UPDATE_GOLDEN=1 rewrites the
latter, as it does for the golden texts of the C++ tests.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

GOLDEN = Path(__file__).parents[1] / "golden"
PROGRAMS = sorted(path.stem for path in (GOLDEN / "capture").glob("*.py"))


def expect_golden(path: Path, text: str) -> None:
    if os.environ.get("TATARA_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), f"no {path}: TATARA_UPDATE_GOLDEN=1 makes it"
    assert path.read_text() == text


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"golden_{name}", GOLDEN / "capture" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as after an import: what is in it has a home
    spec.loader.exec_module(module)
    return module


LIBRARIES = r"(builtins|torch|typing|functools|contextlib|contextvars|logging|tatara|enum|collections|numpy|warnings|abc|os|namedtuple_UnpackedDualTensor)\b"
OF_LIBRARIES = re.compile(rf"(globals of |class |code and defaults of (function|class) )?{LIBRARIES}.*")
INSIDE_OF_THEM = re.compile(
    r"a dict: '(torch\.|getEffectiveLevel|level|parent).*|an object is of class (torch|logging|abc|os)\b.*|attribute .* of (class|module|function) torch\b.*"
    r"|attribute .* of an object of type (NodeDef|LeafSpec) .*|a closure variable is (function torch\b|\"torch\b|<method ).*"
)


def own_guards(lines: list[str]) -> list[str]:
    """Without those on the code of libraries, which change with their versions: a program that calls into torch.func has
    hundreds of them.
    """
    kept = [line for line in lines if not OF_LIBRARIES.fullmatch(line) and not INSIDE_OF_THEM.fullmatch(line)]
    kept = [
        line
        for line in kept
        if not re.match(rf"globals of golden_\w+: .* is (function|class|module) {LIBRARIES}", line)
    ]
    # How many are in a dict of a library (os.environ, registered types) differs from machine to machine.
    return [re.sub(r"a dict: its \d{2,} items", "a dict: its many items", line) for line in kept]


def without_paths(text: str) -> str:
    return text.replace(f"{GOLDEN / 'capture'}/", "").replace(f"{GOLDEN / 'log'}/", "")


def watched(name: str) -> str:
    """Every entry after the program's calls, in the order in which they were made."""
    module = load(name)
    compiled = tatara.compile(module.program)
    for args, keywords in zip(module.CALLS, getattr(module, "KEYWORDS", [{}] * len(module.CALLS)), strict=True):
        compiled(*args, **keywords)
    report = compiled._report()
    del sys.modules[module.__name__]
    parts = []
    for number, entry in enumerate(report["entries"]):
        parts.append(f"---- entry {number}, offset {entry['offset']}, ends in {entry['end']}\n")
        for reason in ("fallback", "problem"):
            if entry[reason]:
                parts.append(f"{reason}: {entry[reason]}\n")
        parts.append(entry["tape"])
        if entry["graph"] != entry["tape"]:
            parts.append(entry["graph"])
        parts.append("guards {\n" + "".join(f"  {line}\n" for line in own_guards(entry["guards"])) + "}\n")
        if entry["effects"]:
            parts.append("effects {\n" + "".join(f"  {line}\n" for line in entry["effects"].splitlines()) + "}\n")
    for broken in report["breaks"]:
        parts.append(f"break: {broken['reason']} ({Path(broken['file']).name}:{broken['line']})\n")
    parts += [f"recompiled: {reason}\n" for reason in report["recompiles"]]
    return without_paths("".join(parts))


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str) -> None:
    expect_golden(GOLDEN / "capture" / f"{name}.txt", watched(name))


def test_there_are_thirty() -> None:
    assert len(PROGRAMS) >= 30


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_again(name: str) -> None:
    """No addresses, no order of sets: a second time gives the same text."""
    first = watched(name)
    assert " at 0x" not in first
    tatara.reset()
    assert watched(name) == first


def test_log_of_ten_lines(tmp_path: Path) -> None:
    """What TATARA_LOG prints for a function of ten lines that is called with two sizes."""
    program = GOLDEN / "log" / "ten_lines.py"
    options = {
        "TATARA_LOG": "capture,guards,graph,loops",
        "TATARA_NUM_THREADS": "2",
        "TATARA_VECTOR_WIDTH": "256",
        "TATARA_CACHE_DIR": str(tmp_path / "cache"),
    }
    made = subprocess.run(
        [sys.executable, program], env={**os.environ, **options}, capture_output=True, text=True, check=True
    )
    expect_golden(program.with_suffix(".txt"), without_paths(made.stderr))


def test_nothing_is_logged_unless_asked(capfd: Any) -> None:
    tatara.compile(lambda x: x * 2)(torch.ones(4))
    assert capfd.readouterr().err == ""


def test_log_can_be_switched_on_and_off(capfd: Any) -> None:
    compiled = tatara.compile(lambda x: x * 2)
    with tatara.config.patch(log="guards"):
        compiled(torch.ones(4))
    logged = capfd.readouterr().err
    assert "[tatara guards]   x: torch.Tensor float32[4]" in logged
    assert "[tatara capture]" not in logged
    compiled(torch.ones(4, dtype=torch.float64))
    assert capfd.readouterr().err == ""


def test_dump_has_tape_and_guards(tmp_path: Path) -> None:
    compiled = tatara.compile(lambda x: x * 2)
    with tatara.config.patch(dump=str(tmp_path)):
        compiled(torch.ones(4))
    (folder,) = (path for path in tmp_path.iterdir() if "-entry-" in path.name)
    (entry,) = compiled._report()["entries"]
    assert (folder / "tape.txt").read_text() == entry["tape"]
    assert (folder / "graph.txt").read_text() == entry["graph"]
    assert (folder / "guards.txt").read_text().splitlines() == entry["guards"]
