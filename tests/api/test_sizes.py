"""The lint of sizes: what it counts, that it finds what is planted, and that its list can only grow shorter."""

from __future__ import annotations

import pathlib
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import sizes  # noqa: E402

LIMITS: dict[str, object] = {"class_functions": 2, "class_members": 2, "function_lines": 4, "file_lines": 12}


def read(text: str) -> sizes.Sizes:
    found = sizes.Sizes()
    sizes.read("file.cpp", textwrap.dedent(text), found)
    return found


def problems(root: pathlib.Path, rules: dict[str, dict[str, object]]) -> list[str]:
    return list(sizes.problems(sizes.measure(root), rules))


def plant(root: pathlib.Path, text: str, name: str = "planted.cpp") -> None:
    path = root / "src" / "somewhere" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


CLASSES = {
    "struct A { int x; float y = 1.0F; };": ("A", 0, 2),
    "struct A { int x, y{2}, z[3] = {1, 2, 3}; };": ("A", 0, 3),
    "struct A { std::map<int, std::pair<int, int>> table; std::array<int, 3> t = {1, 2, 3}; };": ("A", 0, 2),
    "class A { public: A(); explicit A(int x) : x_(x), y_{x} {} ~A() = default; private: int x_; int y_; };": (
        "A",
        3,
        2,
    ),
    "class A final : public B<int, C> { void f() const override { if (a < b) { g(); } } virtual int g() = 0; };": (
        "A",
        2,
        0,
    ),
    "struct A { static constexpr int kN = 3; static int count; using T = int; friend class B; enum class E { kX, kY }; };": (
        "A",
        0,
        0,
    ),
    "struct A { std::function<void(int)> f; void (*g)(int); int (*h)(int, int) = nullptr; };": ("A", 0, 3),
    "struct A { template <typename T, int n = (3 > 2)> void f(T t, int x = 3); bool operator<(const A& b) const; };": (
        "A",
        2,
        0,
    ),
    "struct A { bool operator()(int x) const { return x < 3; } A& operator=(const A&) = delete; };": ("A", 2, 0),
    "struct A { struct B; class C* c; struct B* b = nullptr; };": ("A", 0, 2),
    "struct A { alignas(64) int x; unsigned bits : 3; const char* name = \"a;{\"; char c = '{'; };": ("A", 0, 4),
    "struct A { auto f() const -> std::vector<int> { return {}; } int g() noexcept(true) { return {}; } };": (
        "A",
        2,
        0,
    ),
    "template <typename T> struct A { T x; }; // struct B { int y; };": ("A", 0, 1),
    'struct A { const char* t = R"(} } {)"; /* { */ int x; };\n#define M {': ("A", 0, 2),
}


@pytest.mark.parametrize("text", CLASSES)
def test_what_a_class_declares(text: str) -> None:
    (found,) = read(text).classes
    assert (found.name, found.functions, found.members) == CLASSES[text]


def test_nested_classes_count_by_themselves() -> None:
    found = read(
        """
        namespace a { namespace {
        class Outer {
          struct Inner { int x; int y; void f(); };
          struct { int z; } unnamed;
          union Both { int i; float f; } both, other;
          Inner inner;
        };
        } }
        struct Outer::Later { int w; };
        """
    )
    counts = {c.name: (c.functions, c.members) for c in found.classes}
    assert counts == {
        "Outer": (0, 4),
        "Outer::Inner": (1, 2),
        "Outer::(no name)": (0, 1),
        "Outer::Both": (0, 2),
        "Outer::Later": (0, 1),
    }


def test_where_functions_begin_and_end() -> None:
    found = read(
        """
        namespace n {
        int one(int x) { return x; }

        template <typename T>
        std::vector<T> A<T>::two(const std::map<int, T>& m)
        {
          const auto f = [&](int x) {
            return x < 3 ? 1 : 2;
          };
          return {f(1)};
        }
        A::A(int x)
            : a_(x), b_{x}, C<int>{x} {
        }
        const int kTable[] = {1, 2, 3};
        const auto kLambda = [](int x) { return x; };
        static int three() try { return 1; } catch (...) { return 2; }
        bool operator==(const A& a, const A& b) { return true; }
        extern "C" {
        void four() {}
        }
        }
        """
    )
    lines = {f.name: f.lines for f in found.functions}
    assert lines["file.cpp:one"] == 1
    assert lines["A::two"] == 8
    assert lines["A::A"] == 3
    assert lines["file.cpp:three"] == 1
    assert lines["file.cpp:operator=="] == 1
    assert lines["file.cpp:four"] == 1
    assert not any("kLambda" in name or "kTable" in name for name in lines)


def test_braces_that_do_not_match_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"file\.cpp:2"):
        read("int f() {}\n}\nint g() {}")


PLANTED = {
    "class_functions": ("struct Wide { void a(); void b(); void c() {} };", "Wide"),
    "class_members": ("struct Fat { int a; int b; int c; };", "Fat"),
    "function_lines": ("int long_one() {\n\n\n\n}\n", "planted.cpp:long_one"),
    "file_lines": ("\n" * 13, "src/somewhere/planted.cpp"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_offender_is_found(tmp_path: pathlib.Path, kind: str) -> None:
    text, name = PLANTED[kind]
    plant(tmp_path, text)
    (found,) = problems(tmp_path, {"limits": LIMITS})
    assert found.startswith("src/somewhere/planted.cpp")
    assert name in found
    assert problems(tmp_path, {"limits": LIMITS, kind: {name: "it is a table"}}) == []


@pytest.mark.parametrize("kind", PLANTED)
def test_an_entry_that_is_not_over_its_limit_is_an_error(tmp_path: pathlib.Path, kind: str) -> None:
    text, name = PLANTED[kind]
    plant(tmp_path, text)
    higher = {**LIMITS, kind: 1000}
    (found,) = problems(tmp_path, {"limits": higher, kind: {name: "it was large"}})
    assert name in found
    assert "take it off the list" in found


def test_an_entry_needs_a_reason(tmp_path: pathlib.Path) -> None:
    text, name = PLANTED["class_members"]
    plant(tmp_path, text)
    (found,) = problems(tmp_path, {"limits": LIMITS, "class_members": {name: " "}})
    assert "no reason" in found


def test_the_sources_keep_the_limits() -> None:
    assert list(sizes.problems(sizes.measure(ROOT), sizes.table())) == []


def test_the_limits_are_those_of_the_house() -> None:
    assert sizes.table()["limits"] == {
        "class_functions": 80,
        "class_members": 25,
        "function_lines": 100,
        "file_lines": 600,
    }


def test_the_summary_is_one_line_with_every_kind() -> None:
    line = sizes.summary(sizes.measure(ROOT), sizes.table())
    assert "\n" not in line
    for word in ("class of", "functions", "data members", "function of", "file of"):
        assert word in line
