"""Checkpoints (torch.utils.checkpoint) while a compiled function is traced.

`region` stands in for torch's own generator, which puts hooks on saved tensors: it tells the trace where the region begins and
ends. What a trace has recorded runs once as eager does it, and then torch's generator works between the same two points.

`reentrant` stands in for the node of gradients that `use_reentrant=True` makes: a region of the same kind with eager's results
and errors. Where it would differ otherwise the graph breaks, and eager's own runs from the next call on.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint as host
from torch.utils._pytree import tree_map

_host_region = host._checkpoint_without_reentrant_generator
# Those at work, each with its thread. No lock: a thread of Python may fork while another holds it.
_whole_passes: set[tuple[int, object]] = set()


def _keep_own_passes() -> None:
    # The other threads do not live on in a forked child, so that nobody would end theirs.
    own = threading.get_ident()
    _whole_passes.intersection_update({entry for entry in _whole_passes if entry[0] == own})


os.register_at_fork(after_in_child=_keep_own_passes)

_BY_INPUTS = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
    ".backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without passing the "
    "`inputs` argument."
)
_NO_HISTORY = "none of output has requires_grad=True, this checkpoint() is not necessary"


class Region:
    """One call of a checkpoint: its arguments, and torch's generator while that is at work."""

    __slots__ = ("arguments", "casts", "inputs", "keywords", "real", "redraws")

    def __init__(
        self,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        redraws: bool,
        inputs: tuple[Any, ...] | None = None,  # of a reentrant one: its tensors
    ) -> None:
        self.arguments = arguments
        self.keywords = keywords
        self.redraws = redraws
        self.inputs = inputs
        self.real: Any = None
        self.casts: tuple[tuple[str, bool, torch.dtype], ...] = ()

    def begin(self) -> None:
        self.real = _host_region(*self.arguments, **self.keywords)
        with contextlib.ExitStack() as stack:
            # What a trace has recorded runs with autocast off, its casts being part of it. The second time they are not.
            for device, enabled, dtype in self.casts:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            next(self.real)

    def end(self) -> None:
        real, self.real = self.real, None
        next(real, None)

    def abandon(self) -> None:
        real, self.real = self.real, None
        real.close()


def _mark(state: Region, step: str) -> None:
    """A point of the program that a trace records, or where it stops."""
    if step == "begin":
        state.begin()
    elif step == "end":
        state.end()


def _left_by(state: Region, error: BaseException) -> None:
    """The program's own error leaves the region."""
    try:
        _mark(state, f"{type(error).__name__} inside of it")
    finally:
        if state.real is not None:
            state.abandon()


def region(
    fn: Callable[..., Any],
    preserve_rng_state: bool = True,
    context_fn: Any = host.noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    *args: Any,
    **kwargs: Any,
) -> Iterator[None]:
    given = (fn, preserve_rng_state, context_fn, determinism_check, debug, early_stop, *args)
    state = Region(given, kwargs, not preserve_rng_state)
    if context_fn is not host.noop_context_fn:
        _mark(state, "it has a context_fn")
    elif debug or host._checkpoint_debug_enabled:
        _mark(state, "debugging is on")
    elif determinism_check not in ("default", "none"):
        _mark(state, "its determinism_check is not known")
    elif not torch.is_grad_enabled():
        yield
        return
    else:
        _mark(state, "begin")
        try:
            yield
            _mark(state, "end")
        except BaseException as error:
            _left_by(state, error)
            raise
        return
    yield from _host_region(*given, **kwargs)


@contextlib.contextmanager
def whole_pass(accumulates: bool) -> Iterator[None]:
    """A pass of the engine that stands for backward() without inputs, in the way it is called."""
    entry = (threading.get_ident(), object())
    if accumulates:
        _whole_passes.add(entry)
    try:
        yield
    finally:
        _whole_passes.discard(entry)


def check_reentrant() -> None:
    """Raises eager's error where gradients cannot go through a reentrant checkpoint."""
    if not torch.autograd._is_checkpoint_valid() and not _whole_passes:
        raise RuntimeError(_BY_INPUTS)


def refuse_reentrant() -> None:
    check_reentrant()
    raise RuntimeError(
        "tatara: backward(create_graph=True) through a checkpoint with use_reentrant=True, whose gradients eager computes "
        "without a graph. Set use_reentrant=False."
    )


class _Result(torch.autograd.Function):  # type: ignore[misc]
    """A result of a reentrant checkpoint that has no history inside of it, but requires grad outside, as all of them do."""

    @staticmethod
    def forward(ctx: Any, value: Any, alone: bool, *inputs: Any) -> Any:
        ctx.alone = alone
        ctx.inputs = len(inputs)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, _cotangent: Any) -> Any:
        check_reentrant()
        if ctx.alone:
            raise RuntimeError(_NO_HISTORY)
        return (None,) * (2 + ctx.inputs)


def again(run: Callable[..., None], given: tuple[Any, ...]) -> Region:
    """A region that has begun, where the calls of a trace are made once more. `run` makes those inside of it; `given` are the
    tensors among its arguments.
    """
    state = Region((run, True, host.noop_context_fn, "none", False, True, *given), {}, False)
    with torch.enable_grad():
        state.begin()
    return state


def reentrant(fn: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
    inputs = tuple(a for a in args if isinstance(a, torch.Tensor))
    if not any(t.requires_grad for t in inputs):
        _mark(Region((), {}, False, inputs), "none of its arguments requires grad")
        return host.CheckpointFunction.apply(fn, preserve_rng_state, *args)
    if not torch.is_grad_enabled():
        return _results(fn(*args), inputs, {})

    def checked(*arguments: Any) -> Any:
        check_reentrant()
        return fn(*arguments)

    given = (checked, preserve_rng_state, host.noop_context_fn, "none", False, True, *args)
    state = Region(given, {}, not preserve_rng_state, inputs)
    _mark(state, "begin")
    try:
        found = fn(*args)
        _mark(state, "end")
    except BaseException as error:
        _left_by(state, error)
        raise
    tensors = [t for t in (found if isinstance(found, tuple) else (found,)) if isinstance(t, torch.Tensor)]
    bare = [t for t in tensors if not t.requires_grad and (t.is_floating_point() or t.is_complex())]
    replaced = {}
    if bare:
        _mark(state, "a result without a history inside of it")
        alone = len(bare) == len(tensors)
        replaced = {id(t): _Result.apply(t, alone, *inputs) for t in bare}
    return _results(found, inputs, replaced)


def _results(found: Any, inputs: tuple[Any, ...], replaced: dict[int, Any]) -> Any:
    """What the node returns: arguments as views of themselves, tensors inside of other objects without a history."""
    if not isinstance(found, tuple):
        return _result(found, inputs, replaced)
    return tuple(_result(each, inputs, replaced) for each in found)


def _result(value: Any, inputs: tuple[Any, ...], replaced: dict[int, Any]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if not isinstance(value, torch.Tensor):
        return tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, value)
    if id(value) in replaced:
        return replaced[id(value)]
    return value.view_as(value) if any(value is t for t in inputs) else value


def check_hooks() -> None:
    """Raises what torch's own checkpoint does where hooks on saved tensors are refused: inside of torch.func.grad."""
    if not torch._C._autograd._saved_tensors_hooks_is_enabled():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
