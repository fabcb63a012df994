"""The lint of docs: what it measures, that it finds what is planted, and that all that the pages name is there."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import docs_check  # noqa: E402

OPTIONS = "| option | environment |\n|---|---|\n| `log` | `TATARA_LOG` |\n"


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> pathlib.Path:
    """A repository with a Makefile, a source and a table of options."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "x.py").write_text('parser.add_argument("--rounds", type=int)\n')
    (tmp_path / "python" / "tatara").mkdir(parents=True)
    (tmp_path / "python" / "tatara" / "cli.py").write_text('command("env", _env)\n')
    (tmp_path / "Makefile").write_text("demo: build\n\tpython demo\n\nbench-calls:\n\tpython bench\n")
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "docs" / "options.md").write_text(OPTIONS)
    (tmp_path / "src" / "capture").mkdir(parents=True)
    (tmp_path / "src" / "capture" / "tape.h").write_text("")
    return tmp_path


def plant(root: pathlib.Path, text: str, name: str = "docs/page.md") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_pages_keep_the_limits() -> None:
    assert list(docs_check.problems(ROOT)) == []


def test_all_that_the_pages_name_is_there() -> None:
    assert list(docs_check.missing(ROOT)) == []


def test_there_are_pages() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in docs_check.pages(ROOT)}
    assert {"README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/options.md"} <= names
    assert sum(name.startswith("docs/internals/") for name in names) >= 20


def test_every_page_of_internals_is_in_the_index() -> None:
    index = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "docs" / "internals").glob("*.md"):
        assert f"](internals/{path.name})" in index, path.name


def test_decisions_are_numbered_on() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "index.md")
    assert [name[:4] for name in names] == [f"{number:03}-" for number in range(1, len(names) + 1)]
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    assert [name for name in names if f"]({name})" not in index] == []


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("One two three. Four five!\n", [3, 2]),
        ("One two\nthree. Four.\n\nFive six\n", [3, 1, 2]),
        ("A colon: goes on; so does that.\n", [7]),
        ("`some code. Here` is one word. `x` begins the next.\n", [4, 4]),
        ("[a page](of/which.the/place) does not count\n", [5]),
        ("# No heading\n\n| no | table |\n|---|---|\n\nOnly this.\n", [2]),
        ("- An item is one.\n- Another\n  over two lines\n- `make demo`\n", [4, 4]),
        ("Before.\n\n```sh\nno code. None.\n```\n\n    nor here. No.\n\nAfter it.\n", [1, 2]),
        ("Version 3.11 is no end, nor is e.g. this.\n", [9]),
    ],
)
def test_sentences(text: str, lengths: list[int]) -> None:
    found = docs_check.sentences(text)
    assert [len(sentence.split()) for sentence in found] == lengths, found


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("docs/page.md", "word " * 18 + ".\n", "docs/page.md: 18.0 words a sentence"),
        ("docs/architecture.md", "Short.\n\n" * 61, "docs/architecture.md: 122 lines, more than 120"),
        ("docs/internals/part.md", "Short.\n\n" * 76, "docs/internals/part.md: 152 lines, more than 150"),
        ("docs/page.md", "See `/home/me/file`.\n", "docs/page.md:1: a path of somebody's machine: /home/me/file"),
        ("docs/page.md", "Text.\n\n    cd /tmp/x\n", "docs/page.md:3: a path of somebody's machine: /tmp/x"),
        ("CONTRIBUTING.md", "In /work/main.\n", "CONTRIBUTING.md:1: a path of somebody's machine: /work/main."),
    ],
)
def test_a_planted_page_is_found(repository: pathlib.Path, name: str, text: str, found: str) -> None:
    plant(repository, text, name)
    problems = list(docs_check.problems(repository))
    assert len(problems) == 1
    assert problems[0].startswith(found)


def test_paths_of_the_user_are_none_of_a_machine(repository: pathlib.Path) -> None:
    plant(repository, "In `~/.cache/tatara` or `src/work/x` and/or a/tmp.\n")
    assert list(docs_check.problems(repository)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Run `make nothing`.\n", "docs/page.md: no target `make nothing`"),
        ("Run\n\n    make nothing ARGS=x\n", "docs/page.md: no target `make nothing`"),
        ("`make demo ARGS=--none`\n", "docs/page.md: no option `--none`: make demo ARGS=--none"),
        ("`python bench/x.py --none 3`\n", "docs/page.md: no option `--none`: python bench/x.py --none 3"),
        ("`tatara nothing`\n", "docs/page.md: no command `tatara nothing`"),
        ("See `capture/none.h`.\n", "docs/page.md: no file `capture/none.h`"),
        ("See `none.cpp` there.\n", "docs/page.md: no file `none.cpp`"),
        ("See `src/none/`.\n", "docs/page.md: no file `src/none/`"),
        ("Set `TATARA_NONE=1`.\n", "docs/page.md: no variable TATARA_NONE"),
        ("See [it](none.md).\n", "docs/page.md: no page none.md"),
    ],
)
def test_what_is_not_there_is_found(repository: pathlib.Path, text: str, found: str) -> None:
    plant(repository, text)
    assert list(docs_check.missing(repository)) == [found]


def test_what_is_there_is_not(repository: pathlib.Path) -> None:
    plant(
        repository,
        "`make demo`, `make bench-calls`, `tape.h`, `capture/tape.h`, `src/capture/`, `TATARA_LOG=x`, `Tape::run`, "
        "`tatara.explain`, `report.html`, `tatara env`, `bench/x.py --rounds 3`, [options](options.md).\n\n    make demo ARGS=x\n",
    )
    assert list(docs_check.missing(repository)) == []


def test_dated_notes_may_name_what_has_gone(repository: pathlib.Path) -> None:
    plant(repository, "It was in `capture/gone.h`.\n", "docs/decisions/001-note.md")
    assert list(docs_check.missing(repository)) == []
