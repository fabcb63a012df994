"""`make bench-numpy`: the NumPy programs of the NPBench suite as their authors wrote them, under NumPy and compiled.

The programs are fetched by name at a pinned commit, or read from `--source FOLDER`, a checkout of it; none is kept here.
Each runs in a process of its own with empty caches and a time limit. Results and arguments are compared with NumPy's: types
and shapes are equal, values as close as sums in another order are. Prints a JSON line for each program, and a summary to
stderr.

With `--device` (`make bench-numpy-gpu`) a program is `tatara.wrap_numpy` of the author's function, given tensors there. It is
timed compiled, as eager torch calls, and by NumPy on the CPU. Programs that write to their arguments get fresh ones before
each call, which are no part of the time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import harness

REPOSITORY = "https://github.com/spcl/npbench"
COMMIT = "f2d7f27d87ba4881991e62c18a607aa6ba52b260"
ROUND_SECONDS = 1.0  # so long the contenders are timed, in turns
TURN_SECONDS = 0.05
MOST_CALLS = 100  # of one turn
TOLERANCE = 1e-7  # of the largest element; 1e-4 for float32


def fetch(folder: str) -> pathlib.Path:
    """A checkout of the suite in `folder`."""
    for command in (
        ["init", "-q", folder],
        ["-C", folder, "fetch", "-q", "--depth", "1", REPOSITORY, COMMIT],
        ["-C", folder, "checkout", "-q", "FETCH_HEAD"],
    ):
        subprocess.run(["git", *command], check=True)
    return pathlib.Path(folder)


def facts_of(source: pathlib.Path) -> dict[str, dict[str, Any]]:
    """What the suite says of each program, by the program's name."""
    found = {}
    for path in sorted((source / "bench_info").glob("*.json")):
        facts = json.loads(path.read_text())["benchmark"]
        found[facts["module_name"]] = facts
    return found


def load(source: pathlib.Path, facts: dict[str, Any], suffix: str) -> Any:
    """One of a program's modules: its inputs (suffix "") or the program ("_numpy")."""
    name = facts["module_name"] + suffix
    path = source / "npbench" / "benchmarks" / facts["relative_path"] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments_of(source: pathlib.Path, facts: dict[str, Any], preset: str, scale: float) -> list[Any]:
    """The program's arguments; integers of the preset are `scale` times as large."""
    values = {
        name: max(4, int(value * scale)) if isinstance(value, int) and scale != 1 else value
        for name, value in facts["parameters"][preset].items()
    }
    init = facts.get("init")
    if init and init["func_name"]:
        made = getattr(load(source, facts, ""), init["func_name"])(*(values[name] for name in init["input_args"]))
        outputs = init["output_args"]
        values.update(zip(outputs, made if len(outputs) > 1 else [made], strict=True))
    return [values[name] for name in facts["input_args"]]


def difference(mine: Any, theirs: Any, tolerance: float, place: str = "result") -> str | None:
    """How a value differs from NumPy's; None where it does not."""
    import numpy as np

    if isinstance(theirs, (tuple, list)):
        if type(mine) is not type(theirs) or len(mine) != len(theirs):
            return f"{place}: {type(mine).__name__} for {type(theirs).__name__}"
        found = (
            difference(a, b, tolerance, f"{place}[{i}]") for i, (a, b) in enumerate(zip(mine, theirs, strict=True))
        )
        return next((each for each in found if each), None)
    if type(mine) is not type(theirs):
        return f"{place}: {type(mine).__name__} for {type(theirs).__name__}"
    if not isinstance(theirs, (np.ndarray, np.generic, float, complex)):
        return None if mine == theirs else f"{place}: {mine!r} for {theirs!r}"
    a, b = np.asarray(mine), np.asarray(theirs)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{place}: {a.dtype}{a.shape} for {b.dtype}{b.shape}"
    if b.dtype.kind not in "fc":
        return None if np.array_equal(a, b) else f"{place}: {np.count_nonzero(a != b)} elements differ"
    if b.dtype.itemsize // (2 if b.dtype.kind == "c" else 1) == 4:
        tolerance = max(tolerance, 1e-4)
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        return None
    return f"{place}: off by {float(np.nanmax(np.abs(a - b))):.3g} of {scale:.3g}"


def leaves_of(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in leaves_of(each)]
    return [value]


class Judge:
    """Compares with NumPy's results. Chaotic programs (bodies that meet, the edge of a fractal) turn the last bit of an input
    into any digit: where results differ, they may by ten times what NumPy's own do for inputs of which each number is the next
    one.
    """

    def __init__(self, program: Callable[..., Any], original: list[Any], expected: Any) -> None:
        self.program, self.original, self.expected = program, original, expected
        self.chaotic = False
        self.spreads: list[float] | None = None

    def wrong(self, got: Any) -> str | None:
        import numpy as np

        found = difference(got, self.expected, TOLERANCE)
        if found is None or "off by" not in found:
            return found
        if self.spreads is None:
            disturbed = [self._next(each) for each in copy.deepcopy(self.original)]
            result = self.program(*disturbed)
            self.spreads = self._apart((result, tuple(disturbed)))
        mine = self._apart(got)
        if not np.isfinite(mine).all() or any(a > 10 * b for a, b in zip(mine, self.spreads, strict=True)):
            return found
        self.chaotic = True
        return None

    @staticmethod
    def _next(value: Any) -> Any:
        import numpy as np

        array = np.asarray(value)
        return np.nextafter(array, np.inf)[()] if array.dtype.kind == "f" else value

    def _apart(self, got: Any) -> list[float]:
        """How far each result is from NumPy's; beside it, what a rounding of each element makes of itself."""
        import numpy as np

        found = []
        for a, b in zip(leaves_of(got), leaves_of(self.expected), strict=True):
            numbers = isinstance(b, (np.ndarray, np.generic, float, complex)) and np.asarray(b).size > 0
            off = float(np.nanmax(np.abs(np.asarray(a) - np.asarray(b)))) if numbers else 0.0
            found.append(off + (1e-12 * float(np.nanmax(np.abs(b))) if numbers else 0.0))
        return found


def medians_ms(calls: list[Callable[[], object]], prepare: Callable[[], object], seconds: float) -> list[float]:
    """Of calls for so many seconds, at least three each; `prepare` makes fresh arguments before each.

    They are timed in turns of some calls, so that what else the machine does slows all of them down.
    """
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while len(times[0]) < 3 or time.perf_counter() < end:
        for call, taken in zip(calls, times, strict=True):
            spent = 0.0
            while spent < TURN_SECONDS:
                prepare()
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
                spent += max(taken[-1], TURN_SECONDS / MOST_CALLS)
    return [1e3 * statistics.median(taken) for taken in times]


def measure_on(device: str, program: Callable[..., Any], original: list[Any], expected: Any) -> dict[str, Any]:
    """The row of one program as a function of tensors on a device."""
    import torch

    import numpy as np
    import tatara
    from tatara.report._report import report_of

    on_device = [torch.from_numpy(each).to(device) if isinstance(each, np.ndarray) else each for each in original]
    state: dict[str, Any] = {}

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def prepare() -> None:
        state["arrays"] = copy.deepcopy(original)
        state["tensors"] = [each.clone() if isinstance(each, torch.Tensor) else each for each in on_device]
        wait()

    def on_tensors(function: Callable[..., Any]) -> None:
        state["result"] = function(*state["tensors"])
        wait()

    def as_arrays(value: Any, like: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(as_arrays(*pair) for pair in zip(value, like, strict=True))
        if not isinstance(value, torch.Tensor):
            return value
        array = value.resolve_conj().cpu().numpy()
        return array if isinstance(like, np.ndarray) else type(like)(array[()])

    eager = tatara.wrap_numpy(program)
    compiled = tatara.compile(eager)
    judge = Judge(program, original, expected)
    row: dict[str, Any] = {}
    for key, function in (("wrong", compiled), ("eager_wrong", eager)):
        start = time.perf_counter()
        row[key] = None
        for turn in range(3):
            prepare()
            try:
                on_tensors(function)
            except tatara.Error as error:
                row[key] = f"{type(error).__name__}: {error}"
                break
            if turn == 0 and function is compiled:
                row["cold_s"] = time.perf_counter() - start
            got = as_arrays((state["result"], tuple(state["tensors"])), (expected[0], expected[1]))
            found = judge.wrong(got)
            if found:
                row[key] = f"call {turn + 1}: {found}"
                break
    row["right"], row["chaotic"] = row["wrong"] is None, judge.chaotic
    calls = {"numpy_ms": lambda: program(*state["arrays"])}
    if row["right"]:
        calls["compiled_ms"] = lambda: on_tensors(compiled)
    if row["eager_wrong"] is None:
        calls["eager_ms"] = lambda: on_tensors(eager)
    writes = difference(tuple(original), expected[1], 0.0) is not None
    fresh = prepare if writes else (lambda: None)
    row |= zip(calls, medians_ms(list(calls.values()), fresh, ROUND_SECONDS), strict=True)
    if row["right"]:
        row["ratio"] = row["numpy_ms"] / row["compiled_ms"]
    if row["right"] and "eager_ms" in row:
        row["to_eager"] = row["eager_ms"] / row["compiled_ms"]
    report = report_of(compiled)
    row |= {"graphs": len(report.graphs), "breaks": len(report.breaks), "kernels": len(report.kernels)}
    row["reasons"] = sorted({each.reason for each in report.breaks})[:4]
    return row


def measure(source: pathlib.Path, facts: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The row of one program, in this process."""
    import numpy as np
    import tatara
    from tatara.report._report import report_of

    np.seterr(all="ignore")
    program = getattr(load(source, facts, "_numpy"), facts["func_name"])
    original = arguments_of(source, facts, options.preset, options.scale)
    state: dict[str, Any] = {}

    def prepare() -> None:
        state["arguments"] = copy.deepcopy(original)

    def run(function: Callable[..., Any]) -> tuple[Any, Any]:
        prepare()
        result = function(*state["arguments"])
        return result, tuple(state["arguments"])

    expected = run(program)
    if options.device:
        return measure_on(options.device, program, original, expected)
    compiled = tatara.compile(program)
    judge = Judge(program, original, expected)
    start = time.perf_counter()
    wrong = None
    cold = 0.0
    for turn in range(3):
        got = run(compiled)
        cold = cold or time.perf_counter() - start
        wrong = wrong or judge.wrong(got)
        if wrong:
            wrong = f"call {turn + 1}: {wrong}"
            break
    numpy_ms, compiled_ms = medians_ms(
        [lambda: program(*state["arguments"]), lambda: compiled(*state["arguments"])], prepare, ROUND_SECONDS
    )
    report = report_of(compiled)
    return {
        "right": wrong is None,
        "wrong": wrong,
        "chaotic": judge.chaotic,
        "numpy_ms": numpy_ms,
        "compiled_ms": compiled_ms,
        "ratio": numpy_ms / compiled_ms,
        "graphs": len(report.graphs),
        "breaks": len(report.breaks),
        "recompiles": len(report.recompiles),
        "kernels": len(report.kernels),
        "cold_s": cold,
        "reasons": sorted({each.reason for each in report.breaks})[:4],
    }


def in_process(name: str, arguments: argparse.Namespace, source: pathlib.Path) -> dict[str, Any]:
    """The row that a process of its own measures."""
    with tempfile.TemporaryDirectory() as caches:
        command = [sys.executable, __file__, "--child", name, "--source", str(source)]
        command += ["--preset", arguments.preset, "--scale", str(arguments.scale)]
        command += ["--device", arguments.device] if arguments.device else []
        environment = {**os.environ, "TATARA_CACHE_DIR": caches}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=arguments.limit
            )
        except subprocess.TimeoutExpired:
            return {"program": name, "failed": f"no end within {arguments.limit} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ended by {done.returncode} without a word"]
        return {"program": name, "failed": lines[-1]}
    return {"program": name, **json.loads(done.stdout.strip().splitlines()[-1])}


def rows_of(names: list[str], arguments: argparse.Namespace, source: pathlib.Path) -> Iterator[dict[str, Any]]:
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        yield from pool.map(lambda name: in_process(name, arguments, source), names)


def print_summary(rows: list[dict[str, Any]]) -> None:
    measured = [row for row in rows if "ratio" in row]
    right = sum(row["right"] for row in measured)
    mean = harness.geomean(measured, "ratio")
    print(
        f"{right} of {len(rows)} right; {mean or 0:.2f} of NumPy's speed over {len(measured)}; "
        f"{sum(row['cold_s'] for row in measured):.1f} s cold in all",
        file=sys.stderr,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    parser.add_argument("--source", help="a checkout of the suite; without it, it is fetched")
    parser.add_argument("--preset", default="S", help="the suite's name of a set of sizes")
    parser.add_argument("--scale", type=float, default=1.0, help="the preset's integers times this")
    parser.add_argument("--device", help="run the programs on tensors there, by `tatara.wrap_numpy`")
    parser.add_argument("--limit", type=float, default=120, help="seconds of one program")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(arguments.source) if arguments.source else fetch(folder)
        facts = facts_of(source)
        if arguments.child:
            print(json.dumps(measure(source, facts[arguments.child], arguments)))
            return 0
        rows = []
        for row in rows_of(arguments.programs or list(facts), arguments, source):
            rows.append(row)
            print(json.dumps(row), flush=True)
        print_summary(rows)
    return 0 if all(row.get("right") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
