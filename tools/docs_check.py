"""The pages under docs/: how long they and their sentences are, and that what they name is there.

usage: docs_check.py [PAGE ...]     prints lines, words and mean sentence of each page
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_MEAN = 18.0  # words a sentence, as a mean over a page
# Lines that a page may have. Pages that are a table made by a program have no limit, and so have notes of the past.
LIMITS = {"docs/architecture.md": 120, "docs/performance.md": 120, "docs/internals/": 150}
# Notes that are kept as they were written: the files that they name may have moved since.
DATED = "docs/decisions/"
# Files that a program writes, and that are not in the repository.
WRITTEN = {"graph.txt", "lowered.txt", "schedule.txt", "tape.txt", "guards.txt", "report.html", "NAME.py", "NAME.txt"}
# A place on the machine of whoever wrote the page.
MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:work|tmp|home|root|mnt|Users|usr|var)(?:/[\w.+-]+)*/?")
SUFFIXES = "cpp|cu|def|h|html|inc|jinja|json|md|pat|py|pyi|sh|toml|txt|yaml|yml"
FILE = re.compile(rf"(?:[\w.-]+/)*[\w.-]+\.(?:{SUFFIXES})")
FOLDER = re.compile(r"(?:[\w.-]+/)+")
COMMAND = re.compile(r"\bmake ((?:[a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?: [a-z][a-z0-9]*(?:-[a-z0-9]+)*)*)")
SCRIPT = re.compile(r"(?:\bmake [a-z]|\b[\w./-]+\.py\b|\btatara_unit_tests\b|\btatara [a-z]+\b)[^\n]*")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
SUBCOMMAND = re.compile(r"(?<![\w./])tatara ([a-z]+)\b")
VARIABLE = re.compile(r"\bTATARA_[A-Z0-9_]+\b")


def pages(root: pathlib.Path) -> list[pathlib.Path]:
    """All pages: those under docs/, and those at the root."""
    return [*sorted((root / "docs").rglob("*.md")), *sorted(root.glob("*.md"))]


def without_code(text: str) -> str:
    """The page without code blocks."""
    return re.sub(r"^ *(```|~~~).*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)


def paragraphs(text: str) -> Iterator[str]:
    """The prose of a page: no code blocks, headings, tables, or items of a list that are a command alone."""
    paragraph: list[str] = []
    prose_before = False
    for line in [*without_code(text).splitlines(), ""]:
        stripped = line.strip()
        item = re.match(r"(?:[-*+]|\d+\.) +(?=\S)", stripped)
        code = line.startswith("    ") and not prose_before
        if not stripped or stripped.startswith(("#", "|")) or item or code:
            if paragraph:
                yield " ".join(paragraph)
            paragraph = []
        if code or stripped.startswith(("#", "|")):
            continue
        prose_before = bool(stripped)
        text_of = stripped[item.end() :] if item else stripped
        if stripped and not re.fullmatch(r"`[^`]*`[.;,]?", text_of):
            paragraph.append(text_of)


def sentences(text: str) -> list[str]:
    """The sentences of a page. A colon or a semicolon ends none."""
    found: list[str] = []
    for paragraph in paragraphs(text):
        plain = re.sub(r"\]\([^)]*\)", "]", paragraph)  # where a link leads
        plain = re.sub(r"`([^`]*)`", lambda code: "C" + re.sub(r"\s+|[.?!]", "_", code.group(1)), plain)
        parts = re.split(r"(?<=[.!?])[\"')*\]]*\s+(?=[^a-z])", plain)
        found += [part for part in parts if re.search(r"\w", part)]
    return found


def mean_sentence(text: str) -> float:
    """Words a sentence; a piece of code in backticks is one word."""
    lengths = [len(re.findall(r"\S*\w\S*", sentence)) for sentence in sentences(text)]
    return sum(lengths) / len(lengths) if lengths else 0.0


def limit_of(name: str) -> int | None:
    """The lines that a page may have."""
    for prefix, limit in LIMITS.items():
        if name == prefix or (prefix.endswith("/") and name.startswith(prefix)):
            return limit
    return None


def problems(root: pathlib.Path) -> Iterator[str]:
    """Pages or sentences that are too long, and paths of somebody's machine."""
    for path in pages(root):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        lines = text.splitlines()
        limit = limit_of(name)
        if limit is not None and len(lines) > limit:
            yield f"{name}: {len(lines)} lines, more than {limit}"
        mean = mean_sentence(text)
        if mean >= MAX_MEAN:
            yield f"{name}: {mean:.1f} words a sentence, not under {MAX_MEAN:.0f}"
        for number, line in enumerate(lines, 1):
            if place := MACHINE_PATH.search(line):
                yield f"{name}:{number}: a path of somebody's machine: {place.group()}"


def tracked(root: pathlib.Path) -> set[str]:
    """Files of the repository: tracked, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return {name for name in listed.stdout.splitlines() if (root / name).exists()}


def known_variables(root: pathlib.Path) -> set[str]:
    """Variables of the table of options, and those that tests, benchmarks and the build read."""
    table = (root / "docs" / "options.md").read_text()
    found = set(re.findall(r"^\| `\w+` \| `(TATARA_\w+)` \|", table, re.MULTILINE))
    for name in tracked(root):
        if name == "Makefile" or name.endswith((".cmake", "CMakeLists.txt", ".sh")):
            found |= set(VARIABLE.findall((root / name).read_text()))
        elif name.startswith(("tests/", "bench/", "tools/")) and name.endswith((".py", ".cpp", ".h")):
            # Its name alone in quotes, as programs ask for it.
            found |= set(re.findall(r"\"(TATARA_[A-Z0-9_]+)\"", (root / name).read_text()))
    return found


def known_flags(root: pathlib.Path) -> set[str]:
    """What programs of the repository take on their command lines."""
    found: set[str] = set()
    for name in tracked(root):
        if name.endswith((".py", "main.cpp")) and name.startswith(("tests/", "bench/", "tools/", "python/")):
            found |= set(re.findall(r"\"(--[a-z][a-z0-9-]*)=?\"", (root / name).read_text()))
    return found


@dataclasses.dataclass(frozen=True)
class Commands:
    """What can be called: targets of make, subcommands of tatara, options of programs."""

    targets: set[str]
    subcommands: set[str]
    flags: set[str]

    @staticmethod
    def of(root: pathlib.Path) -> Commands:
        """Those of a repository."""
        targets = re.findall(r"^([a-z][a-z0-9-]*):", (root / "Makefile").read_text(), re.MULTILINE)
        cli = root / "python" / "tatara" / "cli.py"
        subcommands = re.findall(r"\bcommand\(\"([a-z]+)\"", cli.read_text()) if cli.exists() else []
        return Commands(set(targets), set(subcommands), known_flags(root))


def missing_commands(known: Commands, page: str, code: list[str]) -> Iterator[str]:
    """Targets, subcommands and flags in pieces of code that are not there."""
    for piece in code:
        for command in COMMAND.finditer(piece):
            first = command.group(1).split()[0]
            if first not in known.targets:
                yield f"{page}: no target `make {first}`"
        for command in SUBCOMMAND.finditer(piece):
            if command.group(1) not in known.subcommands:
                yield f"{page}: no command `tatara {command.group(1)}`"
        if (script := SCRIPT.search(piece)) and "pytest" not in piece and "compute-sanitizer" not in piece:
            for flag in FLAG.findall(script.group()):
                if flag not in known.flags:
                    yield f"{page}: no option `{flag}`: {piece.strip()}"


def missing(root: pathlib.Path) -> Iterator[str]:
    """Commands, files and variables that pages name and that are not there."""
    names = tracked(root)
    folders = {name[: i + 1] for name in names for i, sign in enumerate(name) if sign == "/"}
    base_names = {pathlib.PurePosixPath(name).name for name in names}
    variables = known_variables(root)
    known = Commands.of(root)

    def there(path: str, page: str) -> bool:
        if "/" not in path:
            return path in base_names or path in WRITTEN
        places = (
            "",
            "src/",
            "docs/",
            "python/tatara/",
            "src/capture/",
            pathlib.PurePosixPath(page).parent.as_posix() + "/",
        )
        return any(place + path in names or place + path in folders for place in places)

    for path in pages(root):
        page = path.relative_to(root).as_posix()
        text = path.read_text()
        code = re.findall(r"`([^`\n]+)`", without_code(text))
        blocks = re.findall(r"^(?: {4}|\t)(.+)$", text, re.MULTILINE)
        blocks += re.findall(r"^ *```(?:sh|bash)?\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
        yield from missing_commands(known, page, [*code, *(line for block in blocks for line in block.splitlines())])
        for variable in sorted(set(VARIABLE.findall(text)) - variables):
            yield f"{page}: no variable {variable}"
        if page.startswith(DATED):
            continue
        for piece in sorted({word.rstrip(":,") for each in code for word in each.split()}):
            named = piece.split("::")[0]
            if (FILE.fullmatch(named) or FOLDER.fullmatch(named)) and not there(named, page):
                yield f"{page}: no file `{named}`"
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", without_code(text)):
            if "://" not in link and not (path.parent / link).exists():
                yield f"{page}: no page {link}"


def main() -> int:
    """Prints the figures of the pages."""
    chosen = [pathlib.Path(name).resolve() for name in sys.argv[1:]] or pages(ROOT)
    for path in chosen:
        text = path.read_text()
        words = sum(len(sentence.split()) for sentence in sentences(text))
        print(
            f"{path.relative_to(ROOT)!s:50} {len(text.splitlines()):5} lines {words:6} words "
            f"{mean_sentence(text):5.1f} words a sentence"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
