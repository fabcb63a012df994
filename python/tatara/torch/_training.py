"""Compiled graphs in the host's autograd.

A stage (made by the core) has a forward and a backward plan. Its outputs hang in the graph of gradients as results of one
node. Under ``create_graph=True`` the backward plan is replaced by a stage of its own, derived when it is first wanted, which
can be differentiated in turn.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch

from tatara import _core
from tatara.torch._batches import each_example, transformed

# What most programs have no use for is imported where it is used: importing costs as much as compiling a kernel.

_MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[{kind} {sizes}] is at version {now}; expected version {then} instead. Hint: enable anomaly detection to find the "
    "operation that failed to compute its gradient, with torch.autograd.set_detect_anomaly(True)."
)

_USED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after "
    "calling backward."
)


_HOOKED = (
    "tatara: create_graph=True through a compiled function that registers a hook on a tensor of its own, which the next pass "
    "would have to call again. Register the hook outside of the compiled function, or leave that function to eager with "
    "tatara.disable."
)


class Group(NamedTuple):
    """Results of a stage that passes go through together, as the core describes them."""

    results: tuple[int, ...]  # places among the differentiable ones
    all_results: int
    saved: tuple[int, ...]  # places among the saved values
    all_saved: int
    used_up: bool  # a pass uses up what is saved
    second_inputs: tuple[int, ...]  # inputs that second derivatives read, and that are not saved
    unreached: tuple[int, ...]  # inputs that require grad, and whose history is none of these results'
    checked_inputs: tuple[int, ...]  # what eager keeps, and the plans don't: it may not be written before a pass
    checked_outputs: tuple[int, ...]


class CompiledNode(torch.autograd.Function):  # type: ignore[misc]
    """One node for a group of outputs of a stage that need a gradient; they were computed before. It is made and
    called by the core (forward_node.h, backward_node.h), which does what is usual itself, without Python code.
    """

    @staticmethod
    def backward(ctx: Any, *own: Any) -> Any:
        group = ctx.group
        nothing = (None,) * ctx.not_inputs
        with torch._C._DisableTorchDispatch():  # eager reads what it saved unseen, too
            saved = _spread(_with_numbers(ctx) if group.used_up else ctx.kept_tensors, group.saved, group.all_saved)
        cotangents = tuple(_spread(own, group.results, group.all_results))
        stage = ctx.stage
        if hasattr(ctx, "recording"):
            from tatara.torch import _passes_under_modes

            left = _passes_under_modes.left_for(ctx)
            if left is not None:
                return (*nothing, *_passes_under_modes.finished(ctx, cotangents, left, torch.is_grad_enabled()))
        if all(g is None for g in cotangents):
            return (None,) * len(ctx.needs_input_grad)
        if stage.recomputes:
            from tatara.torch import _checkpoint

            _checkpoint.check_hooks()
        if any(g is not None and transformed(g) for g in cotangents):
            return (*nothing, *_inside_transforms(ctx, stage, saved, cotangents))
        layouts = stage.layouts or (None,) * len(cotangents)
        again = torch.is_grad_enabled()  # under create_graph=True
        if again and ctx.given is not None and _is_hooked(ctx.given[0]):
            raise RuntimeError(_HOOKED)
        if torch._C._len_torch_dispatch_stack() != 0:
            from tatara.torch import _passes_under_modes

            seen = _passes_under_modes.gradients(ctx, stage, cotangents, again)
            if seen is not None:
                return (*nothing, *seen)
        if not again and group.used_up:
            ctx.maybe_clear_saved_tensors()  # unless the graph is retained

        def gradients(given: Any, kept: bool) -> Any:
            values = list(saved) if kept else saved  # a plan lets go of what it is given
            given = tuple(None if g is None else _laid_out(g, o) for g, o in zip(given, layouts, strict=True))
            return _again(ctx, stage, values, given) if again else stage.backward(values, given)

        return (*nothing, *each_example(gradients, cotangents))


_core.install_node(CompiledNode, super(torch.autograd.Function, CompiledNode).apply)


def _with_numbers(ctx: Any) -> Any:
    tensors = ctx.saved_tensors
    numbers = getattr(ctx, "numbers", None)
    return tensors if numbers is None else tuple(numbers.get(place, value) for place, value in enumerate(tensors))


def _spread(items: Any, places: tuple[int, ...], size: int) -> list[Any]:
    """The items at their places in a longer list."""
    found: list[Any] = [None] * size
    for place, item in zip(places, items, strict=False):  # behind them is what is saved for its version
        found[place] = item
    return found


def _laid_out(gradient: Any, order: tuple[int, ...] | None) -> Any:
    """The gradient in the layout that a stage is compiled for: contiguous, or dense with the dimensions in this order."""
    if order is None:
        return gradient.contiguous()
    ordered = gradient.permute(order)
    if ordered.is_contiguous():
        return gradient
    return ordered.contiguous().permute([order.index(d) for d in range(len(order))])


class ConstantNode(torch.autograd.Function):  # type: ignore[misc]
    """A value that depends on others, with a derivative of zero wherever it has one."""

    @staticmethod
    def forward(ctx: Any, value: Any, *operands: Any) -> Any:
        ctx.save_for_backward(*operands)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        return (None, *(torch.zeros_like(t) for t in ctx.saved_tensors))


def _is_hooked(remembered: Any) -> bool:
    """Whether a tensor inside of the graph has a hook. In eager the pass through the gradients calls it once more, with the sum
    of what comes from the results and from the gradients.
    """
    return remembered is False or bool(remembered.hooked)


def _again(ctx: Any, stage: Any, saved: Any, cotangents: Any) -> list[Any]:
    """The gradients as results of a stage that was not there before."""
    from tatara.torch import _passes_under_modes

    need = tuple(g is not None and g.requires_grad for g in cotangents)
    function, operands, targets = _second(ctx, stage, saved, cotangents, need)
    return _passes_under_modes.in_places(ctx, targets, function(*operands))


def _inside_transforms(ctx: Any, stage: Any, saved: Any, cotangents: Any) -> list[Any]:
    """The gradients for cotangents of a transform of torch.func, or dual ones: those of plain tensors, level by level."""
    from tatara.torch import _around, _passes_under_modes
    from tatara.torch._carried import carried

    need = tuple(g is not None for g in cotangents)
    function, operands, targets = _second(ctx, stage, saved, cotangents, need)

    def reached(places: tuple[int, ...], _operands: Any) -> tuple[tuple[int, ...], ...]:
        """Which operands each gradient is computed from, in eager: also where its derivative by them is zero."""
        index = {id(operands[i]): i for i in places}
        mine = tuple(id(g) in index for g in cotangents)
        of, own, inputs = _second(ctx, stage, saved, cotangents, mine)
        known = tuple(k for k, t in enumerate(own) if id(t) in index)
        found = dict(zip(inputs, carried(of, known, tuple(own)), strict=True))
        return tuple(tuple(sorted(index[id(own[k])] for k in found.get(target, ()))) for target in targets)

    return _passes_under_modes.in_places(ctx, targets, _around.apply(_around.HostFlat(function, reached), *operands))


def _second(ctx: Any, stage: Any, saved: Any, cotangents: Any, need: tuple[bool, ...]) -> tuple[Any, list[Any], Any]:
    """The backward graph as a function that can be differentiated, its operands, and the inputs whose gradients it gives."""
    from tatara.torch import _passes_under_modes

    given = tuple(g is not None for g in cotangents)
    second, sources, targets, constant = stage.second(given, need, saved)
    layouts = stage.layouts or (None,) * len(cotangents)
    places = stage.saved_inputs
    kept = dict(zip(ctx.group.second_inputs, ctx.kept, strict=True))
    operands = []
    for kind, index in sources:
        if kind == "g":
            operands.append(cotangents[index])
        elif kind == "s":
            operands.append(saved[index])
        elif index in kept:  # another group of the stage may save it, so this is asked first
            operands.append(_unchanged(kept[index]))
        else:
            operands.append(saved[places[index]])

    def function(*values: Any) -> list[Any]:
        laid_out = [
            _laid_out(value, layouts[index]) if kind == "g" else value
            for value, (kind, index) in zip(values, sources, strict=True)
        ]
        again = (
            (_passes_under_modes.Gradients(ctx, stage, cotangents, sources, targets), 0)
            if ctx.given and ctx.given[0]
            else None
        )
        results = _core.call_stage(second, laid_out, again)
        if results is None:
            raise RuntimeError("tatara: a compiled second gradient refused its operands")
        depends = [t for t in values if isinstance(t, torch.Tensor) and t.requires_grad]
        for i in constant:
            results[i] = ConstantNode.apply(results[i], *depends)
        return results

    return function, operands, targets


class Keeper(torch.autograd.Function):  # type: ignore[misc]
    """A node that only keeps a tensor."""

    @staticmethod
    def forward(ctx: Any, _anchor: Any, tensor: Any) -> Any:
        ctx.save_for_backward(tensor)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        return None, cotangent


def kept(tensor: Any) -> Any:
    """What second derivatives may read of a result. The object of one that other nodes of ours made may be given other contents:
    that of the program takes its own.
    """
    if not isinstance(tensor.grad_fn, CompiledNode._backward_cls):
        return tensor, tensor._version
    with torch.enable_grad():
        return Keeper.apply(_anchor, tensor).grad_fn


def _unchanged(kept: Any) -> Any:
    if not isinstance(kept, tuple):
        return kept.saved_tensors[0]
    tensor, version = kept
    if isinstance(tensor, torch.Tensor) and tensor._version != version:
        text = _MODIFIED.format(kind=tensor.type(), sizes=list(tensor.shape), now=tensor._version, then=version)
        raise RuntimeError(text)
    return tensor


class UsedNode(torch.autograd.Function):  # type: ignore[misc]
    """A value without gradients: a backward pass in the same compiled graph used them up, or a write spoiled what they need."""

    @staticmethod
    def forward(ctx: Any, error: str, values: Any, *_leaves: Any) -> Any:
        ctx.error = error
        return values[0]

    @staticmethod
    def backward(ctx: Any, _cotangent: Any) -> Any:
        raise RuntimeError(ctx.error)


_anchor = torch.empty(0, requires_grad=True)


def used_up(value: torch.Tensor, leaves: list[torch.Tensor], error: str | None) -> Any:
    """The value as eager leaves it after backward(): it requires grad, and can't be differentiated again, by any leaf.
    `error` is what a pass raises instead, where a write is the cause (see `spoiled`).
    """
    with torch.enable_grad():
        return UsedNode.apply(error or _USED, (value,), _anchor, *leaves)


def stand_in(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, needs: bool) -> Any:
    """A tensor of that kind without contents, with a history if `needs`."""
    with torch.inference_mode(False), torch.enable_grad():
        made = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
        return made.requires_grad_().clone() if needs and (made.is_floating_point() or made.is_complex()) else made


def unseen_by_hooks() -> Any:
    """What is saved in there, hooks of the program on saved tensors do not see."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)


def saves(function: Any, args: Any, kwargs: Any) -> bool:
    """Whether the nodes of gradients of `function(*args, **kwargs)` (on stand-ins) keep tensors, which a pass lets go of."""
    from tatara.torch import _meta

    with torch.inference_mode(False), torch.enable_grad(), unseen_by_hooks():
        results = _meta.call(function, args, kwargs)
    if results is None:  # `x[key] = value` gives nothing
        results = args[0]
    pending = [r.grad_fn for r in (results if isinstance(results, (tuple, list)) else (results,))]
    while pending:
        node = pending.pop()
        if node is None:
            continue
        kept = [name.removeprefix("_raw") for name in dir(node) if name.startswith("_raw_saved_")]
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        if any(getattr(node, name) not in (None, ()) for name in kept):
            return True
        pending += [following for following, _ in node.next_functions]
    return False


def backward_pass(
    roots: Any, cotangents: Any, variables: Any, keep: bool, accumulate: bool, create: bool
) -> tuple[Any, ...]:
    """The gradients of a pass of the engine. Those that go to ``.grad`` are laid out as the engine does it."""
    from tatara.torch import _checkpoint

    with _checkpoint.whole_pass(accumulate):
        found = torch.autograd.grad(
            roots, variables, cotangents, retain_graph=keep, create_graph=create, allow_unused=True
        )
    gradients: list[Any] = []
    with torch.no_grad():
        for variable, gradient in zip(variables, found, strict=True):
            if gradient is None:
                raise RuntimeError("tatara: no gradient reaches a tensor that one reached before")
            if accumulate and not variable.is_leaf:
                gradient = gradient.clone(memory_format=torch.contiguous_format)  # that retain_grad() keeps
            elif accumulate:
                result = torch.empty_strided(variable.shape, _grad_strides(variable, gradient), dtype=gradient.dtype)
                result = result.to(gradient.device)
                result.data.copy_(gradient)  # eager's has been written to by nobody
                gradient = result
            gradients.append(gradient)
    return tuple(gradients)


def backward_pass_without_hooks(roots: Any, cotangents: Any, variables: Any, *how: bool) -> tuple[Any, ...]:
    """The same while the hooks on the variables, which the trace has called itself, are off."""
    hooks = [v._backward_hooks for v in variables if v.is_leaf and v._backward_hooks]
    kept = [dict(each) for each in hooks]
    try:
        for each in hooks:
            each.clear()
        return backward_pass(roots, cotangents, variables, *how)
    finally:
        for each, items in zip(hooks, kept, strict=True):
            each.update(items)


def register_hook(hook: Any, _context: None, operands: tuple[Any, ...], _results: Any) -> Any:
    """The tensor with a hook on it."""
    operands[0].register_hook(hook)
    return operands[0]


def hook_again(gradient: Any, results: tuple[Any, ...]) -> Any:
    """The same where the calls of a trace are made once more: `gradient` gives a tuple."""
    results[0].register_hook(lambda cotangent: gradient(cotangent)[0])
    return results


def hooked(hooks: tuple[Any, ...], gradient: Any, variable: Any) -> Any:
    """What hooks on a leaf make of its gradient; a tensor of its own where it goes to the variable's ``.grad``."""
    with torch.no_grad():
        found = gradient
        for hook in hooks:
            result = hook(found)
            if result is not None:
                found = result
        if variable is not None and found is not gradient:
            found = torch.empty_like(gradient).copy_(found)
    return found


def accumulated(hooks: tuple[Any, ...], variable: Any) -> None:
    """Calls the hooks on a leaf whose ``.grad`` is complete."""
    with torch.no_grad():
        for hook in hooks:
            if hook(variable) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def _grad_strides(variable: torch.Tensor, gradient: torch.Tensor) -> tuple[int, ...]:
    """As the engine has it: as the leaf, or contiguous where that does not fill its memory. A gradient that lies so is kept as it
    was made, where dimensions of one element may have any strides but 0.
    """
    wanted = torch.empty_like(variable, memory_format=torch.preserve_format, device="meta").stride()
    filled = wanted == variable.stride()
    if not filled:
        wanted = torch.empty(variable.shape, device="meta").stride()
    alike = zip(variable.shape, gradient.stride(), wanted, strict=True)
    kept = all(made == own if size != 1 else made != 0 or not filled for size, made, own in alike)
    return tuple(gradient.stride() if kept else wanted)


def view_like(source: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """A view of the source that lies as `view` does. Where one of them is complex, the other may be made of its parts."""
    shape, strides, offset = tuple(view.shape), view.stride(), view.storage_offset()
    if source.is_complex() and not view.is_complex():
        source = torch.view_as_real(source)
    if view.is_complex() and not source.is_complex():
        parts = source.as_strided((*shape, 2), (*(2 * s for s in strides), 1), 2 * offset)
        return torch.view_as_complex(parts)
    return source.as_strided(shape, strides, offset)


def bernoulli_trial(skipped: int, p: float) -> tuple[Any, Any, Any]:
    """A state of a CPU generator, trials drawn from it (bytes), and the state after them."""
    generator = torch.Generator().manual_seed(2147483647)
    torch.empty(skipped, dtype=torch.int32).random_(generator=generator)
    before = generator.get_state()
    drawn = torch.empty(1500).bernoulli_(p, generator=generator)
    return before, drawn.to(torch.uint8), generator.get_state()
