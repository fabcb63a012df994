"""The lint of internal names: what would change its meaning when the sources of a folder are compiled together is found."""

from __future__ import annotations

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import unity  # noqa: E402


def plant(root: pathlib.Path, **files: str) -> list[str]:
    for name, text in files.items():
        path = (
            root
            / "src"
            / (name.replace("__", "/").replace("_h", ".h") if name.endswith("_h") else f"{name.replace('__', '/')}.cpp")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(unity.problems(root))


def internal(text: str) -> str:
    return f"namespace tatara {{\nnamespace {{\n{text}\n}}  // namespace\n}}  // namespace tatara\n"


def test_the_core_is_clean_but_for_exceptions_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = unity.ALLOWED
    monkeypatch.setattr(unity, "ALLOWED", {})
    found = {
        (problem.split(":")[0].rpartition("/")[0], problem.split()[1]): problem for problem in unity.problems(ROOT)
    }
    assert found.keys() == allowed.keys(), found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int f(int x) { return x; }", "int f(double x);"),
        ("template <typename T>\nT f(T x) { return x; }", "int f(double x) { return 1; }"),
        ("constexpr int f = 3;", "int f() { return 1; }"),
        ("constexpr const char* f[] = {};", "std::vector<int> f{1, 2};"),
        ("struct f { int x; };", "class f final : public Base { int x; };"),
    ],
)
def test_a_name_of_two_files_is_found(tmp_path: pathlib.Path, one: str, other: str) -> None:
    assert plant(tmp_path, a__one=internal(one), a__two=internal(other)) == [
        "a/two.cpp: f is internal in a/one.cpp too"
    ]


def test_a_macro_before_a_header_is_found(tmp_path: pathlib.Path) -> None:
    text = '#define CLEAN  // for it\n#include <Python.h>\n#define LATER 1\n#include "rows.def"\n'
    assert plant(tmp_path, a__one=text) == [
        "a/one.cpp: CLEAN is defined for a header, which another file may have included before"
    ]


@pytest.mark.parametrize("declared", ["int f(double x);", "inline constexpr int f = 3;", "struct f { int x; };"])
def test_a_name_of_a_header_is_found(tmp_path: pathlib.Path, declared: str) -> None:
    found = plant(
        tmp_path,
        b__low_h=f"namespace tatara {{ {declared} }}",
        b__high_h='#include "b/low.h"\n',
        a__one=internal("int f(int x) { return x; }"),
        a__two='#include "b/high.h"\n',
    )
    assert found == ["a/one.cpp: f is internal, and b/low.h declares one"]


def test_what_is_apart_is_not_found(tmp_path: pathlib.Path) -> None:
    assert [] == plant(
        tmp_path,
        b__low_h="namespace tatara { int f(double x); }",
        a__one=internal("int f(int x) { return g(x); }\nstruct S { int h() { return 1; } };"),
        a__two=internal("int k() { return f(1); }\nstruct T { int h() { return 1; } };"),
        c__three=internal("int f(int x) { return x; }"),
    )
