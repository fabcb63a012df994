"""`make lint`: every check of form, each by name.

usage: lint.py [--fix] [--tidy] [check ...]     checks: ruff mypy clang-format layout sizes docs clang-tidy
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import docs_check
import name_tables
import rooms
import sizes
import unity

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The order of dependence: a folder of src/ includes only itself and folders before it.
ORDER = [
    "support",
    "symbolic",
    "ir",
    "loops",
    "ops",
    "transforms",
    "schedule",
    "codegen",
    "runtime",
    "compiler",
    "capture",
    "bindings",
]
# Whatever else lies in the repository is what a run has left behind.
FOLDERS = {".ci", "bench", "cmake", "docs", "examples", "include", "python", "src", "tests", "tools"}
MAX_LINES = 1000
# The rival's compiler has no place in the product. Benchmarks compare with torch.compile through its public name only.
FORBIDDEN = re.compile(r"\b(torch\._dynamo|torch\._functorch|torch\._inductor|torch\.fx|import triton|from triton)\b")
LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX)\b")
# Locks that a forked child would find taken: a mutex outside of ForkSection, and that of a static variable made at run time.
PLAIN_LOCK = re.compile(r"\bstd::(recursive_|shared_)?mutex \w+;(?! +//)")
STATIC_LOCK = re.compile(r"^\s+static (?!constexpr|constinit)[^()]*= (\[.*\] \{|new )")
# An error that is dropped without a look at its class may be a KeyboardInterrupt: py_errors.h has the ways to do it.
DROPPED_ERROR = re.compile(
    r"\b_?PyErr_(Clear|Fetch|GetRaisedException)\b|\b_?PyErr_(Restore|SetRaisedException)\((.*, *)?(nullptr|NULL)\b"
)
DROPS_ERRORS = {
    "src/capture/vm/interrupts.cpp": "the helper",
    "src/capture/python/py.h": "ErrorAside",
    "src/capture/vm/vm_helpers.cpp": "the VM",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"(?:src/)?([a-z_]+)/', re.MULTILINE)


def files(*suffixes: str, under: tuple[str, ...] = ("",)) -> list[pathlib.Path]:
    """Files of the repository (tracked, or new and not ignored) with one of the suffixes."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        ROOT / name
        for name in sorted(set(listed.stdout.splitlines()))
        if name.endswith(suffixes) and name.startswith(under) and (ROOT / name).exists()
    ]


def tool(name: str) -> str:
    """The tool of the environment that runs this script."""
    local = pathlib.Path(sys.executable).parent / name
    return str(local) if local.exists() else name


def run(command: list[str]) -> list[str]:
    """Runs a tool; its output is the list of problems when it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or [f"{command[0]} failed"]


def check_ruff(fix: bool) -> list[str]:
    """Style and layout of the Python code."""
    if fix:
        run([tool("ruff"), "check", "--quiet", "--fix", "."])
        run([tool("ruff"), "format", "--quiet", "."])
    style = run([tool("ruff"), "check", "--quiet", "--output-format=concise", "."])
    layout = run([tool("ruff"), "format", "--quiet", "--check", "."])
    return style + [f"{line.split('--> ')[1]} not formatted: run `make format`" for line in layout if "--> " in line]


def check_mypy(_fix: bool) -> list[str]:
    """Types of the package, strict."""
    if not (ROOT / "python" / "tatara").exists():
        return []
    return run([tool("mypy"), "--no-error-summary"])


def check_clang_format(fix: bool) -> list[str]:
    """Layout of the C++ code."""
    sources = [str(path) for path in files(".cpp", ".h", under=("src/", "include/", "tests/unit/", "tools/"))]
    if fix:
        run([tool("clang-format"), "-i", *sources])
    problems = run([tool("clang-format"), "--dry-run", "--Werror", *sources])
    first: dict[str, str] = {}
    for line in problems:
        if "error:" in line:
            first.setdefault(line.split(":")[0], line.split(" error:")[0])
    return [f"{pathlib.Path(place).relative_to(ROOT)} not formatted: run `make format`" for place in first.values()]


def layout_problems() -> Iterator[str]:
    """Folders, include order, file lengths, forbidden imports, words left over."""
    for folder in sorted({path.relative_to(ROOT).parts[0] for path in files("") if path.parent != ROOT} - FOLDERS):
        yield f"{folder}/: not a folder of the project"
    for path in files(".cpp", ".h", ".def", ".inc", under=("src/",)):
        name = path.relative_to(ROOT)
        folder = name.parts[1]
        text = path.read_text()
        if folder not in ORDER:
            yield f"{name}: the folder is not in the order of dependence"
            continue
        for match in INCLUDE.finditer(text):
            other = match.group(1)
            if other in ORDER and ORDER.index(other) > ORDER.index(folder):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{name}:{line}: {folder} may not include {other}, which comes after it"
    for path in files(
        ".cpp", ".h", ".def", ".inc", ".py", ".pyi", under=("src/", "include/", "python/", "tools/", "tests/", "bench/")
    ):
        name = path.relative_to(ROOT)
        lines = path.read_text().splitlines()
        if len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines, more than {MAX_LINES}"
        if name == pathlib.Path("tools/lint.py"):
            continue
        for number, line in enumerate(lines, 1):
            if LEFT_OVER.search(line):
                yield f"{name}:{number}: left over: {line.strip()}"
            if name.parts[0] == "src" and PLAIN_LOCK.search(line):
                yield f"{name}:{number}: a lock that a fork may leave taken: ForkSafeMutex, or a comment why not"
            if name.parts[0] == "src" and name.parts[1] != "capture" and STATIC_LOCK.search(line):
                yield f"{name}:{number}: a static variable that a fork may leave half-made: support/made_once.h"
            if name.parts[0] == "src" and str(name) not in DROPS_ERRORS and (drops := DROPPED_ERROR.search(line)):
                yield f"{name}:{number}: {drops.group()}: may lose a KeyboardInterrupt: forget_error (capture/python/py_errors.h)"
            if name.parts[0] in ("src", "include", "python") and FORBIDDEN.search(line):
                yield f"{name}:{number}: uses the rival's compiler: {line.strip()}"


def check_layout(_fix: bool) -> list[str]:
    """What the layout of the house demands."""
    return [
        *layout_problems(),
        *rooms.problems(ROOT),
        *name_tables.problems(ROOT),
        *name_tables.stale(ROOT),
        *unity.problems(ROOT),
    ]


def check_sizes(_fix: bool) -> list[str]:
    """Classes, functions and files of the core that are too large."""
    found, rules = sizes.measure(ROOT), sizes.table()
    print(sizes.summary(found, rules))
    return list(sizes.problems(found, rules))


def check_docs(_fix: bool) -> list[str]:
    """Pages and sentences that are too long, paths of somebody's machine."""
    return list(docs_check.problems(ROOT))


def check_clang_tidy(_fix: bool) -> list[str]:
    """The allow-list of .clang-tidy over the core; needs a build for its list of compile commands."""
    databases = sorted((ROOT / "build").glob("*/compile_commands.json"), key=lambda path: path.stat().st_mtime)
    if not databases:
        return ["no compile_commands.json: run make build first"]
    sources = files(".cpp", under=("src/",))

    def one(path: pathlib.Path) -> list[str]:
        return [
            line
            for line in run([tool("clang-tidy"), "--quiet", "-p", str(databases[-1].parent), str(path)])
            if "error:" in line
        ]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [problem for problems in pool.map(one, sources) for problem in problems]


CHECKS: dict[str, Callable[[bool], list[str]]] = {
    "ruff": check_ruff,
    "mypy": check_mypy,
    "clang-format": check_clang_format,
    "layout": check_layout,
    "sizes": check_sizes,
    "docs": check_docs,
    "clang-tidy": check_clang_tidy,
}


def main() -> int:
    """Runs the chosen checks (by default all but clang-tidy, which takes minutes) and prints what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="*")
    parser.add_argument("--fix", action="store_true", help="rewrite what can be rewritten")
    parser.add_argument("--tidy", action="store_true", help="run clang-tidy too")
    arguments = parser.parse_args()
    unknown = set(arguments.checks) - set(CHECKS)
    if unknown:
        parser.error(f"unknown checks: {', '.join(sorted(unknown))}")
    names = arguments.checks or [name for name in CHECKS if name != "clang-tidy" or arguments.tidy]
    failed = 0
    for name in names:
        problems = CHECKS[name](arguments.fix)
        print(f"{name}: {'clean' if not problems else f'{len(problems)} problems'}", flush=True)
        for problem in problems[:200]:
            print(f"  {problem}")
        failed += bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
