"""The samples of one OpInfo entry in one dtype: compiled and eager, compared in everything a program can see."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

import tatara
from tatara._report import report_of

STATES = ["native", "host", "tape", "broke", "wrong"]
# Entries whose values are whatever was in memory.
_LOCATION = re.compile(r" \(at [^()]*\)$")
UNSPECIFIED = ("empty", "new_empty", "empty_like", "new_empty_strided", "empty_strided", "empty_permuted")


def clone(tree: Any) -> Any:
    """Copies with the same strides and the same sharing of memory."""
    storages: dict[int, torch.Tensor] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.layout != torch.strided or type(value) is not torch.Tensor:
            return value.detach().clone()
        plain = torch._conj(value.detach()) if value.is_conj() else value.detach()
        plain = torch._neg_view(plain) if value.is_neg() else plain
        storage = plain.untyped_storage()
        if storage.data_ptr() not in storages or storage.nbytes() == 0:
            whole = torch.empty(0, dtype=torch.uint8)
            whole.set_(storage.clone())
            storages[storage.data_ptr()] = whole
        made = torch.empty(0, dtype=plain.dtype)
        made.set_(storages[storage.data_ptr()].untyped_storage(), plain.storage_offset(), plain.size(), plain.stride())
        made = torch._neg_view(made) if value.is_neg() else made
        return torch._conj(made) if value.is_conj() else made

    return tree_map(copy, tree)


def _run(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    value, args, kwargs = arguments
    try:
        return function(value, *args, **kwargs), None
    except Exception as error:  # noqa: BLE001 - the exception is the result that is compared
        return None, error


def _close(ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return "values: " + " ".join(str(error).split())[:200]
    except Exception as error:  # noqa: BLE001
        return f"not comparable: {error}"
    return None


def _wide(tree: Any) -> Any:
    wider = {
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.float32: torch.float64,
        torch.complex64: torch.complex128,
    }

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            return value.to(wider.get(value.dtype, value.dtype))
        return wider.get(value, value) if isinstance(value, torch.dtype) else value

    return tree_map(convert, tree)


def _as_accurate(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether ours is about as near to the exact values as eager's own: rounding, not another result."""
    if not (theirs.is_floating_point() or theirs.is_complex()) or exact.shape != theirs.shape:
        return False
    kind = torch.complex128 if theirs.is_complex() else torch.float64
    a, b, e = ours.to(kind), theirs.to(kind), exact.to(kind)
    odd = ~(a.isfinite() & b.isfinite() & e.isfinite())
    if not torch.equal(a[odd].nan_to_num(7.0), b[odd].nan_to_num(7.0)):
        return False
    a, b, e = a[~odd], b[~odd], e[~odd]
    if e.numel() == 0:
        return True
    step = torch.finfo(theirs.dtype).eps
    allowed = 2 * (b - e).abs().max() + 4 * step * e.abs().max()
    return bool((a - e).abs().max() <= allowed)


def _same_layout(ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype} instead of {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}"
    if ours.layout != theirs.layout:
        return f"layout {ours.layout} instead of {theirs.layout}"
    if theirs.layout != torch.strided:
        return None
    if ours.is_conj() != theirs.is_conj() or ours.is_neg() != theirs.is_neg():
        return "conjugate or negative bit"
    if theirs.numel() == 0:
        return None
    if any(ours.stride(d) != theirs.stride(d) for d, size in enumerate(theirs.shape) if size > 1):
        return f"strides {ours.stride()} instead of {theirs.stride()}"
    return None


def compare(ours: Any, theirs: Any, exact: Callable[[], Any], values: bool) -> str | None:
    """Why two results differ; `exact` gives the result in double precision."""
    left, left_spec = tree_flatten(ours)
    right, right_spec = tree_flatten(theirs)
    if left_spec != right_spec:
        return f"structure {left_spec} instead of {right_spec}"
    for i, (a, b) in enumerate(zip(left, right)):
        if isinstance(b, torch.Tensor):
            if type(a) is not type(b):
                return f"type {type(a).__name__}"
            if problem := _same_layout(a, b):
                return problem
            problem = _close(a, b) if values else None
            if problem is None:
                continue
            reference, _ = tree_flatten(exact())
            if len(reference) != len(right) or not isinstance(reference[i], torch.Tensor):
                return problem
            if not _as_accurate(a, b, reference[i]):
                return problem
        elif type(a) is not type(b):
            return f"type {type(a).__name__} instead of {type(b).__name__}"
        elif isinstance(b, (int, float, complex, str, torch.dtype, torch.Size)) and a != b and (a == a or b == b):
            return f"value {a!r} instead of {b!r}"
    return None


def _aliases(result: Any, inputs: Any) -> list[tuple[int, int, bool, int]]:
    """Which results share memory with which inputs and earlier results, at which offset; whether they are the same."""

    def address(t: Any) -> int:
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
            return 0
        return t.untyped_storage().data_ptr()

    found = []
    results, operands = tree_flatten(result)[0], tree_flatten(inputs)[0]
    for i, a in enumerate(results):
        for j, b in enumerate(operands + results[:i]):
            if address(a) and address(a) == address(b):
                offset = a.storage_offset() if a.numel() else 0
                found.append((i, j, a is b, offset))
    return found


def _state(compiled: Any, before: dict[str, int], row: dict[str, Any]) -> str:
    """How the sample ran, with the reasons counted in the row."""
    after = tatara.stats()
    report = report_of(compiled)
    reasons: Counter[str] = row["reasons"]
    state = "native"
    for call in report.host_calls:
        row["hosts"][call.operator] += 1
        state = "host"
    for part in compiled._report()["entries"]:
        if part["fallback"] or part["problem"]:
            why = (part["fallback"] or part["problem"]).splitlines()[0]
            reasons["tape: " + _LOCATION.sub("", why)[:200]] += 1
            state = "tape"
    if report.breaks:
        reasons.update("break: " + item.reason[:200] for item in report.breaks)
        state = "broke"
    elif after["graphs"] == before["graphs"] and not report.graphs:
        if after["fallbacks"] > before["fallbacks"] or not compiled._report()["entries"]:
            reasons["not captured"] += 1
            state = "broke"
    return state


def _check(op: Any, sample: Any, number: int, row: dict[str, Any]) -> str | None:
    arguments = (sample.input, sample.args, sample.kwargs)
    theirs_in, ours_in = clone(arguments), clone(arguments)

    def call(value: Any, /, *args: Any, **kwargs: Any) -> Any:
        return op.op(value, *args, **kwargs)

    def exact() -> Any:
        torch.manual_seed(number)
        return _run(op.op, _wide(clone(arguments)))[0]

    compiled = tatara.compile(call)
    before = tatara.stats()
    with torch.no_grad():
        torch.manual_seed(number)
        expected, expected_error = _run(op.op, theirs_in)
        theirs_state = torch.get_rng_state()
        torch.manual_seed(number)
        actual, actual_error = _run(compiled, ours_in)
        ours_state = torch.get_rng_state()
        row["counts"][_state(compiled, before, row)] += 1
        if type(expected_error) is not type(actual_error):
            return f"exception {actual_error!r} instead of {expected_error!r}"[:300]
        if expected_error is not None:
            return None
        if problem := compare(actual, expected, exact, op.name not in UNSPECIFIED):
            return problem
        if problem := compare(ours_in, theirs_in, lambda: None, True):
            return "inputs afterwards: " + problem
        if _aliases(actual, ours_in) != _aliases(expected, theirs_in):
            return f"aliasing {_aliases(actual, ours_in)} instead of {_aliases(expected, theirs_in)}"
        if not torch.equal(ours_state, theirs_state):
            return "the state of the random generator"
    return None


def check_entry(op: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs every sample (at most `limit`) of an entry in a dtype."""
    start = time.monotonic()
    row: dict[str, Any] = {"name": op.formatted_name, "dtype": dtype_name, "state": "native", "samples": 0, "wrong": []}
    row |= {"counts": Counter(), "reasons": Counter(), "hosts": Counter()}
    try:
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", getattr(torch, dtype_name), requires_grad=False))
    except Exception as error:  # noqa: BLE001 - the suite itself cannot make samples here
        row["reasons"][f"no samples: {error}"] += 1
        samples = []
    for number, sample in enumerate(samples[:limit]):
        progress(number)
        row["samples"] += 1
        try:
            problem = _check(op, sample, number, row)
        except Exception as error:  # noqa: BLE001 - a defect of the harness or of the report is a row too
            problem = f"the check itself failed: {error!r}"
        if problem:
            row["wrong"].append(f"sample {number}: {problem}")
        if number % 16 == 15:
            tatara.reset()
    tatara.reset()
    row["state"] = next((s for s in reversed(STATES) if row["counts"].get(s)), "native")
    if row["wrong"]:
        row["state"] = "wrong"
    row["seconds"] = round(time.monotonic() - start, 3)
    return row
