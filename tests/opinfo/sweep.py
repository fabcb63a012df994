"""`make opinfo`: every sample of every OpInfo entry, compiled, beside eager.

Each entry runs in a worker process, so a crash or a hang is one row of the table and not the end of the sweep. Compared for
each sample: the exception or the values (by dtype tolerance), dtype, shape, strides, aliasing of inputs, and what happened
to the inputs. An entry is native for a dtype when no sample needed a host call or a graph break.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import queue
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

DTYPES = ["bool", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
ENTRY_TIMEOUT_S = 120.0


@dataclass
class Row:
    """Outcome of one entry in one dtype."""

    name: str
    dtype: str
    samples: int = 0
    wrong: list[str] = field(default_factory=list)
    native: bool = True
    reasons: list[str] = field(default_factory=list)
    crashed: bool = False


def _clone(tree: Any) -> Any:
    """Copies of the tensors with their strides; views of one base stay separate tensors."""

    def copy(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            result = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
            return result.copy_(value.detach()) if value.numel() else result
        return value

    return tree_map(copy, tree)


def _run(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    sample_input, args, kwargs = arguments
    try:
        return function(sample_input, *args, **kwargs), None
    except Exception as error:  # noqa: BLE001 - the exception is the result that is compared
        return None, error


def _same_tensor(ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype} instead of {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}"
    if theirs.layout != torch.strided:
        return None if ours.layout == theirs.layout else "layout"
    significant = [d for d, size in enumerate(theirs.shape) if size > 1] if theirs.numel() else []
    if any(ours.stride(d) != theirs.stride(d) for d in significant):
        return f"strides {ours.stride()} instead of {theirs.stride()}"
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return "values: " + str(error).replace("\n", " ")[:160]
    except Exception as error:  # noqa: BLE001
        return f"not comparable: {error}"
    return None


def _compare(ours: Any, theirs: Any) -> str | None:
    left, left_spec = tree_flatten(ours)
    right, right_spec = tree_flatten(theirs)
    if left_spec != right_spec:
        return f"structure {left_spec} instead of {right_spec}"
    for a, b in zip(left, right):
        if isinstance(b, torch.Tensor):
            if not isinstance(a, torch.Tensor):
                return f"type {type(a).__name__}"
            if problem := _same_tensor(a, b):
                return problem
        elif type(a) is not type(b):
            return f"type {type(a).__name__} instead of {type(b).__name__}"
        elif not isinstance(b, torch.Generator) and a != b and not (a != a and b != b):
            return f"value {a!r} instead of {b!r}"
    return None


def _aliases(result: Any, inputs: Any) -> list[tuple[int, int]]:
    def storages(tree: Any) -> list[int]:
        return [
            t.untyped_storage().data_ptr() if isinstance(t, torch.Tensor) and t.layout == torch.strided else -1
            for t in tree_flatten(tree)[0]
        ]

    ours, theirs = storages(result), storages(inputs)
    return [(i, j) for i, a in enumerate(ours) for j, b in enumerate(theirs) if a > 0 and a == b]


def check_entry(op: Any, dtype_name: str, limit: int | None) -> Row:
    """Runs every sample (at most `limit`) of an entry in a dtype."""
    import tatara

    dtype = getattr(torch, dtype_name)
    row = Row(op.formatted_name, dtype_name)
    try:
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception as error:  # noqa: BLE001 - the suite itself cannot make samples here
        row.reasons.append(f"no samples: {error}")
        return row
    for number, sample in enumerate(samples[:limit]):
        arguments = (sample.input, sample.args, sample.kwargs)
        eager_arguments, our_arguments = _clone(arguments), _clone(arguments)

        def call(value: Any, *args: Any, **kwargs: Any) -> Any:
            return op.op(value, *args, **kwargs)

        compiled = tatara.compile(call)
        before = tatara.stats()
        with torch.no_grad():
            torch.manual_seed(number)
            expected, expected_error = _run(op.op, eager_arguments)
            torch.manual_seed(number)
            actual, actual_error = _run(compiled, our_arguments)
        after = tatara.stats()
        row.samples += 1
        problem = None
        if type(expected_error) is not type(actual_error):
            problem = f"exception {actual_error!r} instead of {expected_error!r}"
        elif expected_error is None:
            nondeterministic = op.name.startswith(("empty", "new_empty")) or "empty" in op.name
            problem = _compare(actual, expected) if not nondeterministic else None
            problem = problem or _compare(our_arguments, eager_arguments)
            if problem is None and _aliases(actual, our_arguments) != _aliases(expected, eager_arguments):
                problem = "aliasing of inputs differs"
        if problem:
            row.wrong.append(f"sample {number}: {problem}")
        if any(after.get(key, 0) > before.get(key, 0) for key in ("host_calls", "breaks")) or after.get(
            "graphs", 0
        ) == before.get("graphs", 0):
            row.native = False
        if number % 16 == 15:
            tatara.reset()
    tatara.reset()
    return row


def _worker(tasks: Any, results: Any, limit: int | None) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    entries = {op.formatted_name: op for op in op_db}
    while (task := tasks.get()) is not None:
        name, dtype = task
        results.put(("start", task, None))
        row = check_entry(entries[name], dtype, limit)
        results.put(("done", task, asdict(row)))


class Sweep:
    """Distributes tasks over worker processes and replaces the ones that die or hang."""

    def __init__(self, tasks: list[tuple[str, str]], workers: int, limit: int | None) -> None:
        self._context = mp.get_context("fork")
        self._pending = list(reversed(tasks))
        self._workers = workers
        self._limit = limit
        self.rows: list[Row] = []

    def _start(self) -> dict[str, Any]:
        worker: dict[str, Any] = {"tasks": self._context.Queue(), "results": self._context.Queue()}
        worker["process"] = self._context.Process(
            target=_worker, args=(worker["tasks"], worker["results"], self._limit), daemon=True
        )
        worker["process"].start()
        self._feed(worker)
        return worker

    def _feed(self, worker: dict[str, Any]) -> None:
        worker["task"] = self._pending.pop() if self._pending else None
        worker["since"] = time.monotonic()
        worker["tasks"].put(worker["task"])

    def run(self) -> list[Row]:
        active = [self._start() for _ in range(self._workers)]
        while active:
            for worker in list(active):
                try:
                    kind, _, row = worker["results"].get(timeout=0.05)
                    if kind == "done":
                        self.rows.append(Row(**row))
                        self._feed(worker)
                    continue
                except queue.Empty:
                    pass
                late = time.monotonic() - worker["since"] > ENTRY_TIMEOUT_S
                if worker["process"].is_alive() and not late:
                    continue
                worker["process"].kill()
                active.remove(worker)
                if worker["task"] is not None:
                    name, dtype = worker["task"]
                    what = "timed out" if late else f"died with exit code {worker['process'].exitcode}"
                    self.rows.append(Row(name, dtype, wrong=[what], native=False, crashed=True))
                    active.append(self._start())
        return self.rows


def main() -> int:
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", nargs="*", default=DTYPES)
    parser.add_argument("--ops", nargs="*", help="only entries whose name contains one of these")
    parser.add_argument("--limit", type=int, help="samples per entry and dtype")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", help="write all rows here")
    arguments = parser.parse_args()
    tasks = [
        (op.formatted_name, dtype)
        for op in op_db
        for dtype in arguments.dtypes
        if getattr(torch, dtype) in op.supported_dtypes("cpu")
        and (not arguments.ops or any(part in op.formatted_name for part in arguments.ops))
    ]
    rows = Sweep(tasks, arguments.workers, arguments.limit).run()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)
    for row in rows:
        if row.wrong:
            print(
                f"WRONG {row.name} {row.dtype}: {row.wrong[0]}" + (f" (+{len(row.wrong) - 1})" if row.wrong[1:] else "")
            )
    table: Counter[tuple[str, str]] = Counter()
    for row in rows:
        state = "crashed" if row.crashed else "wrong" if row.wrong else "native" if row.native else "right, not native"
        table[row.dtype, state] += 1
    print("dtype | native | right, not native | wrong | crashed")
    for dtype in arguments.dtypes:
        print(" | ".join([dtype, *(str(table[dtype, s]) for s in ("native", "right, not native", "wrong", "crashed"))]))
    failed = sum(1 for row in rows if row.wrong)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
