"""The commands of the pages: what is one, and whether it works. Short ones are run, of long ones the parts are looked for."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import forked

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import docs_check  # noqa: E402

# First words that make a piece of code a command. All but the ones that `check` knows fail there.
PROGRAMS = set(
    "apt bash cat ccache cd clang clang-format cmake compute-sanitizer conda cp ctest curl docker export gdb git grep "
    "htop ldd ls lldb make mkdir mypy ninja nm nsys objdump perf pip pytest python python3 rm ruff sh source sudo tatara "
    "tatara-opt tatara_unit_tests taskset time uv valgrind wget".split()
)
SETTING = re.compile(r"TATARA_[A-Z0-9_]+=\S+")
# Words that stand for what the reader has.
PLACEHOLDERS = {
    "FILE:FUNCTION": "program.py:report_of",
    "DIRECTORY": "dump",
    "<python>": "py%d%d" % sys.version_info[:2],
}
# These make tests write what they compare with, so their commands are run without them.
WRITING = {"TATARA_UPDATE", "TATARA_UPDATE_GOLDEN"}
# What `program.py` of the pages is, and the program that is run under each setting.
PROGRAM = """
import numpy

import tatara


def fn(x):
    return x.sin() + 1


@tatara.compile
def small(x):
    return numpy.sin(x) + x * 2


def report_of():
    return small(numpy.ones(8))


if __name__ == "__main__":
    x = numpy.ones(16)
    small(x)
    assert (small(x) == numpy.sin(x) + x * 2).all()
    assert tatara.stats()["graphs"] == 1
"""


def pages() -> list[pathlib.Path]:
    """All pages without the dated notes, whose commands were right on their day."""
    return [path for path in docs_check.pages(ROOT) if "decisions" not in path.parts]


def pieces(text: str) -> Iterator[str]:
    """Code of a page: in backticks, lines of indented blocks, lines of blocks of a shell."""
    yield from re.findall(r"`([^`\n]+)`", docs_check.without_code(text))
    for block in re.findall(r"^ *```(?:sh|bash|console)?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        yield from block.splitlines()
    yield from re.findall(r"^(?: {4}|\t)(\S.*)$", docs_check.without_code(text), re.MULTILINE)


def is_command(piece: str) -> bool:
    """Whether one would type it into a shell: a setting, an option, a program, or a file with arguments."""
    words = piece.removeprefix("$ ").split()
    if not words:
        return False
    first = words[0]
    file = "/" in first and (ROOT / first).is_file()
    return (
        bool(SETTING.fullmatch(first))
        or bool(re.match(r"--[a-z]", first))
        or (first in PROGRAMS and len(words) > 1)
        or first.startswith((".venv/", ".ci/", "build/"))
        or (file and (len(words) > 1 or os.access(ROOT / first, os.X_OK)))
        or (first.endswith((".py", ".sh")) and len(words) > 1 and words[1].startswith("-"))
    )


def commands() -> dict[str, list[str]]:
    """Each command of the pages, and the pages that have it."""
    found: dict[str, list[str]] = {}
    for path in pages():
        for piece in pieces(path.read_text()):
            command = piece.partition("  #")[0].strip().removeprefix("$ ")
            if is_command(command):
                found.setdefault(command, []).append(path.relative_to(ROOT).as_posix())
    return found


def expressions() -> dict[str, list[str]]:
    """Python expressions about the package in the pages' prose, and the pages that have them."""
    found: dict[str, list[str]] = {}
    for path in pages():
        for piece in re.findall(r"`(tatara\.[^`\n]+)`", docs_check.without_code(path.read_text())):
            found.setdefault(piece, []).append(path.relative_to(ROOT).as_posix())
    return found


def run(words: list[str], place: pathlib.Path, settings: dict[str, str] | None = None) -> str | None:
    """The end of what a command says when it fails."""
    env = {**os.environ, **(settings or {})}
    if words[0] == sys.executable:
        done = forked.run(words[1:], env=env, cwd=place)
    else:
        done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        return f"{shlex.join(words)}: {done.returncode}: {(done.stderr or done.stdout)[-600:]}"
    # An option that is not understood is a warning only.
    return f"{shlex.join(words)}: {done.stderr[-600:]}" if "tatara: " in done.stderr else None


def built(name: str) -> str | None:
    """A program of the newest build."""
    found = sorted((ROOT / "build").glob(f"py*/{name}"), key=lambda path: path.stat().st_mtime)
    return str(found[-1]) if found else None


def check_options(script: list[str], arguments: list[str], where: pathlib.Path) -> str | None:
    """Whether a program of ours takes the arguments: its parser reads them, and its help names every option."""
    done = forked.run([*script, *arguments, "--help"], cwd=where)
    text = done.stdout + done.stderr
    if done.returncode:
        return f"{shlex.join([*script, *arguments])}: {text[-600:]}"
    options = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]
    named = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))
    missing = [option for option in options if option not in named]
    return f"{shlex.join(script)} has no {', '.join(missing)}" if missing else None


def check_tests(words: list[str], where: pathlib.Path) -> str | None:
    """Pytest's arguments: files and folders are there; a command that names tests is collected."""
    missing = [word for word in words if word.startswith("tests/") and not (where / word.partition("::")[0]).exists()]
    if missing:
        return f"no tests {', '.join(missing)}"
    if "-k" not in words and not any("::" in word for word in words):
        return None
    return run([sys.executable, "-m", "pytest", *words, "--collect-only"], where)


def check_python(words: list[str], where: pathlib.Path) -> str | None:
    """A call of Python with a module or a file: the arguments are read. A file without arguments has only to be there."""
    if words[:2] == ["-m", "pytest"]:
        return check_tests(words[2:], where)
    if words[:2] == ["-m", "tatara"]:
        return check_tatara(words[2:], where)
    if words[:1] == ["-m"]:
        there = (where / words[1] / "__main__.py").is_file()
        return check_options(words[:2], words[2:], where) if there else f"no module {words[1]}"
    if not words or not (where / words[0]).is_file():
        return f"no program {' '.join(words)}"
    if words[0] == "tools/lint.py" and "--fix" not in words:
        done = subprocess.run([sys.executable, *words], cwd=where, capture_output=True, text=True)
        # What it finds is for `make lint`; here it has only to run each check.
        silent = [word for word in words[1:] if f"{word}: " not in done.stdout]
        return f"tools/lint.py: {done.stderr}, nothing of {silent}" if done.returncode > 1 or silent else None
    return check_options(words[:1], words[1:], where) if any(word.startswith("-") for word in words) else None


def check_make(words: list[str]) -> str | None:
    """`make -n` knows the target, and the programs that it would run take what it would give them."""
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        return f"make {shlex.join(words)}: {done.stderr[-600:]}"
    given = next((word for word in words if word.startswith("ARGS=")), "ARGS=").removeprefix("ARGS=")
    if given and given not in done.stdout:
        return f"make {words[0]} takes no ARGS"
    for line in done.stdout.splitlines():
        call = re.match(r"(?:PYTHONPATH=(\S+) )?.*?python ((?:-m \w+|\S+\.py)\b[^;|&\\]*)", line.strip())
        if call and call.group(2) != "tools/lint.py":
            where = ROOT / (call.group(1) or ".")
            if problem := check_python(shlex.split(call.group(2)), where):
                return f"make {shlex.join(words)}: {problem}"
    return None


def check_tatara(words: list[str], place: pathlib.Path) -> str | None:
    """Commands of the package are run; the demo, which takes a minute, has only to know its options."""
    if words[:1] == ["demo"]:
        return check_options(["-m", "tatara"], words, place)
    return run([sys.executable, "-m", "tatara", *words], place)


def check_opt(words: list[str], place: pathlib.Path) -> str | None:
    """tatara-opt is run on the dump of a program."""
    tool = built("tatara-opt")
    if tool is None:
        return "make build makes tatara-opt"
    settings = {"TATARA_DUMP": str(place / "dump")}
    if not (place / "pass-0.graph").exists():
        if problem := run([sys.executable, "program.py"], place, settings):
            return problem
        (dumped,) = (place / "dump").rglob("pass-0.graph")
        (place / "pass-0.graph").write_text(dumped.read_text())
    return run([tool, *words], place)


def check_setting(settings: dict[str, str], place: pathlib.Path) -> str | None:
    """A program that compiles runs with it."""
    unknown = set(settings) - docs_check.known_variables(ROOT)
    if unknown:
        return f"nothing reads {', '.join(sorted(unknown))}"
    settings = {name: value for name, value in settings.items() if name not in WRITING}
    return run([sys.executable, "program.py"], place, settings) if settings else None


def check(command: str, place: pathlib.Path) -> str | None:
    """What is wrong with a command. `place` is an empty folder."""
    (place / "program.py").write_text(PROGRAM)
    (place / "dump").mkdir(exist_ok=True)
    for word, meant in PLACEHOLDERS.items():
        command = command.replace(word, meant)
    words = shlex.split(command)
    settings: dict[str, str] = {}
    while words and SETTING.fullmatch(words[0]):
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    if settings and (problem := check_setting(settings, place)):
        return problem
    if not words:
        return None if settings else "nothing"
    program, *rest = words
    if program.startswith("--"):
        return None if {program} <= docs_check.known_flags(ROOT) else f"nothing takes {program}"
    if program == "make":
        return check_make(rest)
    if program == "tatara":
        return check_tatara(rest, place)
    if program == "tatara-opt":
        return check_opt(rest, place)
    if program in ("python", ".venv/bin/python"):
        return check_python(rest, ROOT)
    if program.endswith("tatara_unit_tests"):
        tool = built("tests/unit/tatara_unit_tests")
        return run([tool, *rest], place) if tool else "make build makes the unit tests"
    if program.startswith("build/") and not rest:
        return None if (ROOT / program).is_file() else f"make build makes no {program}"
    if program == "pip":
        return check_pip(rest)
    if program.endswith(".py"):
        return check_python(words, ROOT)
    if program == ".ci/run":
        return check_ci()
    return f"no rule says how to check {command!r}"


def check_pip(words: list[str]) -> str | None:
    """An installation takes minutes: pip has the command, and the folder is a package."""
    if words[:1] != ["install"] or any(word.startswith("-") for word in words):
        return f"no rule says how to check pip {shlex.join(words)}"
    missing = [word for word in words[1:] if not (ROOT / word / "pyproject.toml").is_file()]
    return f"no package in {missing}" if missing or not words[1:] else None


def check_ci() -> str | None:
    """Each line of it that is a command."""
    if not os.access(ROOT / ".ci" / "run", os.X_OK):
        return ".ci/run cannot be run"
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")]
    return next((problem for line in lines if (problem := check_make(line.split()[1:]))), None)


def expression_problem(text: str, names: dict[str, object]) -> str | None:
    """What is wrong with an expression about the package: it is evaluated, or, with gaps, its names are looked up."""
    try:
        tree = ast.parse(text, mode="eval").body
        gaps = any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(tree))
    except SyntaxError:
        gaps = True
    if gaps:
        text = re.match(r"tatara(?:\.[a-z_]\w*)+", text)[0]  # type: ignore[index]
    try:
        eval(text, names)
    except AttributeError as error:
        sources = "".join(path.read_text() for path in (ROOT / "python" / "tatara").rglob("*.py"))
        return None if f'"{text}"' in sources else str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
