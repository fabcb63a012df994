"""One row: an architecture in inference or in training, compiled, beside eager."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import math
import os
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

import tatara
from architectures.building import Built, NotSmall, build, seed
from architectures.comparing import GRADIENT_TIMES, compare, floats
from architectures.inputs import labels
from architectures.population import Architecture

INFERENCE, TRAINING = "inference", "training"
MODES = (INFERENCE, TRAINING)
MOST_TIMED = 10.0  # seconds; large models are timed less often
CALLS = (3, 2)  # of each size, compared


@dataclasses.dataclass(frozen=True)
class Options:
    """Where and how the rows are run."""

    device: str = "cpu"
    dtype: str = "float32"
    autocast: str = ""
    seconds: float = 0.5
    """of timed calls"""
    use_cache: bool = False

    def coarse(self) -> torch.dtype | None:
        return getattr(torch, self.autocast) if self.autocast else None


class NoGradient(Exception):
    """Training has nothing to do."""


def _moved(value: Any, device: str, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if isinstance(value, dict):
        return {key: _moved(item, device, dtype) for key, item in value.items()}
    return [_moved(item, device, dtype) for item in value] if isinstance(value, list) else value


class Run:
    """Calls of a model in one mode, eager or compiled."""

    def __init__(self, model: torch.nn.Module, training: bool, options: Options) -> None:
        self.model, self.training, self.options = model, training, options
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.buffers = {n: b.clone() for n, b in model.named_buffers()}

    def restore(self) -> None:
        """Buffers as they were, random numbers from the start."""
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if name in self.buffers and buffer.shape == self.buffers[name].shape:
                    buffer.copy_(self.buffers[name])
        seed()

    def forward(self, call: Callable[..., Any], inputs: dict[str, Any]) -> Any:
        """The model's output."""
        autocast: Any = contextlib.nullcontext()
        if self.options.autocast:
            autocast = torch.autocast(self.options.device, dtype=getattr(torch, self.options.autocast))
        with autocast:
            if self.training:
                return call(**inputs)
            with torch.no_grad():
                return call(**inputs)

    def step(self, call: Callable[..., Any], inputs: dict[str, Any]) -> tuple[Any, Any]:
        """The output, and the loss in training; gradients are left in the parameters."""
        for parameter in self.parameters.values():
            parameter.grad = None
        result = self.forward(call, inputs)
        if not self.training:
            return result, None
        loss = loss_of(result)
        loss.backward()
        return result, loss.detach()

    def compared(self, call: Callable[..., Any], inputs: dict[str, Any]) -> tuple[Any, Any]:
        """What a call shows: output, loss and changed buffers; then gradients."""
        self.restore()
        result, loss = self.step(call, inputs)
        state = {n: b.clone() for n, b in self.model.named_buffers()} if self.training else {}
        shown = {"output": result, "loss": loss, "buffers": state}
        return shown, {n: None if p.grad is None else p.grad.clone() for n, p in self.parameters.items()}

    def time(self, call: Callable[..., Any], inputs: dict[str, Any]) -> float:
        """Seconds of one step."""
        if self.options.device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        self.step(call, inputs)
        if self.options.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - start


def loss_of(result: Any) -> Any:
    """The model's loss, else a weighted sum of squares of what floats and wants a gradient. Without weights a model that ends in a
    norm would always have the same loss, and gradients that are nothing but rounding.
    """
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        return loss.float().sum()
    terms = [(t.float().square() * _ramp(t)).sum() for t in floats(result) if t.requires_grad]
    if not terms:
        raise NoGradient("no output wants a gradient")
    return sum(terms[1:], terms[0])


def _ramp(like: Any) -> Any:
    """Weights from one half to three halves."""
    return torch.linspace(0.5, 1.5, like.numel(), device=like.device).reshape(like.shape)


def _choose_labels(run: Run, inputs: dict[str, Any], options: Options) -> int | None:
    """Which of the labels make the model give a loss; None: it gives none."""
    dtype = getattr(torch, options.dtype)
    for index, extra in enumerate(labels(run.model, inputs)):
        with contextlib.suppress(Exception):
            run.restore()
            loss = getattr(run.forward(run.model, inputs | _moved(extra, options.device, dtype)), "loss", None)
            if isinstance(loss, torch.Tensor) and loss.requires_grad and bool(loss.isfinite().all()):
                return index
    return None


def _median_times(run: Run, compiled: Any, inputs: dict[str, Any], seconds: float) -> dict[str, float]:
    """Medians of calls that take turns, each first every other time."""
    calls = {"eager_ms": run.model, "compiled_ms": compiled}
    start = time.perf_counter()
    each = sum(run.time(call, inputs) for call in calls.values())
    if each < MOST_TIMED:
        each = sum(run.time(call, inputs) for call in calls.values())
    samples: dict[str, list[float]] = {key: [] for key in calls}
    for number in range(max(5, min(60, int(seconds / max(each, 1e-6))))):
        for key in list(calls)[:: 1 if number % 2 else -1]:
            samples[key].append(run.time(calls[key], inputs))
        if time.perf_counter() - start > MOST_TIMED:
            break
    return {key: statistics.median(values) * 1e3 for key, values in samples.items()}


def _place(file: str) -> str:
    return file.split("site-packages/")[-1]


def found(compiled: Any) -> dict[str, Any]:
    """What the report of a compiled model says so far."""
    from tatara.report._report import parts_of, report_of

    report = report_of(compiled)
    details = [entry.get("details") or {} for part in parts_of(compiled) for entry in part._report()["entries"]]
    cuts = [step for each in details if len(each.get("parts", [])) > 1 for step in each["between"]]
    return {
        "graphs": len(report.graphs),
        "breaks": [
            {"reason": b.reason, "file": _place(b.file), "line": b.line, "function": b.function} for b in report.breaks
        ],
        "cuts": [{"reason": f"{c['op']}: {c['reason']}", "file": _place(c["file"]), "line": c["line"]} for c in cuts],
        "fallbacks": [g.fallback or g.problem for g in report.graphs if g.fallback or g.problem],
        "kernels": len(report.kernels),
        "host_calls": dict(collections.Counter(h.operator for h in report.host_calls).most_common()),
        "recompiles": [r[:200] for r in report.recompiles[:4]],
    }


def _warm_up(training: bool, device: str) -> None:
    """What the first compilation of a process does beside compiling: loading LLVM, looking at the machine."""
    x = torch.ones(3, device=device, requires_grad=training)
    result = tatara.compile(lambda x: (x * 2).sin())(x)
    if training:
        result.sum().backward()


PERTURBED = 4


class _Others:
    """Steps of copies of the model that eager might have made as well; made when they are first asked for."""

    def __init__(self, run: Run, inputs: dict[str, Any]) -> None:
        self.run, self.inputs = run, inputs
        self.kept: list[tuple[Any, Any]] | None = None

    def part(self, which: int) -> list[Any]:
        """What these calls show, or their gradients."""
        if self.kept is None:
            self.run.restore()
            for parameter in self.run.parameters.values():
                parameter.grad = None
            self.kept = []
            # A model that does not run in float64, or cannot be copied, has fewer of them.
            with contextlib.suppress(Exception):
                self.kept.append(self._exact())
            for number in range(PERTURBED):
                with contextlib.suppress(Exception):
                    self.kept.append(self._perturbed(number))
        return [pair[which] for pair in self.kept]

    def _exact(self) -> tuple[Any, Any]:
        options = dataclasses.replace(self.run.options, autocast="", dtype="float64")
        model = copy.deepcopy(self.run.model).double()
        inputs = _moved(self.inputs, options.device, torch.float64)
        return Run(model, self.run.training, options).compared(model, inputs)

    def _perturbed(self, number: int) -> tuple[Any, Any]:
        model = copy.deepcopy(self.run.model)
        torch.manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    step = torch.finfo(self.run.options.coarse() or parameter.dtype).eps
                    parameter.mul_(1 + step * torch.randn_like(parameter))
        return Run(model, self.run.training, self.run.options).compared(model, self.inputs)


def _none() -> list[Any]:
    return []


def _differ(run: Run, ours: Any, expected: Any, others: _Others, label: str) -> tuple[list[str], float]:
    """In what two results of compared() differ, and by how much."""
    problems: list[str] = []
    difference = 0.0
    for which, what in enumerate(("", "gradient")):
        # The host gives gradients the strides that its own kernels leave.
        result = compare(
            ours[which],
            expected[which],
            functools.partial(others.part, which),
            f"{label} {what}".rstrip(),
            run.options.coarse(),
            strides=which == 0,
            times=GRADIENT_TIMES if run.training else 1.0,
        )
        problems += result.problems
        difference = max(difference, result.difference)
    return problems, difference


def _as_if_traced(run: Run, inputs: dict[str, Any]) -> Any:
    """What eager gives where the library is told that a compiler traces it."""
    told = [mock.patch(f"torch.compiler.{name}", lambda: True) for name in ("is_compiling", "is_dynamo_compiling")]
    with told[0], told[1]:
        return run.compared(run.model, inputs)


def _compared_or_skipped(run: Run, compiled: Any, inputs: dict[str, Any]) -> Any:
    """compared(); no row where eager raises too once the library is told that it is traced."""
    try:
        return run.compared(compiled, inputs)
    except Exception as error:
        try:
            _as_if_traced(run, inputs)
        except type(error) as own:
            raise NotSmall(f"as if traced: {type(own).__name__}: {own}"[:400]) from error
        raise


def _check(run: Run, compiled: Any, calls: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Compares calls of both sizes; fills in the row."""
    problems: list[str] = []
    row["difference"] = 0.0
    for number, (inputs, times) in enumerate(zip(calls, CALLS, strict=True)):
        expected = run.compared(run.model, inputs)
        again = run.compared(run.model, inputs)
        others = _Others(run, inputs)
        coarse = run.options.coarse()
        for a, b in zip(again, expected, strict=True):
            unsteady = compare(a, b, _none, "eager", coarse, times=GRADIENT_TIMES).problems
            if unsteady:
                raise NotSmall(f"eager does not give the same result twice: {unsteady[0]}")
        row["finite"] = row.get("finite", True) and all(bool(t.isfinite().any()) for t in floats(expected) if t.numel())
        for count in range(times):
            start = time.perf_counter()
            ours = _compared_or_skipped(run, compiled, inputs)
            if count == 0:
                row["cold_s" if number == 0 else "cold2_s"] = time.perf_counter() - start
            label = f"size {number + 1}, call {count + 1}:"
            differ, difference = _differ(run, ours, expected, others, label)
            if differ and not row.get("traced"):
                # The library asks whether it is traced, and may then compute something else.
                traced = _as_if_traced(run, inputs)
                if not _differ(run, ours, traced, others, label)[0]:
                    row["traced"] = differ[0]
            if row.get("traced"):
                expected = _as_if_traced(run, inputs)
                differ, difference = _differ(run, ours, expected, others, label)
            problems += differ
            row["difference"] = max(row["difference"], difference)
        if number == 0:
            row |= found(compiled)
    after = found(compiled)
    row["second_size"] = {key: after[key] for key in ("graphs", "recompiles")}
    row["second_size"]["breaks"] = len(after["breaks"]) - len(row["breaks"])
    row["fallbacks"] = after["fallbacks"]
    row["wrong"] = problems[:12]
    row["state"] = "wrong" if problems else "right"


def _measured(
    built: Built, mode: str, options: Options, compiler: Callable[..., Any], stage: Callable[[str], None]
) -> dict[str, Any]:
    training = mode == TRAINING
    dtype = getattr(torch, options.dtype)
    model = built.model.to(options.device, dtype).train(training)
    calls = [_moved(built.inputs(number), options.device, dtype) for number in range(len(CALLS))]
    row: dict[str, Any] = {
        "recipe": built.recipe.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "inputs": [{k: list(v.shape) for k, v in c.items() if isinstance(v, torch.Tensor)} for c in calls],
        "padded": any("mask" in name for name in calls[0]),
    }
    run = Run(model, training, options)
    if training:
        stage("eager training")
        chosen = _choose_labels(run, calls[0], options)
        row["loss"] = "the model's" if chosen is not None else "squares"
        if chosen is not None:
            calls = [c | _moved(list(labels(model, c, i))[chosen], options.device, dtype) for i, c in enumerate(calls)]
    stage("eager")
    try:
        for inputs in calls:
            run.compared(model, inputs)
    except Exception as error:
        raise NotSmall(f"eager, {mode}: {type(error).__name__}: {error}"[:400]) from error
    _warm_up(training, options.device)
    with contextlib.suppress(Exception):
        copy.deepcopy(model)  # copying leaves marks on classes, which guards see: not between the calls
    stage("compiled")
    try:
        compiled = compiler(model)
        _check(run, compiled, calls, row)
        stage("timing")
        row |= _median_times(run, compiled, calls[0], options.seconds)
    except NotSmall:
        raise
    except Exception as error:
        frames = [f"{_place(f.filename)}:{f.lineno} in {f.name}" for f in traceback.extract_tb(error.__traceback__)]
        text = f"{type(error).__name__}: {error}"[:600]
        return {**row, "state": "raised", "why": text, "frames": frames[-6:], **found(compiled)}
    row["ratio"] = row["eager_ms"] / row["compiled_ms"] if row["compiled_ms"] else math.nan
    return row


def measure(
    architecture: Architecture,
    mode: str,
    options: Options,
    compiler: Callable[..., Any] = tatara.compile,
    stage: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """The row of one architecture in one mode, in this process. Its "state" is right, wrong, raised or skipped; skipped: "why"
    says what eager or the library does not do. `stage` is told what is being done.
    """
    start = time.perf_counter()
    row: dict[str, Any] = {
        "class": architecture.name,
        "mode": mode,
        "kind": architecture.kind,
        "tasks": list(architecture.tasks),
    }
    stage("building")
    try:
        row |= _measured(build(architecture, options.use_cache), mode, options, compiler, stage)
    except (NotSmall, NoGradient) as error:
        row |= {"state": "skipped", "why": str(error)}
    row["seconds"] = time.perf_counter() - start
    return row


def quiet() -> None:
    """No advice of the libraries on the terminal."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
