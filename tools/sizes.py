"""How large the classes, functions and files of the C++ core are, and which are over the limits of sizes.toml.

usage: sizes.py [N]     prints the N largest of each kind (10)

C++ is read by a tokenizer and a parser of declarations, which knows namespaces, classes, members and where functions begin
and end, and skips over everything within functions.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence

TABLE = pathlib.Path(__file__).with_name("sizes.toml")
SOURCES = (".cpp", ".h")
FILES = (".cpp", ".h", ".def", ".inc")

TOKEN = re.compile(
    r"""
      (?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)
    | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
    | (?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<word>operator\s*(?:\(\s*\)|\[\s*\]|""\s*\w+|<=>|->\*?|<<=?|>>=?|&&|\|\||\+\+|--|[-+*/%^&|~!=<>]=?|,)
        |[A-Za-z_]\w*|\d(?:[\w.']|[eEpP][-+])*)
    | (?P<sign>::|->|<=>|==|!=|<=|>=|&&|\|\||\+=|-=|\*=|/=|%=|\|=|&=|\^=|<<=|\.\.\.|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
# What is left of the definition of a class: declarators may follow.
DEFINED = "struct{}"
# Between the parameters of a function and its body.
AFTER_PARAMETERS = {"const", "noexcept", "override", "final", "try", "&", "&&", "mutable"}


@dataclasses.dataclass(frozen=True)
class Token:
    """A word or a sign of the source. Strings and characters are all `""`."""

    text: str
    line: int


@dataclasses.dataclass
class Class:
    """A class or struct: what its definition declares. Nested classes count by themselves."""

    name: str
    path: str
    line: int
    functions: int = 0
    members: int = 0


@dataclasses.dataclass(frozen=True)
class Function:
    """The definition of a function, from the first line of its declaration to the closing brace."""

    name: str
    path: str
    line: int
    lines: int


@dataclasses.dataclass
class Sizes:
    """All that was found; files by their lines."""

    classes: list[Class] = dataclasses.field(default_factory=list)
    functions: list[Function] = dataclasses.field(default_factory=list)
    files: dict[str, int] = dataclasses.field(default_factory=dict)


def tokens_of(text: str) -> list[Token]:
    """The tokens of a source, without comments and lines of the preprocessor."""
    tokens = []
    line = 1
    for match in TOKEN.finditer(text):
        found = match.group()
        if match.lastgroup == "word" or match.group("word"):
            tokens.append(Token(re.sub(r"\s+", "", found), line))
        elif match.group("raw") or match.group("text"):
            tokens.append(Token('""', line))
        elif match.group("sign"):
            tokens.append(Token(found, line))
        line += found.count("\n")
    return tokens


def without_template(head: Sequence[Token]) -> Sequence[Token]:
    """The declaration after `template <...>` and `requires (...)`."""
    while head and head[0].text == "template" and len(head) > 1 and head[1].text == "<":
        head = head[angle_end(head, 1) + 1 :]
    return head


def angle_end(tokens: Sequence[Token], start: int) -> int:
    """The index of the `>` that belongs to the `<` at `start`; len(tokens) when there is none."""
    angles = 0
    brackets = 0
    for i in range(start, len(tokens)):
        text = tokens[i].text
        brackets += (text in CLOSING) - (text in CLOSING.values())
        if brackets == 0 and text in ("<", ">"):
            angles += 1 if text == "<" else -1
            if angles == 0:
                return i
    return len(tokens)


def top_level(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Index and text of the tokens outside of brackets, opening ones included.

    A `<` behind a word is a bracket where it has an end.
    """
    i = 0
    while i < len(tokens):
        text = tokens[i].text
        yield i, text
        if text in CLOSING:
            depth = 0
            while i < len(tokens):
                depth += tokens[i].text in CLOSING
                depth -= tokens[i].text in CLOSING.values()
                if depth == 0:
                    break
                i += 1
        elif text == "<" and i > 0 and (tokens[i - 1].text[0].isalpha() or tokens[i - 1].text[0] == "_"):
            end = angle_end(tokens, i)
            i = end if end < len(tokens) else i
        i += 1


def parameters_at(head: Sequence[Token]) -> int:
    """The index of the parenthesis of a function's parameters; -1: it declares no function."""
    for i, text in top_level(head):
        if text in ("=", "{"):
            return -1
        if text != "(":
            continue
        before = head[i - 1].text if i > 0 else ""
        if before in ("alignas", "decltype", "__attribute__", "noexcept", "explicit", "requires", ""):
            continue
        if head[i + 1].text in ("*", "&") and len(head) > i + 2 and head[i + 2].text != ")":
            return -1  # a pointer to a function
        return i
    return -1


def name_before(head: Sequence[Token], end: int) -> str:
    """The qualified name that ends before index `end`, without template arguments."""
    parts: list[str] = []
    i = end - 1
    while i >= 0:
        if head[i].text == ">":
            depth = 0
            while i >= 0:
                depth += (head[i].text == ">") - (head[i].text == "<")
                if depth == 0:
                    break
                i -= 1
            i -= 1
            continue
        word = head[i].text
        if not (word[0].isalpha() or word[0] in "_~"):
            break
        parts.insert(0, word)
        if i > 0 and head[i - 1].text == "~":
            parts[0] = "~" + parts[0]
            i -= 1
        if i == 0 or head[i - 1].text != "::":
            break
        i -= 2
    return "::".join(parts)


class Parser:
    """Declarations of one file."""

    def __init__(self, path: str, text: str, into: Sizes) -> None:
        self.path = path
        self.tokens = tokens_of(text)
        self.at = 0
        self.into = into

    def skip_group(self) -> None:
        """From an opening bracket to behind its closing one."""
        depth = 0
        while self.at < len(self.tokens):
            text = self.tokens[self.at].text
            depth += text in CLOSING
            depth -= text in CLOSING.values()
            self.at += 1
            if depth == 0:
                return

    def scope(self, outer: str, inside: Class | None) -> None:
        """Declarations up to the closing brace, or the end."""
        head: list[Token] = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.text == "}":
                self.at += 1
                return
            if token.text == ";":
                self.at += 1
                self.statement(without_template(head), inside)
                head = []
            elif token.text == "{":
                head = self.brace(head, outer, inside)
            elif token.text in ("(", "["):
                start = self.at
                self.skip_group()
                head.extend(self.tokens[start : self.at])
            elif token.text == ":" and len(head) == 1 and head[0].text in ("public", "private", "protected"):
                self.at += 1
                head = []
            else:
                head.append(token)
                self.at += 1

    def statement(self, head: Sequence[Token], inside: Class | None) -> None:
        """A declaration that ends with a semicolon."""
        if inside is not None:
            self.member(head, inside)

    def brace(self, head: list[Token], outer: str, inside: Class | None) -> list[Token]:
        """At an opening brace: what it opens. Returns what is left of the declaration."""
        plain = without_template(head)
        words = [token.text for token in plain]
        first = next((word for word in words if word not in ("inline", "typedef", "static", "constexpr", "const")), "")
        if first in ("namespace", "extern") or not words:
            self.at += 1
            self.scope(outer, None)
            return []
        if first == "enum":
            self.skip_group()
            return head
        assigned = any(text == "=" for _, text in top_level(plain))
        if first in ("class", "struct", "union") and not assigned and parameters_at(plain) < 0:
            return self.klass(head, plain, outer)
        if assigned or parameters_at(plain) < 0 or self.initializer(plain):
            start = self.at
            self.skip_group()
            return head + self.tokens[start : self.at]
        self.function(head, plain, outer, inside)
        return []

    def initializer(self, head: Sequence[Token]) -> bool:
        """Whether this brace initializes a member in the list of a constructor: `a_{1}`."""
        at = parameters_at(head)
        colon = any(text == ":" for i, text in top_level(head) if i > at)
        last = head[-1].text
        return colon and last not in AFTER_PARAMETERS and last not in (")", "}")

    def klass(self, head: list[Token], plain: Sequence[Token], outer: str) -> list[Token]:
        """The definition of a class, and what may be declared behind it."""
        end = next((i for i, text in top_level(plain) if text == ":"), len(plain))
        words = [i for i in range(end) if plain[i].text == "final"]
        name = name_before(plain, words[0] if words else end)
        if name in ("class", "struct", "union"):
            name = ""
        full = "::".join(part for part in (outer, name or "(no name)") if part)
        found = Class(full, self.path, head[0].line)
        self.at += 1
        self.scope(full, found)
        self.into.classes.append(found)
        return [Token(DEFINED, head[0].line)]

    def function(self, head: list[Token], plain: Sequence[Token], outer: str, inside: Class | None) -> None:
        """The definition of a function."""
        start = head[0].line
        self.skip_group()
        name = name_before(plain, parameters_at(plain))
        full = "::".join(part for part in (outer, name) if part)
        if "::" not in full:
            # Short names say little: the file's belongs to it.
            full = f"{self.path.rpartition('/')[2]}:{full}"
        self.into.functions.append(Function(full, self.path, start, self.tokens[self.at - 1].line - start + 1))
        if inside is not None and plain[0].text != "friend":
            inside.functions += 1

    def member(self, head: Sequence[Token], inside: Class) -> None:
        """A member that ends with a semicolon."""
        words = [token.text for token in head]
        if not words or words[0] in ("using", "typedef", "friend", "static_assert", "enum"):
            return
        if words[0] == DEFINED:
            inside.members += 1 + words.count(",") if len(words) > 1 else 0
            return
        if words[0] in ("class", "struct", "union") and len(words) == 2:
            return  # declared here, defined elsewhere
        if parameters_at(head) >= 0:
            inside.functions += 1
        elif "static" not in words and "constexpr" not in words:
            inside.members += 1 + sum(text == "," for _, text in top_level(head))


def read(path: str, text: str, into: Sizes) -> None:
    """The declarations of one file."""
    parser = Parser(path, text, into)
    parser.scope("", None)
    if parser.at < len(parser.tokens):
        raise ValueError(f"{path}:{parser.tokens[parser.at - 1].line}: a brace too many for tools/sizes.py")


def measure(root: pathlib.Path) -> Sizes:
    """Everything under src/."""
    sizes = Sizes()
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in FILES:
            continue
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        sizes.files[name] = text.count("\n")
        if path.suffix in SOURCES:
            read(name, text, sizes)
    return sizes


@dataclasses.dataclass(frozen=True)
class Figure:
    """One size: of what, where, how much."""

    name: str
    place: str
    size: int


def figures(sizes: Sizes) -> dict[str, list[Figure]]:
    """By the kinds of sizes.toml, largest first."""
    kinds = {
        "class_functions": [Figure(c.name, f"{c.path}:{c.line}", c.functions) for c in sizes.classes],
        "class_members": [Figure(c.name, f"{c.path}:{c.line}", c.members) for c in sizes.classes],
        "function_lines": [Figure(f.name, f"{f.path}:{f.line}", f.lines) for f in sizes.functions],
        "file_lines": [Figure(name, name, lines) for name, lines in sizes.files.items()],
    }
    return {kind: sorted(found, key=lambda f: (-f.size, f.name)) for kind, found in kinds.items()}


WHAT = {
    "class_functions": "a class of {} functions",
    "class_members": "a class of {} data members",
    "function_lines": "a function of {} lines",
    "file_lines": "a file of {} lines",
}


def table() -> dict[str, dict[str, object]]:
    """Limits, and what may be over them, with the reasons."""
    return tomllib.loads(TABLE.read_text())


def problems(sizes: Sizes, rules: dict[str, dict[str, object]]) -> Iterator[str]:
    """What is over its limit and not listed, and what is listed but no longer over."""
    for kind, found in figures(sizes).items():
        limit = rules["limits"][kind]
        assert isinstance(limit, int)
        listed = rules.get(kind, {})
        over = {figure.name for figure in found if figure.size > limit}
        for figure in found:
            if figure.size > limit and figure.name not in listed:
                what = WHAT[kind].format(figure.size)
                yield f"{figure.place}: {figure.name}: {what}, more than {limit} (tools/sizes.toml)"
        for name, reason in listed.items():
            if name not in over:
                yield f"sizes.toml: {kind}: {name} is not over the limit of {limit} any more: take it off the list"
            elif not isinstance(reason, str) or not reason.strip():
                yield f"sizes.toml: {kind}: {name} has no reason"


def summary(sizes: Sizes, rules: dict[str, dict[str, object]]) -> str:
    """The largest of each kind, in one line."""
    largest = {kind: found[0] for kind, found in figures(sizes).items()}
    parts = [f"{WHAT[kind].format(figure.size)} ({figure.name})" for kind, figure in largest.items()]
    listed = sum(len(rules.get(kind, {})) for kind in WHAT)
    return "largest: " + ", ".join(part.removeprefix("a ") for part in parts) + f"; over the limits: {listed}"


def main() -> int:
    """Prints the largest of each kind."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for kind, found in figures(measure(TABLE.parent.parent)).items():
        print(kind)
        for figure in found[:count]:
            print(f"  {figure.size:5}  {figure.name}  ({figure.place})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
