"""Line coverage of the C++ core after its unit tests ran in an instrumented build (`make coverage`).

usage: coverage.py BUILD_DIRECTORY
"""

from __future__ import annotations

import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def executed_lines(build: pathlib.Path) -> dict[str, dict[int, bool]]:
    """For each file of src/, whether each line with code was executed by any test."""
    lines: dict[str, dict[int, bool]] = collections.defaultdict(dict)
    data = sorted(build.rglob("*.gcda"))
    with tempfile.TemporaryDirectory() as scratch:
        for first in range(0, len(data), 50):
            chunk = [str(path.resolve()) for path in data[first : first + 50]]
            subprocess.run(["gcov", "--json-format", *chunk], cwd=scratch, check=True, capture_output=True)
        for report in pathlib.Path(scratch).glob("*.gcov.json.gz"):
            with gzip.open(report, "rt") as stream:
                for entry in json.load(stream)["files"]:
                    path = pathlib.Path(entry["file"])
                    path = path if path.is_absolute() else build / path
                    if not path.resolve().is_relative_to(ROOT / "src"):
                        continue
                    known = lines[str(path.resolve().relative_to(ROOT))]
                    for line in entry["lines"]:
                        known[line["line_number"]] = known.get(line["line_number"], False) or line["count"] > 0
    return lines


def main() -> None:
    """Prints a table by folder and the total."""
    lines = executed_lines(pathlib.Path(sys.argv[1]).resolve())
    folders: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for name, known in lines.items():
        for key in (name.split("/")[1], "total"):
            folders[key][0] += sum(known.values())
            folders[key][1] += len(known)
    print("| folder | lines | executed |\n|---|---|---|")
    for folder, (hit, total) in sorted(folders.items(), key=lambda item: (item[0] == "total", item[0])):
        print(f"| {folder} | {total} | {100 * hit / max(total, 1):.1f}% |")


if __name__ == "__main__":
    main()
