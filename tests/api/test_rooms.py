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


def test_the_sources_keep_the_order() -> None:
    assert list(rooms.problems(ROOT)) == []


def test_each_folder_of_the_table_is_there() -> None:
    for folder, table in TABLES.items():
        for room in table:
            assert room == "top" or (ROOT / "src" / folder / room).is_dir(), f"{folder}/{room}"


@pytest.mark.parametrize(("folder", "low", "high"), UPWARD, ids=lambda name: str(name))
def test_a_planted_include_is_found(tmp_path: pathlib.Path, folder: str, low: str, high: str) -> None:
    def place(room: str) -> pathlib.Path:
        return tmp_path / "src" / folder / ("" if room == "top" else room)

    place(low).mkdir(parents=True, exist_ok=True)
    inside = folder if high == "top" else f"{folder}/{high}"
    (place(low) / "planted.cpp").write_text(f'// A file.\n#include "{inside}/something.h"\n')
    (found,) = rooms.problems(tmp_path)
    assert found.startswith(f"src/{folder}/" + ("" if low == "top" else f"{low}/") + "planted.cpp:2: ")
    assert f"{folder}/{high}" in found


def test_a_file_in_no_room_is_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "src" / "ops" / "somewhere").mkdir(parents=True)
    (tmp_path / "src" / "ops" / "somewhere" / "planted.h").write_text("")
    assert list(rooms.problems(tmp_path)) == ["src/ops/somewhere/planted.h: in no room of ops (tools/rooms.toml)"]
