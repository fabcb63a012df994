"""`make opinfo-gradients`: first and second derivatives of every OpInfo entry through compiled code, beside eager's.

For each sample: results, which of them require grad, their gradients by every input (None or values, dtype, shape) under
random cotangents, and the gradients of those; exceptions by type and text. With `--one` each input in turn is the only one that
requires grad, beside all of them together. With `--gradcheck` the compiled function goes through the host's finite
differences too (first and second order), where eager passes them. A row is native, host, tape,
broke, wrong or crashed as in `make opinfo`.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._pytree import tree_flatten

import samples
import sweep
import tatara

DTYPES = ["float64", "complex128"]
CHECKED = os.environ.get("TATARA_GRADCHECK", "") == "1"
ONE = False
_Tree = tuple[Any, ...]


@dataclass
class Derivatives:
    """What a sample gives: an exception, or results and gradients of both orders."""

    results: list[torch.Tensor] = field(default_factory=list)
    first: list[Any] = field(default_factory=list)
    second: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    stage: str = "the call"


def _derive(function: Callable[..., Any], op: Any, sample: Any, arguments: _Tree, number: int) -> Derivatives:
    done = Derivatives()
    value, args, kwargs = samples.fresh(arguments)
    wanted = [leaf for leaf in samples.leaves((value, args, kwargs)) if leaf.requires_grad]
    try:
        torch.manual_seed(number)
        output = function(value, *args, **kwargs)
        processed = sample.output_process_fn_grad(output)
        done.results = [t for t in samples.leaves(processed) if t.requires_grad]
        if not done.results or not wanted:
            return done
        done.stage = "the first derivative"
        again = bool(op.supports_gradgrad)
        grads = torch.autograd.grad(
            done.results, wanted, samples.cotangents(done.results, number), create_graph=again, allow_unused=True
        )
        done.first = list(grads)
        roots = [g for g in grads if g is not None and g.requires_grad]
        if not again or not roots:
            return done
        done.stage = "the second derivative"
        done.second = list(torch.autograd.grad(roots, wanted, samples.cotangents(roots, number + 1), allow_unused=True))
    except Exception as error:  # noqa: BLE001 - the exception is the result that is compared
        done.error = error
    return done


def _same(ours: list[Any], theirs: list[Any], what: str) -> str | None:
    if len(ours) != len(theirs):
        return f"{len(ours)} instead of {len(theirs)} {what}"
    flags = None
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if (a is None) != (b is None):
            return f"{what} {i}: {'None' if a is None else 'a tensor'} instead of {'None' if b is None else 'a tensor'}"
        if a is None:
            continue
        if a.requires_grad != b.requires_grad:
            flags = flags or f"{what} {i}: requires_grad {a.requires_grad}"
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{what} {i}: {a.dtype} {tuple(a.shape)} instead of {b.dtype} {tuple(b.shape)}"
        try:
            torch.testing.assert_close(a.detach(), b.detach(), equal_nan=True, check_stride=False)
        except AssertionError as error:
            return f"{what} {i}: " + " ".join(str(error).split())[:160]
    return flags


def _fails_in_eager(done: Derivatives) -> bool:
    """Whether eager's own second derivative meets a gradient that its first one did not make."""
    return done.stage == "the second derivative" and "Expected a proper Tensor but got None" in str(done.error)


def _differs(ours: Derivatives, theirs: Derivatives) -> str | None:
    if _fails_in_eager(theirs) and ours.error is None:
        return _same(ours.results, theirs.results, "result") or _same(ours.first, theirs.first, "gradient")
    if ours.error is not None or theirs.error is not None:
        if type(ours.error) is not type(theirs.error) or ours.stage != theirs.stage:
            return f"{ours.error!r} in {ours.stage} instead of {theirs.error!r} in {theirs.stage}"[:300]
        return None
    return (
        _same(ours.results, theirs.results, "result")
        or _same(ours.first, theirs.first, "gradient")
        or _same(ours.second, theirs.second, "second gradient")
    )


def _finite_differences(
    function: Callable[..., Any], op: Any, sample: Any, arguments: _Tree, number: int
) -> str | None:
    """What the host's gradcheck finds, if anything."""
    fresh = samples.fresh(arguments)
    flat, spec = tree_flatten(fresh)
    places = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

    def of_wanted(*values: Any) -> Any:
        filled = list(flat)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        value, args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
        torch.manual_seed(number)
        output = sample.output_process_fn_grad(function(value, *args, **kwargs))
        results = [t for t in samples.leaves(output) if t.requires_grad]
        return tuple(results) if len(results) > 1 else results[0]

    wanted = tuple(flat[i] for i in places)
    options: dict[str, Any] = {"fast_mode": True, "check_batched_grad": False, "nondet_tol": op.gradcheck_nondet_tol}
    try:
        gradcheck(of_wanted, wanted, **options)
        if op.supports_gradgrad:
            gradgradcheck(of_wanted, wanted, **options)
    except Exception as error:  # noqa: BLE001 - whatever is wrong is the finding
        return " ".join(str(error).split())[:200]
    return None


def _check(op: Any, sample: Any, number: int, row: dict[str, Any], progress: Callable[[int], None]) -> str | None:
    arguments = (sample.input, sample.args, sample.kwargs)

    def call(value: Any, /, *args: Any, **kwargs: Any) -> Any:
        return op.op(value, *args, **kwargs)

    progress(samples.EAGER)
    eager = _derive(call, op, sample, arguments, number)
    progress(number)
    compiled = tatara.compile(call)
    before = tatara.stats()
    for which in ("", "second call: "):
        ours = _derive(compiled, op, sample, arguments, number)
        if not which:
            failed = eager.error is not None and eager.stage == "the call"
            row["counts"]["raised" if failed else samples.state_of(compiled, before, row)] += 1
        if problem := _differs(ours, eager):
            return which + problem
    if CHECKED and eager.first and eager.error is None:
        problem = _finite_differences(compiled, op, sample, arguments, number)
        if problem and not _finite_differences(call, op, sample, arguments, number):
            return "finite differences: " + problem
    return None


def variations(sample: Any) -> Iterator[tuple[str, Any]]:
    """The sample, and with each of its inputs alone requiring grad."""
    yield "", sample
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    wanted = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    for only in wanted if len(wanted) > 1 else []:
        changed = [leaf.detach() if i in wanted and i != only else leaf for i, leaf in enumerate(flat)]
        value, args, kwargs = torch.utils._pytree.tree_unflatten(changed, spec)
        process = sample.output_process_fn_grad
        yield (
            f"input {wanted.index(only)} alone: ",
            SimpleNamespace(input=value, args=args, kwargs=kwargs, output_process_fn_grad=process),
        )


def check_entry(op: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs the samples (at most `limit`) of an entry in a dtype."""

    def check(sample: Any, number: int, row: dict[str, Any]) -> str | None:
        for only, changed in variations(sample) if ONE else [("", sample)]:
            if problem := _check(op, changed, number, row, progress):
                return only + problem
        return None

    torch.manual_seed(0)
    made = op.sample_inputs("cpu", getattr(torch, dtype_name), requires_grad=True)
    return samples.run_samples(op.formatted_name, dtype_name, itertools.islice(made, limit), check, 8)


def _has(op: Any, dtype: str) -> bool:
    return bool(op.supports_autograd) and getattr(torch, dtype) in op.supported_backward_dtypes("cpu")


def main() -> int:
    parser = sweep.parser_of(__doc__, DTYPES, "build/opinfo-gradients.jsonl")
    parser.add_argument("--one", action="store_true", help="each input in turn alone requires grad too")
    parser.add_argument("--gradcheck", action="store_true", help="finite differences through the compiled function too")
    arguments = parser.parse_args()
    global CHECKED, ONE
    CHECKED = CHECKED or arguments.gradcheck
    ONE = arguments.one
    return sweep.run_having(_has, arguments, check_entry, "gradients.py")


if __name__ == "__main__":
    sys.exit(main())
