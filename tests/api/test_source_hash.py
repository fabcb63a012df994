"""The hash of the emitter's sources, a part of every key of the disk cache, counts files in any folder."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE = pathlib.Path(sys.executable).parent / "cmake"
PROJECT = """cmake_minimum_required(VERSION 3.20)
project(hash NONE)
include("{script}")
tatara_source_hash(found "${{CMAKE_CURRENT_SOURCE_DIR}}/src" {patterns})
file(WRITE "${{CMAKE_BINARY_DIR}}/hash.txt" "${{found}}")
"""


@pytest.fixture
def sources(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("a/first.cpp", "a/inner/deep/second.h", "b/third.cpp"):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def configure(folder: pathlib.Path, *patterns: str) -> subprocess.CompletedProcess[str]:
    quoted = " ".join(f'"{pattern}"' for pattern in patterns)
    script = (ROOT / "cmake" / "source_hash.cmake").as_posix()
    (folder / "CMakeLists.txt").write_text(PROJECT.format(script=script, patterns=quoted))
    command = [str(CMAKE) if CMAKE.exists() else "cmake", "-S", str(folder), "-B", str(folder / "build")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def hash_of(folder: pathlib.Path, *patterns: str) -> str:
    done = configure(folder, *patterns)
    assert done.returncode == 0, done.stderr
    return (folder / "build" / "hash.txt").read_text()


@pytest.mark.parametrize("name", ["a/first.cpp", "a/inner/deep/second.h", "b/third.cpp"])
def test_a_change_of_any_file_changes_the_hash(sources: pathlib.Path, name: str) -> None:
    before = hash_of(sources, "a/*", "b/third.cpp")
    assert hash_of(sources, "a/*", "b/third.cpp") == before
    (sources / "src" / name).write_text("changed")
    assert hash_of(sources, "a/*", "b/third.cpp") != before


def test_a_file_that_moves_into_a_folder_still_counts(sources: pathlib.Path) -> None:
    (sources / "src" / "a" / "first.cpp").rename(sources / "src" / "a" / "inner" / "first.cpp")
    before = hash_of(sources, "a/*")
    (sources / "src" / "a" / "inner" / "first.cpp").write_text("changed")
    assert hash_of(sources, "a/*") != before


@pytest.mark.parametrize("pattern", ["c/*", "a/first.h", "b/inner/*.cpp"])
def test_a_pattern_without_files_stops_the_build(sources: pathlib.Path, pattern: str) -> None:
    done = configure(sources, "a/*", pattern)
    assert done.returncode != 0
    assert pattern in done.stderr
