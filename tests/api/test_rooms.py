"""The lint of rooms finds what is planted, and nothing in the sources as they are."""

from __future__ import annotations

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import rooms  # noqa: E402

TABLES = rooms.tables()
UPWARD = [
    (folder, low, high)
    for folder, table in TABLES.items()
    for low in table
    for high in table
    if low != high and high not in table[low]
]
HEADERS = [
    (folder, low, header)
    for folder, table in TABLES.items()
    for low, allowed in table.items()
    for header in allowed
    if header.endswith(".h")
]
PACKAGE = rooms.package_rooms()
UPWARD_IMPORTS = [(low, high) for low in PACKAGE for high in PACKAGE if low != high and high not in PACKAGE[low]]


def place(root: pathlib.Path, folder: str, room: str) -> pathlib.Path:
    made = root / "src" / folder / ("" if room == "top" else room)
    made.mkdir(parents=True, exist_ok=True)
    return made


def put_module(root: pathlib.Path, name: str, text: str = "") -> None:
    path = root / "python" / "tatara" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def module_in(room: str) -> str:
    """The path of a module in a room, which may be that module itself."""
    if room == "top":
        return "planted"
    return f"{room}/planted" if (ROOT / "python" / "tatara" / room).is_dir() else room


def test_the_sources_keep_the_order() -> None:
    assert list(rooms.problems(ROOT)) == []


def test_each_room_of_the_table_is_there() -> None:
    for folder, table in TABLES.items():
        for room in table:
            assert room == "top" or (ROOT / "src" / folder / room).is_dir(), f"{folder}/{room}"
    for folder, low, header in HEADERS:
        assert (ROOT / "src" / folder / header).is_file(), f"{folder}/{low} names {header}"
    for room in PACKAGE:
        module = ROOT / "python" / "tatara" / room
        assert room == "top" or module.is_dir() or any(module.with_suffix(s).is_file() for s in (".py", ".pyi")), room


@pytest.mark.parametrize(("folder", "low", "high"), UPWARD, ids=lambda name: str(name))
def test_a_planted_include_is_found(tmp_path: pathlib.Path, folder: str, low: str, high: str) -> None:
    inside = folder if high == "top" else f"{folder}/{high}"
    (place(tmp_path, folder, low) / "planted.cpp").write_text(f'// A file.\n#include "{inside}/something.h"\n')
    (found,) = rooms.problems(tmp_path)
    assert found.startswith(f"src/{folder}/" + ("" if low == "top" else f"{low}/") + "planted.cpp:2: ")
    assert f"{folder}/{high}" in found


@pytest.mark.parametrize(("folder", "low", "header"), HEADERS, ids=lambda name: str(name))
def test_a_header_alone_may_be_included(tmp_path: pathlib.Path, folder: str, low: str, header: str) -> None:
    (place(tmp_path, folder, low) / "planted.cpp").write_text(f'#include "{folder}/{header}"\n')
    assert list(rooms.problems(tmp_path)) == []


def test_a_file_in_no_room_is_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "src" / "ops" / "somewhere").mkdir(parents=True)
    (tmp_path / "src" / "ops" / "somewhere" / "planted.h").write_text("")
    assert list(rooms.problems(tmp_path)) == ["src/ops/somewhere/planted.h: in no room of ops (tools/rooms.toml)"]


@pytest.mark.parametrize(
    "form", ["import {0}", "from {1} import {2}", "from {0} import something", "relative", "inside"]
)
@pytest.mark.parametrize(("low", "high"), UPWARD_IMPORTS)
def test_a_planted_import_is_found(tmp_path: pathlib.Path, low: str, high: str, form: str) -> None:
    module, other = module_in(low), module_in(high)
    put_module(tmp_path, other)
    full = "tatara." + other.replace("/", ".")
    if form == "inside":
        text = f"def f():\n    import {full}\n"
    elif form == "relative":
        text = f"\nfrom {'.' * (module.count('/') + 1)}{other.replace('/', '.')} import something\n"
    else:
        text = "\n" + form.format(full, *full.rsplit(".", 1)) + "\n"
    put_module(tmp_path, module, text)
    (found,) = rooms.problems(tmp_path)
    assert found.startswith(f"python/tatara/{module}.py:2: ")
    assert f"python/tatara/{high}" in found


def test_a_module_in_no_room_is_found(tmp_path: pathlib.Path) -> None:
    put_module(tmp_path, "somewhere/planted")
    (found,) = rooms.problems(tmp_path)
    assert found == "python/tatara/somewhere/planted.py: in no room of python/tatara (tools/rooms.toml)"


def test_modules_that_import_each_other_are_found(tmp_path: pathlib.Path) -> None:
    put_module(tmp_path, "report/_one", "from tatara.report import _two\n")
    put_module(tmp_path, "report/_two", "def f():\n    from tatara.report._one import g\n")
    (found,) = rooms.problems(tmp_path)
    assert found == "python/tatara: modules import each other: report/_one -> report/_two -> report/_one"
