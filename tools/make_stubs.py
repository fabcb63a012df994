"""Writes python/tatara/_core.pyi from the built extension, or with --check compares it.

usage: make_stubs.py [--check]
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUB = ROOT / "python" / "tatara" / "_core.pyi"


def generated() -> str:
    """The text that nanobind makes, in the layout of the house."""
    sys.path.insert(0, str(ROOT / "python"))
    from nanobind.stubgen import main as stubgen

    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "_core.pyi"
        pattern = str(ROOT / "tools" / "core_stubs.pat")
        stubgen(["-q", "-m", "tatara._core", "-p", pattern, "-o", str(path)])
        text = path.read_text(encoding="utf-8")
    text = f"# Made by tools/make_stubs.py.\n{text}"
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "I",
        "--fix",
        "--quiet",
        "--stdin-filename",
        str(STUB),
        "-",
    ]
    return subprocess.run(command, input=checked.stdout, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def main() -> int:
    """0 when the stub is (now) what the extension says."""
    text = generated()
    if "--check" not in sys.argv:
        STUB.write_text(text, encoding="utf-8")
        return 0
    if STUB.read_text(encoding="utf-8") == text:
        return 0
    print(f"{STUB.name} is not what the extension says: run tools/make_stubs.py")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
