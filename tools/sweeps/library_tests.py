"""`make library-tests`: scikit-learn's and SciPy's own tests of the array API on tensors, plainly and with each test compiled.

Each test function runs twice in a process without Tatara, and twice compiled in another one: the second call is one of an entry.
Tests that end otherwise are printed. ARGS="sklearn", ARGS="scipy --parts special,fft", ARGS="sklearn --match pca --jobs 2".
scikit-learn and what it needs (joblib, threadpoolctl) are not among the packages of development: name their folder in PYTHONPATH.

The file is also the plugin of pytest that runs them (`-p library_tests`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TURNS = 2
# SciPy's subpackages with tests over namespaces.
PARTS = [
    "special",
    "fft",
    "cluster",
    "constants",
    "differentiate",
    "integrate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "stats",
]


def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """In place of pytest's one call of the test function."""
    mode = os.environ.get("TATARA_LIBRARY_TESTS")
    if mode is None or pyfuncitem.get_closest_marker("asyncio") is not None:
        return None
    function = pyfuncitem.obj
    if mode == "compiled":
        import tatara

        function = tatara.compile(function)
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for _ in range(TURNS):
        function(**given)
    return True


def pytest_runtest_logreport(report: Any) -> None:
    path = os.environ.get("TATARA_LIBRARY_TESTS_OUT")
    if path is None or os.environ.get("PYTEST_XDIST_WORKER") or (report.when != "call" and report.outcome == "passed"):
        return
    text = str(report.longrepr)[-1500:] if report.outcome == "failed" else ""
    with open(path, "a", encoding="utf-8") as out:
        out.write(json.dumps([report.nodeid, report.outcome, text, round(report.duration, 3)]) + "\n")


def folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        sys.exit(f"{package} is not here")
    return Path(found.origin).parent


def selection(options: argparse.Namespace) -> list[str]:
    if options.library == "scipy":
        root = folder("scipy")
        return ["-m", "array_api_backends", *(str(root / part / "tests") for part in options.parts.split(","))]
    files = [each for each in sorted(folder("sklearn").rglob("test_*.py")) if "array_api" in each.read_text()]
    return ["-k", "array_api and torch", *map(str, files)]


def outcomes(options: argparse.Namespace, mode: str) -> dict[str, list[Any]]:
    """By test: how it ended, what was wrong, seconds."""
    with tempfile.TemporaryDirectory() as place:
        out, settings = Path(place, "rows"), Path(place, "pytest.ini")
        settings.write_text("[pytest]\n")
        chosen = selection(options)
        if options.match:
            at = chosen.index("-k") + 1 if "-k" in chosen else -1
            if at > 0:
                chosen[at] += f" and ({options.match})"
            else:
                chosen = ["-k", options.match, *chosen]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "library_tests", "-p", "no:cacheprovider", "--tb=short"]
        command += ["-c", str(settings), "--rootdir", str(folder(options.library).parent), "-W", "ignore", *chosen]
        if options.jobs > 1:
            command += ["-n", str(options.jobs)]
        env = dict(os.environ, TATARA_LIBRARY_TESTS=mode, TATARA_LIBRARY_TESTS_OUT=str(out), OMP_WAIT_POLICY="passive")
        env["SCIPY_ARRAY_API"] = '["torch"]' if options.library == "scipy" else "1"
        env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), env.get("PYTHONPATH", "")])
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        print(
            f"{mode}: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-500:]}", flush=True
        )
        rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return {name: rest for name, *rest in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["sklearn", "scipy"])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--match", default="")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    plain, compiled = (outcomes(options, mode) for mode in ("plain", "compiled"))
    differ = sorted(name for name in plain if compiled.get(name, ["missing"])[0] != plain[name][0])
    for name in differ:
        how, text, _ = compiled.get(name, ["missing", "", 0])
        print(json.dumps({"test": name, "plain": plain[name][0], "compiled": how, "text": text}))
    passed = sum(row[0] == "passed" for row in plain.values())
    seconds = [round(sum(row[2] for row in each.values())) for each in (plain, compiled)]
    print(json.dumps({"tests": len(plain), "passed plainly": passed, "differ": len(differ), "seconds": seconds}))
    return 1 if differ or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
