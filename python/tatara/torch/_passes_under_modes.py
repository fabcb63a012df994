"""Gradients by eager's own operators, for a pass of the engine that torch-dispatch modes look on at.

The recorded calls of a compiled graph are made once more, unseen (`eager_pass.h`), and the engine goes through what they
recorded. In eager, results and the gradients of a first pass hang in one graph, which a second pass goes through once. So here:
the node of the gradients and the node of the results share one recording in a pass. The former goes through its own part alone,
and leaves what reaches the other's part to the other (`_Recording.pending`), which the engine calls later.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.utils._python_dispatch import _disable_current_modes


class SameNode(torch.autograd.Function):  # type: ignore[misc]
    """A tensor as an operand of its own; its gradient goes through unseen."""

    @staticmethod
    def forward(ctx: Any, value: Any) -> Any:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        return cotangent


def same(value: Any) -> Any:
    with torch.enable_grad():
        return SameNode.apply(value)


class _Recording:
    """What eager recorded of the calls of one node, for one pass."""

    def __init__(self, task: int, inputs: tuple[Any, ...], outputs: dict[int, Any], below: list[_Recording]) -> None:
        self.task = task
        self.inputs = inputs  # as the calls had them; None where no gradient goes
        self.outputs = outputs  # by their place among the node's
        self.below = below  # others that this one goes on into, of nodes that come later in the pass
        self.pending: list[tuple[GradientEdge, Any]] = []  # gradients that others have left for this one
        self.leaves = False  # whether gradients that arrive are left for later now
        self.finished = False
        ends = {_node(each) for each in inputs if each is not None and each.requires_grad}
        ends.update(*(each.nodes for each in below))
        self.nodes: list[Any] = _nodes_behind([_node(each) for each in outputs.values()], ends)

    def share(self) -> bool:
        """Makes the nodes take what arrives for later. False where there is one of Python: it may see that it is called."""
        if any(isinstance(node, torch._C._FunctionBase) and not isinstance(node, SameNode) for node in self.nodes):
            return False
        for number, node in enumerate(self.nodes):
            node.register_prehook(functools.partial(_leave, weakref.ref(self), number))
        return True


def _leave(of: Any, number: int, gradients: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A hook before a recorded node: with no gradients its operators are not called."""
    recording = of()
    if recording is None or not recording.leaves:
        return None
    edges = ((GradientEdge(recording.nodes[number], i, None), g) for i, g in enumerate(gradients) if g is not None)
    recording.pending.extend(edges)
    return (None,) * len(gradients)


def _node(tensor: Any) -> Any:
    """The node of gradients that a tensor's gradient goes to."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    with _disable_current_modes(), torch.enable_grad():
        return tensor.view_as(tensor).grad_fn.next_functions[0][0]


def _nodes_behind(waiting: list[Any], ends: set[Any]) -> list[Any]:
    seen: dict[Any, None] = {}
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen and node not in ends:
            seen[node] = None
            waiting.extend(following for following, _ in node.next_functions)
    return list(seen)


def gradients(ctx: Any, stage: Any, cotangents: Any, again: bool) -> list[Any] | None:
    """The gradients by eager's own operators, which the torch-dispatch modes that are on see. None where the calls can't be made
    once more.
    """
    if not ctx.given or not ctx.given[0] or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return None
    recording = _shared(ctx) or _record(ctx, stage, [i for i, g in enumerate(cotangents) if g is not None], again)
    return None if recording is None else finished(ctx, cotangents, recording, again)


def left_for(ctx: Any) -> _Recording | None:
    """What the present pass has recorded for this node, if another has left gradients for it."""
    recording = _shared(ctx)
    return recording if recording is not None and recording.pending else None


def finished(ctx: Any, cotangents: Any, recording: _Recording, again: bool) -> list[Any]:
    """The gradients of the node's inputs, from its cotangents and from what others have left."""
    recording.finished = True
    roots = [(recording.outputs[i], g) for i, g in enumerate(cotangents) if g is not None] + recording.pending
    places = [i for i in _wanted_inputs(ctx) if recording.inputs[i] is not None]
    targets = tuple(recording.inputs[i] for i in places)
    for other in recording.below:
        other.leaves = True
    try:
        found = _by_engine(roots, targets, again or bool(recording.below), again)
    finally:
        for other in recording.below:
            other.leaves = False
    return in_places(ctx, places, found)


def in_places(ctx: Any, targets: Any, results: Any) -> list[Any]:
    """Gradients of some inputs among those of all."""
    found: list[Any] = [None] * (len(ctx.needs_input_grad) - ctx.not_inputs)
    for target, result in zip(targets, results, strict=True):
        found[target] = result
    return found


def _shared(ctx: Any) -> _Recording | None:
    recording = getattr(ctx, "recording", None)
    return recording if recording is not None and recording.task == torch._C._current_graph_task_id() else None


def _record(ctx: Any, stage: Any, present: list[int], again: bool) -> _Recording | None:
    """The node's calls once more. `present`: the outputs that are wanted."""
    run, number = ctx.given
    recorded = run(number, tuple(stage.differentiable[i] for i in present), again)
    if recorded is None:
        return None
    inputs, outputs, *below = recorded
    task = torch._C._current_graph_task_id()
    return _Recording(task, inputs, dict(zip(present, outputs, strict=True)), below[0] if below else [])


def _record_for_pass(ctx: Any, stage: Any, again: bool) -> _Recording | None:
    """The same with all outputs, for this node and others, if the engine calls it later in this pass."""
    recording = _shared(ctx)
    if recording is not None:
        return None if recording.finished else recording
    if stage.recomputes or not _executes(ctx):
        return None
    recording = _record(ctx, stage, list(range(len(stage.differentiable))), again)
    if recording is None or not recording.share():
        return None
    ctx.recording = recording

    def at_end() -> None:
        ctx.recording = None
        if recording.pending and not recording.finished:
            raise RuntimeError(
                "tatara: the engine left out a node of a compiled function that it had said it would call"
            )

    torch.autograd.Variable._execution_engine.queue_callback(at_end)
    return recording


def _by_engine(roots: list[tuple[Any, Any]], targets: tuple[Any, ...], keep: bool, create: bool) -> Any:
    """Gradients from what eager has recorded, of which some may not be reached."""
    engine = torch.autograd.Variable._execution_engine
    results, cotangents = zip(*roots, strict=True)
    return engine.run_backward(
        results, cotangents, keep, create, targets, allow_unreachable=True, accumulate_grad=False
    )


def _executes(node: Any) -> bool:
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # not told of a leaf among the inputs of torch.autograd.grad
        return True


def _wanted_inputs(ctx: Any) -> list[int]:
    """The inputs whose gradients the present pass has a use for."""
    needed = [i - ctx.not_inputs for i, needs in enumerate(ctx.needs_input_grad) if needs]
    nodes = [node for node, _ in ctx.next_functions if node is not None]
    return [i for i, node in zip(needed, nodes, strict=True) if _executes(node)]


class Gradients:
    """What the core's object for a run is to a stage, to the stage of its gradients."""

    hooked = False

    def __init__(self, ctx: Any, stage: Any, cotangents: Any, sources: Any, targets: Any) -> None:
        self.ctx, self.stage, self.cotangents = ctx, stage, cotangents
        self.sources, self.targets = sources, targets

    def __call__(self, _number: int, wanted: tuple[int, ...], again: bool) -> Any:
        present = [i for i, g in enumerate(self.cotangents) if g is not None]
        with _disable_current_modes(), torch.enable_grad():
            shared = _record_for_pass(self.ctx, self.stage, again)
            recording = shared or _record(self.ctx, self.stage, present, again)
            if recording is None:
                return None
            inputs = recording.inputs
            given = {i: self._stand_in(self.cotangents[i], again) for i in present}
            asked = [self.targets[i] for i in wanted]
            if any(inputs[i] is None for i in asked):
                return None
            roots = [(recording.outputs[i], each) for i, each in given.items()]
            found = _by_engine(roots, tuple(inputs[i] for i in asked), True, True)
        if any(g is None or not g.requires_grad for g in found):
            return None
        operands = [given[i] if kind == "g" else None if kind == "s" else inputs[i] for kind, i in self.sources]
        return tuple(operands), tuple(found), ([shared] if shared else []) + recording.below

    @staticmethod
    def _stand_in(cotangent: Any, again: bool) -> Any:
        if not cotangent.requires_grad:
            return cotangent
        return same(cotangent) if again else cotangent.detach().requires_grad_()
