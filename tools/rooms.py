"""The rooms of the source folders (rooms.toml), and includes that go against their order."""

from __future__ import annotations

import pathlib
import re
import tomllib
from collections.abc import Iterator

TABLE = pathlib.Path(__file__).with_name("rooms.toml")
SUFFIXES = (".cpp", ".h", ".def", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z0-9_./]+)"', re.MULTILINE)


def tables() -> dict[str, dict[str, list[str]]]:
    """Folder, room, and the rooms that it may include."""
    return tomllib.loads(TABLE.read_text())


def room_of(path: str, rooms: dict[str, list[str]]) -> str | None:
    """The room of a path within its folder; None: in none that the table knows. Rooms may be nested."""
    parts = path.split("/")[:-1]
    if not parts:
        return "top" if "top" in rooms else None
    for length in range(len(parts), 0, -1):
        if (name := "/".join(parts[:length])) in rooms:
            return name
    return None


def problems(root: pathlib.Path) -> Iterator[str]:
    """Files outside of any room, and includes of rooms that the table does not allow; paths are relative to `root`."""
    for folder, rooms in tables().items():
        for name in sorted(rooms):
            for other in rooms[name]:
                if other not in rooms:
                    yield f"rooms.toml: {folder}/{name} names {other}, which is no room of {folder}"
        for path in sorted((root / "src" / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            name = path.relative_to(root).as_posix()
            room = room_of(path.relative_to(root / "src" / folder).as_posix(), rooms)
            if room is None:
                yield f"{name}: in no room of {folder} (tools/rooms.toml)"
                continue
            text = path.read_text()
            for match in INCLUDE.finditer(text):
                if not match.group(1).startswith(folder + "/"):
                    continue
                other = room_of(match.group(1).removeprefix(folder + "/"), rooms)
                if other is not None and other != room and other not in rooms[room]:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{name}:{line}: {folder}/{room} may not include {folder}/{other} (tools/rooms.toml)"
