"""`make array-api`: the test suite of the array API standard, pinned, over tensors and NumPy arrays, eager and compiled.

The suite is fetched by name at a pinned commit into `--folder`, or lies there already; none of it is kept here. Prints a line
of a table for each namespace: tests that passed, failed and were skipped. Tests named in tools/array_api_xfails.txt, each with
the sentence of the standard that allows what the suite does not, are expected to fail. `--device cuda` puts the arrays on a GPU.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

REPOSITORY = "https://github.com/data-apis/array-api-tests"
COMMIT = "55fcc60179efa2680ddd6cd926ddf17b83530e2b"
STANDARD = "https://github.com/data-apis/array-api"
STANDARD_COMMIT = "5f847a3858875c682ae901aa22b0413bf24be9da"
VERSION = "2025.12"

ROOT = pathlib.Path(__file__).resolve().parent.parent

MODES = {
    "arrays": "exec('import array_api_modes; xp = array_api_modes.eager()')",
    "compiled": "exec('import array_api_modes; xp = array_api_modes.compiled()')",
    "numpy": "tatara.array_api.numpy",
    "compiled-numpy": "exec('import array_api_modes; xp = array_api_modes.compiled_numpy()')",
    "tensors": "tatara.array_api",
}


def fetch(repository: str, commit: str, folder: pathlib.Path) -> None:
    """A checkout in `folder`, unless one is there."""
    if any(folder.glob("*")):
        return
    for command in (
        ["init", "-q", str(folder)],
        ["-C", str(folder), "fetch", "-q", "--depth", "1", repository, commit],
        ["-C", str(folder), "checkout", "-q", "FETCH_HEAD"],
    ):
        subprocess.run(["git", *command], check=True)


def run(mode: str, arguments: argparse.Namespace) -> tuple[dict[str, int], str]:
    """Counts of one run of the suite, and its output."""
    folder: pathlib.Path = arguments.folder
    paths = [str(ROOT / "python"), str(ROOT / "tools" / "sweeps"), str(folder / "packages")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "ARRAY_API_TESTS_MODULE": MODES[mode],
        "ARRAY_API_TESTS_VERSION": VERSION,
        "ARRAY_API_DEVICE": arguments.device,
    }
    expected = ROOT / "tools" / "array_api_xfails.txt"
    lines = expected.read_text().splitlines() if expected.exists() else []
    chosen = folder / f"xfails-{mode}.txt"
    kinds = (f"{mode.removeprefix('compiled-')}: ", f"{arguments.device or 'cpu'}: ")
    chosen.write_text("\n".join(line.split(": ", 1)[1] for line in lines if line.startswith(kinds)) + "\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "pytest.ini",
        "--rootdir",
        ".",
        "-p",
        "no:cacheprovider",
        "--tb=short",
    ]
    command += [
        "--disable-deadline",
        "--hypothesis-derandomize",
        "--max-examples",
        str(arguments.examples),
        "--xfails-file",
        str(chosen),
    ]
    command += arguments.tests or ["array_api_tests"]
    result = subprocess.run(command, cwd=folder / "suite", env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r"(\d+) (passed|failed|skipped|xfailed|xpassed|errors?)", result.stdout.splitlines()[-1])
    return {name: int(number) for number, name in found}, result.stdout + result.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=pathlib.Path, default=ROOT / "build" / "array-api", help="where the suite is or goes"
    )
    parser.add_argument("--examples", type=int, default=20, help="examples of each test")
    parser.add_argument("--mode", action="append", choices=list(MODES), help="a namespace; all but tensors by default")
    parser.add_argument("--device", default="", help="torch's default device in the run")
    parser.add_argument("tests", nargs="*", help="paths in the suite")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    suite = arguments.folder / "suite"
    suite.mkdir(parents=True, exist_ok=True)
    fetch(REPOSITORY, COMMIT, suite)
    fetch(STANDARD, STANDARD_COMMIT, suite / "array-api")
    packages = arguments.folder / "packages"
    if not packages.exists():
        needed = ["ndindex==1.10.1", "pytest-json-report==1.5.0", "pytest-metadata==3.1.1"]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages), *needed]
        subprocess.run(command, check=True)
    print("| namespace | passed | failed | skipped | expected failures | s |\n|---|---:|---:|---:|---:|---:|")
    wrong = 0
    for mode in arguments.mode or [mode for mode in MODES if mode != "tensors"]:
        start = time.perf_counter()
        counts, output = run(mode, arguments)
        (arguments.folder / f"{mode}.log").write_text(output)
        failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        wrong += failed + (not counts.get("passed"))
        numbers = [counts.get("passed", 0), failed, counts.get("skipped", 0), counts.get("xfailed", 0)]
        print(f"| {mode} | {' | '.join(map(str, numbers))} | {time.perf_counter() - start:.0f} |", flush=True)
    print(f"Outputs are in {arguments.folder}.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
