"""Checkpoints (torch.utils.checkpoint) while a compiled function is traced.

`region` stands in for torch's own generator, which puts hooks on saved tensors: it tells the trace where the region begins and
ends. What a trace has recorded runs once as eager does it, and then torch's generator works between the same two points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint as host

_host_region = host._checkpoint_without_reentrant_generator


class Region:
    """One call of a checkpoint: its arguments, and torch's generator while that is at work."""

    __slots__ = ("arguments", "keywords", "real", "redraws")

    def __init__(self, arguments: tuple[Any, ...], keywords: dict[str, Any], redraws: bool) -> None:
        self.arguments = arguments
        self.keywords = keywords
        self.redraws = redraws
        self.real: Any = None

    def begin(self) -> None:
        self.real = _host_region(*self.arguments, **self.keywords)
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
            try:
                _mark(state, f"{type(error).__name__} inside of it")
            finally:
                if state.real is not None:
                    state.abandon()
            raise
        return
    yield from _host_region(*given, **kwargs)
