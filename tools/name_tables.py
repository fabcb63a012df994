"""Tables of names in src/capture: three or more string literals in a row (a list, a map), or compared one after another, and
files of Python code. Names of callables belong in known_calls.def; what else there is stands in name_tables.toml, each file
with how many it has and what they name. The numbers only get smaller.

usage: name_tables.py     prints what is wrong
"""

from __future__ import annotations

import pathlib
import re
import tomllib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORD = r'"[\w.*]+"(?:sv)?'
# Between two names of a list: braces, commas, and at most one value of a map's.
BETWEEN = r"[\s{]*"
AFTER = r"(?:\s*,\s*[\w:.]+)*\s*\}*\s*,"
LIST = re.compile(rf"{{{BETWEEN}(?:{WORD}{AFTER}{BETWEEN}){{2,}}{WORD}")
COMPARED = rf"[=!]=\s*{WORD}"
CHAIN = re.compile(rf"{COMPARED}(?:\s*(?:\|\||&&)\s*\(?[\w.()>-]+\s*{COMPARED}){{2,}}")
FILE = re.compile(r'"[\w/]*/\w+\.py"')


def allowed(root: pathlib.Path = ROOT) -> dict[str, tuple[int, str]]:
    """Files with tables that are none of callables: how many, and of what."""
    path = root / "tools" / "name_tables.toml"
    if not path.is_file():
        return {}
    return {place: (rule["tables"], rule["of"]) for place, rule in tomllib.loads(path.read_text()).items()}


def tables(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Line and beginning of each table of a source."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    found = [match for rule in (LIST, CHAIN, FILE) for match in rule.finditer(text)]
    for match in sorted(found, key=lambda each: each.start()):
        first = match.start() + len(match.group()) - len(match.group().lstrip("{ \n"))
        yield text.count("\n", 0, first) + 1, " ".join(match.group().split())[:60]


def sources(root: pathlib.Path) -> Iterator[pathlib.Path]:
    for path in sorted((root / "src" / "capture").rglob("*")):
        if path.suffix in (".cpp", ".h", ".inc"):
            yield path


def problems(root: pathlib.Path) -> Iterator[str]:
    rules = allowed(root)
    for path in sources(root):
        name = str(path.relative_to(root))
        found = list(tables(path))
        if len(found) <= rules.get(name, (0, ""))[0]:
            continue
        for line, text in found:
            yield f"{name}:{line}: a table of names: {text}: known_calls.def lists callables"


def stale(root: pathlib.Path) -> Iterator[str]:
    """Files of the list with fewer tables than it says."""
    for name, (count, _) in allowed(root).items():
        now = len(list(tables(root / name)))
        if now < count:
            yield f"tools/name_tables.toml: {name} has {now} tables by now, not {count}"


if __name__ == "__main__":
    for problem in [*problems(ROOT), *stale(ROOT)]:
        print(problem)
