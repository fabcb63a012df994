"""The samples of one OpInfo entry in one dtype: compiled and eager, compared in everything a program can see."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

import tatara
from odd import odd_samples
from tatara.report._report import parts_of, report_of

STATES = ["raised", "native", "host", "tape", "broke", "wrong"]
# Rows for an entry's samples of bad input, and for samples that were changed (odd.py), stand beside those of the dtypes.
ERRORS = "errors"
ODD = "odd"
AUTOCAST = "autocast"  # the float32 samples, with autocast on
MOST_ODD = 40
Check = Callable[[Any, int, dict[str, Any]], "str | None"]
# What `progress` of check_entry is told while eager runs.
EAGER = -2
_LOCATION = re.compile(r" \(at [^()]*\)$")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
# Entries whose values are whatever was in memory: everything but the values is compared.
UNSPECIFIED = (
    "empty",
    "new_empty",
    "empty_like",
    "new_empty_strided",
    "empty_strided",
    "empty_permuted",
    "resize_",
    "resize_as_",
)
# Results that hold whatever was in memory, by their places: seeds of dropout where none is applied.
UNSPECIFIED_RESULTS = {
    "torch.ops.aten._efficient_attention_forward": (2, 3),
    "torch.ops.aten._flash_attention_forward": (2, 3),
}


def device() -> str:
    """Where the samples lie: the sweep's option --device, which its processes find in the environment."""
    return os.environ.get("TATARA_SWEEP_DEVICE", "cpu")


def random_state() -> Any:
    """The state of the generators that operators there draw from."""
    return torch.get_rng_state() if device() == "cpu" else torch.cuda.get_rng_state()


def clone(tree: Any) -> Any:
    """Copies with the same strides and the same sharing of memory."""
    storages: dict[int, torch.Tensor] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.layout != torch.strided or type(value) is not torch.Tensor or value.device.type == "meta":
            return value.detach().clone()
        plain = torch._conj(value.detach()) if value.is_conj() else value.detach()
        plain = torch._neg_view(plain) if value.is_neg() else plain
        storage = plain.untyped_storage()
        if storage.data_ptr() not in storages or storage.nbytes() == 0:
            whole = torch.empty(0, dtype=torch.uint8, device=value.device)
            whole.set_(storage.clone())
            storages[storage.data_ptr()] = whole
        made = torch.empty(0, dtype=plain.dtype, device=value.device)
        made.set_(storages[storage.data_ptr()].untyped_storage(), plain.storage_offset(), plain.size(), plain.stride())
        made = torch._neg_view(made) if value.is_neg() else made
        return torch._conj(made) if value.is_conj() else made

    return tree_map(copy, tree)


def leaves(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def fresh(arguments: Any) -> Any:
    """Copies that require grad where the originals do."""
    copies = clone(arguments)
    for copy, original in zip(leaves(copies), leaves(arguments), strict=True):
        if original.requires_grad:
            copy.requires_grad_()
    return copies


def cotangents(values: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Random numbers to begin a backward pass with."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(v.shape, dtype=v.dtype, generator=generator) for v in values]


def detached(tree: Any) -> Any:
    """The tensors of a tree without their history."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, tree)


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


def wide(tree: Any) -> Any:
    """The tensors and dtypes of a tree in double precision."""
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


def fresh_wide(tree: Any) -> Any:
    """fresh() in double precision."""
    made = wide(detached(tree))
    for copy, original in zip(leaves(made), leaves(tree), strict=True):
        copy.requires_grad_(original.requires_grad)
    return made


def _as_accurate(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor, slack: int) -> bool:
    """Whether ours is about as near to the exact values as eager's own: rounding, not another result. More `slack` is for
    results of many operators in a row.
    """
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
    allowed = slack * 2 * (b - e).abs().max() + slack * 4 * step * e.abs().max()
    return bool((a - e).abs().max() <= allowed)


def _same_layout(ours: torch.Tensor, theirs: torch.Tensor) -> str | None:
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype} instead of {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}"
    if ours.device != theirs.device:
        return f"device {ours.device} instead of {theirs.device}"
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


def compare(ours: Any, theirs: Any, exact: Callable[[], Any], values: bool, slack: int = 1) -> str | None:
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
            if b.device.type == "meta" or b.dim() > 64:  # nothing can be read
                continue
            problem = _close(a, b) if values else None
            if problem is None:
                continue
            reference, _ = tree_flatten(exact())
            if len(reference) != len(right) or not isinstance(reference[i], torch.Tensor):
                return problem
            if not _as_accurate(a, b, reference[i], slack):
                return problem
        elif type(a) is not type(b):
            return f"type {type(a).__name__} instead of {type(b).__name__}"
        elif isinstance(b, (int, float, complex, str, torch.dtype, torch.Size)) and a != b and (a == a or b == b):
            return f"value {a!r} instead of {b!r}"
    return None


def _aliases(result: Any, inputs: Any) -> list[tuple[int, int, bool, int]]:
    """Which results share memory with which inputs and earlier results, at which offset; whether they are the same."""

    def address(t: Any) -> int:
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided or t._is_zerotensor():
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


def state_of(compiled: Any, before: dict[str, int], row: dict[str, Any]) -> str:
    """How the sample ran, with the reasons counted in the row."""
    after = tatara.stats()
    report = report_of(compiled)
    reasons: Counter[str] = row["reasons"]
    state = "native"
    for call in report.host_calls:
        row["hosts"][call.operator] += 1
        state = "host"
    entries = [entry for made in parts_of(compiled) for entry in made._report()["entries"]]
    for part in entries:
        if part["fallback"] or part["problem"]:
            why = (part["fallback"] or part["problem"]).splitlines()[0]
            reasons["tape: " + _LOCATION.sub("", why)[:200]] += 1
            state = "tape"
    if report.breaks:
        reasons.update("break: " + item.reason[:200] for item in report.breaks)
        state = "broke"
    elif after["graphs"] == before["graphs"] and not report.graphs:
        if after["fallbacks"] > before["fallbacks"] or not entries:
            reasons["not captured"] += 1
            state = "broke"
    return state


def same_error(ours: BaseException | None, theirs: BaseException | None) -> str | None:
    if type(ours) is not type(theirs):
        return f"exception {ours!r} instead of {theirs!r}"[:300]
    # Some messages end with a trace of C++ frames.
    left, right = (_ADDRESS.sub("", str(e).split("\nException raised")[0]) for e in (ours, theirs))
    return None if left == right else f"message {left!r} instead of {right!r}"[:300]


def _shapes(tree: Any) -> list[Any]:
    return [leaf.shape for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


class _Eager:
    """What eager makes of a sample: the result or exception, its inputs afterwards, the generator's state."""

    def __init__(self, op: Any, arguments: Any, number: int) -> None:
        self.inputs = clone(arguments)
        torch.manual_seed(number)
        self.result, self.error = _run(op.op, self.inputs)
        self.random_state = random_state()
        # An out= that was resized before the error holds whatever was in memory.
        self.resized = self.error is not None and _shapes(self.inputs) != _shapes(arguments)
        self._exact: Any = None
        self._remake = lambda: _run(op.op, wide(clone(arguments)))[0]
        self._number = number
        self._unspecified = UNSPECIFIED_RESULTS.get(op.name, ())

    def specified(self, result: Any) -> Any:
        """A result without the values that are whatever was in memory."""
        if not self._unspecified or not isinstance(result, (tuple, list)):
            return result
        return [torch.zeros_like(r) if i in self._unspecified else r for i, r in enumerate(result)]

    def exact(self) -> Any:
        """The result in double precision."""
        if self._exact is None:
            torch.manual_seed(self._number)
            self._exact = self._remake()
        return self._exact


def _differs(eager: _Eager, inputs: Any, actual: Any, error: BaseException | None, values: bool) -> str | None:
    """Why a compiled call is not what eager made, if it is not; `inputs` as the call left them."""
    state = random_state()
    if problem := same_error(error, eager.error):
        return problem
    if eager.error is None and (
        problem := compare(eager.specified(actual), eager.specified(eager.result), eager.exact, values)
    ):
        return problem
    if problem := compare(inputs, eager.inputs, lambda: None, not eager.resized):
        return "inputs afterwards: " + problem
    if eager.error is None and _aliases(actual, inputs) != _aliases(eager.result, eager.inputs):
        return f"aliasing {_aliases(actual, inputs)} instead of {_aliases(eager.result, eager.inputs)}"
    return None if torch.equal(state, eager.random_state) else "the state of the random generator"


def _check(
    op: Any, sample: Any, number: int, row: dict[str, Any], progress: Callable[[int], None], calls: int = 2
) -> str | None:
    """The sample twice or more: the call that captures, and calls that find what was captured."""
    autocast = row["dtype"] == AUTOCAST
    arguments = (sample.input, sample.args, sample.kwargs)

    def call(value: Any, /, *args: Any, **kwargs: Any) -> Any:
        return op.op(value, *args, **kwargs)

    compiled = tatara.compile(call)
    before = tatara.stats()
    with torch.no_grad(), torch.autocast(device(), enabled=autocast):
        progress(EAGER)
        eager = _Eager(op, arguments, number)
        progress(number)
        for which in ("", "second call: ", "third call: ")[:calls]:
            inputs = clone(arguments)
            torch.manual_seed(number)
            actual, error = _run(compiled, inputs)
            problem = _differs(eager, inputs, actual, error, op.name not in UNSPECIFIED)
            if not which:
                row["counts"]["raised" if eager.error is not None else state_of(compiled, before, row)] += 1
            if problem:
                return which + problem
    return None


def _samples(op: Any, dtype_name: str, limit: int | None) -> Iterator[Any]:
    torch.manual_seed(0)
    if dtype_name == ERRORS:
        if op.error_inputs_func is not None:
            yield from (item.sample_input for item in itertools.islice(op.error_inputs(device()), limit))
    elif dtype_name == ODD:
        dtype = torch.float32 if torch.float32 in op.supported_dtypes(device()) else torch.int64
        samples = op.sample_inputs(device(), dtype, requires_grad=False)
        yield from odd_samples(samples, op.formatted_name, min(limit or MOST_ODD, MOST_ODD))
    else:
        dtype = torch.float32 if dtype_name == AUTOCAST else getattr(torch, dtype_name)
        yield from itertools.islice(op.sample_inputs(device(), dtype, requires_grad=False), limit)


def run_samples(name: str, dtype_name: str, made: Iterable[Any], check: Check, reset_every: int) -> dict[str, Any]:
    """The row of an entry: each sample goes through `check`, which counts what it became and says what is wrong."""
    start = time.monotonic()
    row: dict[str, Any] = {"name": name, "dtype": dtype_name, "state": "native", "samples": 0, "wrong": []}
    row |= {"counts": Counter(), "reasons": Counter(), "hosts": Counter()}
    try:
        samples = list(made)
    except Exception as error:  # noqa: BLE001 - the suite itself cannot make samples here
        row["reasons"][f"no samples: {error}"] += 1
        samples = []
    for number, sample in enumerate(samples):
        row["samples"] += 1
        try:
            problem = check(sample, number, row)
        except Exception as error:  # noqa: BLE001 - a defect of the harness or of the report is a row too
            problem = f"the check itself failed: {error!r}"
        if problem:
            row["wrong"].append(f"sample {number}: {problem}")
        if number % reset_every == reset_every - 1:
            tatara.reset()
    tatara.reset()
    row["state"] = next((s for s in reversed(STATES) if row["counts"].get(s)), "raised")
    if row["wrong"]:
        row["state"] = "wrong"
    row["seconds"] = round(time.monotonic() - start, 3)
    return row


def check_entry(op: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs every sample (at most `limit`) of an entry in a dtype, or its samples of bad input."""

    def check(sample: Any, number: int, row: dict[str, Any]) -> str | None:
        return _check(op, sample, number, row, progress)

    row = run_samples(op.formatted_name, dtype_name, _samples(op, dtype_name, limit), check, 16)
    if op.name in UNSPECIFIED:
        row["skipped"] = "values: uninitialised memory"
    return row
