"""Functions with a backward of the user's (torch.autograd.Function) while a compiled function is traced.

`apply` stands in for the host's: it calls the user's forward without gradients, as the host does, and `attach_backward` then
gives the results their place in the graph of gradients. The trace records that as one step and looks at what the backward
does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import FunctionCtx

Function = torch.autograd.Function


def _stop(_reason: str) -> None:
    """A point of the program where a trace stops."""


class Context(FunctionCtx):  # type: ignore[misc]
    """What the user's functions get as ``ctx``."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad

    def mark_dirty(self, *args: Any) -> None:
        _stop("it writes to its arguments")
        super().mark_dirty(*args)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return tuple(getattr(self, "to_save", None) or ())


def apply(cls: Any, needs: tuple[bool, ...], args: tuple[Any, ...]) -> Any:
    ctx = Context(needs)
    with torch.no_grad():
        if cls.setup_context is Function.setup_context:
            outputs = cls.forward(ctx, *args)
        else:
            outputs = cls.forward(*args)
            cls.setup_context(ctx, args, outputs)
        if isinstance(outputs, tuple):
            outputs = tuple([_apart(ctx, output, args) for output in outputs])
        else:
            outputs = _apart(ctx, outputs, args)
    return attach_backward(cls, ctx, args, outputs)


def _holds(tensors: tuple[Any, ...], tensor: Any) -> bool:
    for each in tensors:  # noqa: SIM110 - a generator would be one more frame for the trace
        if each is tensor:
            return True
    return False


def _apart(ctx: Context, output: Any, args: tuple[Any, ...]) -> Any:
    """An argument that is a result, as a tensor of its own, which the host makes in the same way."""
    if not isinstance(output, torch.Tensor) or not _holds(args, output):
        return output
    if _holds(getattr(ctx, "non_differentiable", ()), output):
        _stop("it marks an argument as a result without gradient")
        return output
    if _holds(getattr(ctx, "dirty_tensors", ()), output):
        return output
    return output.view_as(output)


def attach_backward(cls: Any, ctx: Context, args: tuple[Any, ...], outputs: Any) -> Any:
    """The results as those of a node of the host's, whose backward is the user's."""
    state: dict[str, Any] = dict(vars(ctx))
    made = [outputs]

    def forward(real: Any, *_args: Any) -> Any:
        for name, value in state.items():
            if name != "needs_input_grad":
                setattr(real, name, value)
        return made.pop()

    methods = {"forward": staticmethod(forward), "setup_context": staticmethod(Function.setup_context)}
    node: Any = type(cls.__name__, (cls,), methods)
    try:
        return node.apply(*args)
    finally:
        state.clear()


def _copied(value: Any) -> Any:
    if type(value) is list:
        return [_copied(item) for item in value]
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value


def backward(cls: Any, ctx: Context, cotangents: tuple[Any, ...]) -> Any:
    """What the user's backward makes of the cotangents, with a context of its own."""
    twin = Context(ctx.needs_input_grad)
    for name, value in vars(ctx).items():
        setattr(twin, name, _copied(value))
    function = cls.backward if cls.vjp is Function.vjp else cls.vjp
    return function(twin, *cotangents)


class _Again(torch.autograd.Function):  # type: ignore[misc]
    """The node of such a function where the calls of a trace are made once more."""

    @staticmethod
    def forward(ctx: Any, backward: Any, results: tuple[Any, ...], read: tuple[Any, ...], *_operands: Any) -> Any:
        ctx.gradients = backward
        ctx.save_for_backward(*read)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return (None, None, None, *ctx.gradients(*ctx.saved_tensors, *cotangents))


def again(backward: Any, operands: tuple[Any, ...], results: tuple[Any, ...], read: tuple[Any, ...]) -> Any:
    """The results with a history: `backward(*read, *cotangents)` gives the gradients for `operands`."""
    return _Again.apply(backward, results, read, *operands)
