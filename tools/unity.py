"""Names that would mean something else when the sources of a folder are compiled together (TATARA_UNITY).

usage: unity.py     prints them

Anonymous namespaces of sources that are compiled together are one. So a function or a constant of one file would be found
by another that means a different one: an overload fits better, or the name hides what a header declares. The compiler sees
only some of that. Therefore an internal name is used once in a folder, and is the
name of nothing that a header declares which a file of the folder includes. Nor does a macro stand before a header: another
file may have included that already.
"""

from __future__ import annotations

import collections
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence

import sizes

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Names with the room and the reason why they are right.
ALLOWED = {
    ("compiler", "Store"): "kernel_store.cpp has options of its own and is compiled alone",
    ("capture/tape", "slot_type"): "one takes nothing, one a slot",
}
# What sources with options of their own, which are compiled alone, define.
ALONE = re.compile(r"runtime/host/gemm_avx[^/]*\.cpp")
MACRO = re.compile(r'^#define (\w+)(?=.*^#include (?:<|"[^"]+\.h"))', re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


class Names(sizes.Parser):
    """The functions and constants that a file declares in namespaces: internal ones, and the others."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text, sizes.Sizes())
        self.internal: set[str] = set()
        self.others: set[str] = set()
        self.anonymous = 0
        self.scope("", None)

    def statement(self, head: Sequence[sizes.Token], inside: sizes.Class | None) -> None:
        """As of the base, with declarations in namespaces too."""
        if inside is None:
            self.declared(head)
        super().statement(head, inside)

    def brace(self, head: list[sizes.Token], outer: str, inside: sizes.Class | None) -> list[sizes.Token]:
        """As of the base; counts anonymous namespaces."""
        anonymous = [token.text for token in head] == ["namespace"]
        self.anonymous += anonymous
        left = super().brace(head, outer, inside)
        self.anonymous -= anonymous
        return left

    def function(
        self, head: list[sizes.Token], plain: Sequence[sizes.Token], outer: str, inside: sizes.Class | None
    ) -> None:
        """The definition of a function."""
        if inside is None:
            self.declared(plain)
        super().function(head, plain, outer, inside)

    def klass(self, head: list[sizes.Token], plain: Sequence[sizes.Token], outer: str) -> list[sizes.Token]:
        """The definition of a class."""
        if outer == "":
            end = next((i for i, text in sizes.top_level(plain) if text == ":"), len(plain))
            head_of = [token for token in plain[:end] if token.text != "final"]
            self.add(sizes.name_before(head_of, len(head_of)), [])
        return super().klass(head, plain, outer)

    def add(self, name: str, words: list[str]) -> None:
        """A name without places."""
        if name and "::" not in name and not name.startswith("operator"):
            (self.internal if self.anonymous or "static" in words else self.others).add(name)

    def declared(self, head: Sequence[sizes.Token]) -> None:
        """A function or a variable of a namespace."""
        words = [token.text for token in head]
        if not words or words[0] in (
            "using",
            "typedef",
            "friend",
            "static_assert",
            "enum",
            "struct",
            "class",
            sizes.DEFINED,
        ):
            return
        at = sizes.parameters_at(head)
        if at < 0:
            at = next((i for i, text in sizes.top_level(head) if text in ("=", "{", "[")), len(head))
        self.add(sizes.name_before(head, at), words)


def included(path: str, includes: dict[str, set[str]]) -> set[str]:
    """All headers of the core that a file includes, at any depth."""
    found: set[str] = set()
    open_ = [path]
    while open_:
        for header in includes.get(open_.pop(), set()) - found:
            found.add(header)
            open_.append(header)
    return found


def problems(root: pathlib.Path) -> Iterator[str]:
    """Internal names that stand twice in a folder, or that a header has that the folder includes."""
    source = root / "src"
    names: dict[str, Names] = {}
    includes: dict[str, set[str]] = {}
    for path in sorted([*source.rglob("*.cpp"), *source.rglob("*.h")]):
        text = path.read_text()
        relative = path.relative_to(source).as_posix()
        names[relative] = Names(relative, text)
        includes[relative] = set(INCLUDE.findall(text))
    rooms: dict[str, list[str]] = collections.defaultdict(list)
    for path in names:
        # cmake/ compiles those of src/bindings one by one.
        if path.endswith(".cpp") and not path.startswith("bindings/"):
            rooms[path.rpartition("/")[0]].append(path)
        if path.endswith(".cpp") and not ALONE.fullmatch(path):
            for macro in MACRO.findall((source / path).read_text()):
                yield f"{path}: {macro} is defined for a header, which another file may have included before"
    for room, files in rooms.items():
        owner: dict[str, str] = {}
        headers = {header for file in files for header in included(file, includes)} & names.keys()
        of_headers = {name: header for header in headers for name in names[header].others}
        for file in files:
            for name in sorted(names[file].internal):
                if (room, name) in ALLOWED:
                    continue
                if name in owner:
                    yield f"{file}: {name} is internal in {owner[name]} too"
                elif name in of_headers:
                    yield f"{file}: {name} is internal, and {of_headers[name]} declares one"
                owner.setdefault(name, file)


def main() -> int:
    """Prints the problems."""
    found = list(problems(ROOT))
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
