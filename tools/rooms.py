"""The rooms of the source folders and of the Python package (rooms.toml), and what goes against their order."""

from __future__ import annotations

import ast
import pathlib
import re
import tomllib
from collections.abc import Iterator

TABLE = pathlib.Path(__file__).with_name("rooms.toml")
SUFFIXES = (".cpp", ".h", ".def", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([a-z0-9_./]+)"', re.MULTILINE)
PACKAGE = "python/tatara"

Rooms = dict[str, list[str]]


def tables() -> dict[str, Rooms]:
    """Folder, room, and the rooms that it may include."""
    table = tomllib.loads(TABLE.read_text())
    table.pop(PACKAGE, None)
    return table


def package_rooms() -> Rooms:
    """The same of the Python package, where a room may be a single module."""
    rooms: Rooms = tomllib.loads(TABLE.read_text())[PACKAGE]
    return rooms


def room_of(path: str, rooms: Rooms) -> str | None:
    """The room of a path within its folder; None: in none that the table knows. Rooms may be nested."""
    parts = path.split("/")[:-1]
    if not parts:
        return "top" if "top" in rooms else None
    for length in range(len(parts), 0, -1):
        if (name := "/".join(parts[:length])) in rooms:
            return name
    return None


def unknown_rooms(folder: str, rooms: Rooms) -> Iterator[str]:
    """Names in a table that are no rooms, nor headers of one ("run/runner.h")."""
    for name in sorted(rooms):
        for other in rooms[name]:
            if other not in rooms and not (other.endswith(".h") and room_of(other, rooms)):
                yield f"rooms.toml: {folder}/{name} names {other}, which is no room of {folder}"


def folder_problems(root: pathlib.Path, folder: str, rooms: Rooms) -> Iterator[str]:
    """Those of one folder of src/."""
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
            header = match.group(1).removeprefix(folder + "/")
            if header == match.group(1):
                continue
            other = room_of(header, rooms)
            if other is None or other == room or other in rooms[room] or header in rooms[room]:
                continue
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: {folder}/{room} may not include {folder}/{other} (tools/rooms.toml)"


def module_path(module: str, package: pathlib.Path) -> str | None:
    """The path in the package of a module by its full name ("tatara.torch._meta"); None: it is no module."""
    parts = module.split(".")[1:]
    path = "/".join(parts)
    if (package / path).is_dir():
        return f"{path}/__init__" if path else "__init__"
    return path if (package / f"{path}.py").is_file() or (package / f"{path}.pyi").is_file() else None


def imports(path: pathlib.Path, package: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Lines and paths of the package's modules that a module imports, at its top or in a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                here = ["tatara", *path.relative_to(package).parts[: -node.level]]
                module = ".".join([*here, *([module] if module else [])])
            # `from tatara import _core` imports a module, `from tatara._errors import Error` takes a name of one.
            for alias in node.names:
                part = f"{module}.{alias.name}"
                found.append(module if module_path(part, package) is None else part)
        for name in found:
            if name.split(".")[0] == "tatara" and (at := module_path(name, package)) is not None:
                yield node.lineno, at


def room_of_module(path: str, rooms: Rooms) -> str | None:
    """The room of a module: its own, or its folder's."""
    return path if path in rooms else room_of(path, rooms)


def package_problems(root: pathlib.Path, rooms: Rooms) -> Iterator[str]:
    """Imports of the Python package against the order of its rooms, and modules that import each other."""
    package = root / PACKAGE
    used: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).with_suffix("").as_posix()
        name = path.relative_to(root).as_posix()
        room = room_of_module(module, rooms)
        used[module] = set()
        if room is None:
            yield f"{name}: in no room of {PACKAGE} (tools/rooms.toml)"
            continue
        for line, other in imports(path, package):
            used[module].add(other)
            of = room_of_module(other, rooms)
            if of is not None and of != room and of not in rooms[room]:
                yield f"{name}:{line}: {PACKAGE}/{room} may not import {PACKAGE}/{of} (tools/rooms.toml)"
    for circle in circles(used):
        yield f"{PACKAGE}: modules import each other: {' -> '.join(circle)}"


def circles(used: dict[str, set[str]]) -> Iterator[list[str]]:
    """Modules that import themselves by way of others; each is told once."""
    done: set[str] = set()

    def visit(module: str, way: list[str]) -> Iterator[list[str]]:
        if module in way:
            yield [*way[way.index(module) :], module]
        elif module not in done:
            for other in sorted(used.get(module, ())):
                yield from visit(other, [*way, module])
            done.add(module)

    for module in sorted(used):
        yield from visit(module, [])


def problems(root: pathlib.Path) -> Iterator[str]:
    """Files outside of any room, and includes and imports that the table does not allow; paths are relative to `root`."""
    for folder, rooms in tables().items():
        yield from unknown_rooms(folder, rooms)
        yield from folder_problems(root, folder, rooms)
    yield from unknown_rooms(PACKAGE, package_rooms())
    yield from package_problems(root, package_rooms())
