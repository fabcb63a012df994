"""Operators of the host under the host's own transforms: derivatives and vmap (src/ops/host_transform.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.utils._pytree import tree_leaves

from tatara.torch._functions import Context

Function = Callable[[list[Any]], list[Any]]


def _map_tensors(values: list[Any], change: Any) -> list[Any]:
    """The values with each tensor, also those in lists, passed through `change`."""
    return [
        [None if t is None else change(t) for t in v]
        if isinstance(v, list) and any(isinstance(t, torch.Tensor) for t in v)
        else change(v)
        if isinstance(v, torch.Tensor)
        else v
        for v in values
    ]


def _gradients(function: Function, leaves: list[torch.Tensor], call: Callable[..., list[Any]], cotangents: Any) -> Any:
    """Gradients by `leaves`, as torch.func's, which also run inside of vmap."""
    used: list[int] = []

    def results(*wanted: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = function(call(wanted))
        used[:] = [i for i, c in enumerate(cotangents) if c is not None and _differentiable(found[i])]
        return tuple(found[i] for i in used)

    values, pull = torch.func.vjp(results, *leaves)
    return pull(tuple(cotangents[i] for i in used)) if values else [torch.zeros_like(t) for t in leaves]


def _differentiable(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _derivative_of(function: Function, inside: bool) -> Function:
    """(values of `function`, cotangents, which tensors among the values want a gradient) -> these gradients."""

    def gradients(values: list[Any]) -> list[torch.Tensor]:
        *operands, cotangents, needs = values
        again = torch.is_grad_enabled()
        flags = iter(needs)
        wanted: list[torch.Tensor] = []

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            if not next(flags):
                return tensor
            # A gradient with respect to this use of the tensor alone.
            wanted.append(tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_())
            return wanted[-1]

        with torch.enable_grad():
            results = function(_map_tensors(operands, leaf))
            pairs = [(r, c) for r, c in zip(results, cotangents, strict=False) if c is not None and r.requires_grad]
            if not pairs:
                return [torch.zeros_like(t) for t in wanted]
            found = torch.autograd.grad(
                [r for r, _ in pairs], wanted, [c for _, c in pairs], create_graph=again, allow_unused=True
            )
        return [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]

    def gradients_inside(values: list[Any]) -> list[torch.Tensor]:
        *operands, cotangents, needs = values
        flags = iter(needs)
        leaves: list[torch.Tensor] = []
        _map_tensors(operands, lambda t: leaves.append(t) if next(flags) else None)

        def call(wanted: tuple[torch.Tensor, ...]) -> list[Any]:
            again, left = iter(needs), iter(wanted)
            return _map_tensors(operands, lambda t: next(left) if next(again) else t)

        return list(_gradients(function, leaves, call, cotangents))

    return gradients_inside if inside else gradients


def _forward_of(function: Function) -> Function:
    """(values of `function`, a tangent or None for each tensor among them) -> tangents of the results that are numbers."""

    def tangents(values: list[Any]) -> list[torch.Tensor]:
        *operands, given = values
        moving: list[torch.Tensor] = []
        places = iter(given)
        _map_tensors(operands, lambda t: moving.append(t) if next(places) is not None else None)

        def results(*moved: torch.Tensor) -> tuple[torch.Tensor, ...]:
            again, left = iter(given), iter(moved)
            found = function(_map_tensors(operands, lambda t: t if next(again) is None else next(left)))
            return tuple(t for t in found if _differentiable(t))

        return list(torch.func.jvp(results, tuple(moving), tuple(t for t in given if t is not None))[1])

    return tangents


def _batch_of(function: Function) -> Function:
    """(values of `function`, which tensors among them have a batch in front) -> results with the batch in front."""

    def batched(values: list[Any]) -> list[torch.Tensor]:
        *operands, flags = values
        tensors: list[torch.Tensor] = []
        _map_tensors(operands, tensors.append)
        # Absent tensors have a flag too, which says no.
        places = iter(_present(operands, flags))
        in_dims = tuple(0 if next(places) else None for _ in tensors)

        def one(*examples: torch.Tensor) -> tuple[torch.Tensor, ...]:
            left = iter(examples)
            return tuple(function(_map_tensors(operands, lambda _: next(left))))

        return list(torch.func.vmap(one, in_dims)(*tensors))

    return batched


def _present(operands: list[Any], flags: list[bool]) -> list[bool]:
    """The flags of tensors that are there; flags are given for those in lists and arguments, and for None in lists."""
    found = []
    left = iter(flags)
    for value in operands:
        if isinstance(value, torch.Tensor):
            found.append(next(left))
        elif isinstance(value, list) and any(isinstance(t, torch.Tensor) for t in value):
            for item in value:
                flag = next(left)
                if item is not None:
                    found.append(flag)
    return found


def _definition(operator: Any) -> Any:
    """What ``torch.library.custom_op`` has made, with the derivative that was registered; None: another operator."""
    overload = operator if hasattr(operator, "_schema") else getattr(operator, operator.overloads()[0])
    definition = OPDEFS.get(overload._schema.name)
    return definition if definition is not None and definition._backward_fn is not None else None


def _context(definition: Any, inputs: dict[str, Any], results: list[Any], needs: tuple[bool, ...]) -> Context:
    """The context of a call, which was told of its operands, all of them by name, and its results."""
    context = Context(needs)
    if definition._setup_context_fn is not None:
        arguments = definition._opoverload._schema.arguments
        named = {a.name: inputs[a.name] for a in arguments if a.kwarg_only}
        told: dict[str, Any] = {"keyword_only_inputs": named} if named else {}
        output = results[0] if len(results) == 1 else tuple(results)
        positional = tuple(inputs[a.name] for a in arguments if not a.kwarg_only)
        definition._setup_context_fn(ctx=context, inputs=positional, output=output, **told)
    return context


def registered_derivative(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any
) -> list[bool] | None:
    """Whether the operator's gradients come from a function that is registered in Python, and it gives them to all its results
    that are numbers. The operands and results are tensors without data. If so: of each operand, and of all results, whether the
    function's context holds them with their history, so that the gradients may depend on them.
    """
    definition = _definition(operator)
    if definition is None or any(_is_list(a) for a in definition._opoverload._schema.arguments):
        return None
    inputs = {
        a.name: _with_history(args[i] if i < len(args) and not a.kwarg_only else kwargs.get(a.name, a.default_value))
        for i, a in enumerate(definition._opoverload._schema.arguments)
    }
    made = [_with_history(r) for r in results]
    try:
        with torch.enable_grad():
            context = _context(definition, inputs, made, (True,) * len(inputs))
    except Exception:  # the user's code may want data: the host then runs the operator's derivative
        return None
    state = vars(context)
    if state.get("non_differentiable") or state.get("dirty_tensors") or not _materializes(context):
        return None
    kept = {id(leaf) for leaf in tree_leaves(state) if not isinstance(leaf, torch.Tensor) or leaf.requires_grad}
    kept -= {id(leaf) for leaf in tree_leaves(state) if _is_number(leaf)}
    of_results = {id(r) for r in made}
    others = kept - {id(v) for v in inputs.values()} - of_results
    return [bool(others) or id(v) in kept for v in inputs.values()] + [bool(others or kept & of_results)]


def _with_history(value: Any) -> Any:
    """A tensor without data as one that requires grad, apart from all others."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(_differentiable(value))


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.device))


def _is_list(argument: Any) -> bool:
    return "Tensor" in str(argument.type) and "List" in str(argument.type)


def _materializes(context: Context) -> bool:
    return getattr(context, "materialize_grads", True) is not False


def _registered_of(definition: Any) -> Function:
    """(values of the operator, its results, cotangents, which tensors want a gradient) -> these gradients."""

    def gradients(values: list[Any]) -> list[torch.Tensor]:
        *operands, results, cotangents, needs = values
        arguments = definition._opoverload._schema.arguments
        flags = iter(needs)
        wanted = [isinstance(v, torch.Tensor) and next(flags) for v in operands]
        inputs = {a.name: v for a, v in zip(arguments, operands, strict=True)}
        positional = [i for i, a in enumerate(arguments) if not a.kwarg_only]
        context = _context(definition, inputs, results, tuple(wanted[i] for i in positional))
        given = [torch.zeros_like(r) if c is None else c for r, c in zip(results, cotangents, strict=True)]
        found = definition._backward_fn(context, *given)
        by_place = dict(zip(positional, found if isinstance(found, tuple) else (found,), strict=False))
        return [_as_gradient(by_place.get(i), operands[i]) for i, want in enumerate(wanted) if want]

    return gradients


def _as_gradient(gradient: torch.Tensor | None, operand: torch.Tensor) -> torch.Tensor:
    """What the host makes of a gradient that a function returns for an operand."""
    if gradient is None:
        return torch.zeros_like(operand)
    if gradient.shape != operand.shape:
        gradient = gradient.sum_to_size(operand.shape)
    return gradient.to(operand.device, operand.dtype)


def call(name: str, overload: str, transforms: str, values: list[Any]) -> list[torch.Tensor]:
    """An operator of the host under transforms, the innermost first: `d` for its derivative, `r` for the one that is registered
    for it, `j` for its tangents, `v` for vmap.
    """
    space, _, short = name.partition("::")
    operator = getattr(getattr(getattr(torch.ops, space), short), overload or "default")
    arguments = operator._schema.arguments

    def plain(operands: list[Any]) -> list[Any]:
        pairs = list(zip(arguments, operands, strict=True))
        result = operator(*(v for a, v in pairs if not a.kwarg_only), **{a.name: v for a, v in pairs if a.kwarg_only})
        return list(result) if isinstance(result, (tuple, list)) else [result]

    function: Function = plain
    for i, transform in enumerate(transforms):
        if transform == "r":
            function = _registered_of(_definition(operator))
        elif transform == "d":
            function = _derivative_of(function, inside=transforms[i:].strip("d") != "")
        else:
            function = _forward_of(function) if transform == "j" else _batch_of(function)
    # A result may be a view of an operand, whose memory the plan uses again: results own theirs.
    taken: set[int] = set()
    _map_tensors(values, lambda t: taken.add(t.untyped_storage().data_ptr()))
    results = []
    with torch.no_grad():
        for found in function(values):
            result = _plain(found.detach())
            if result.untyped_storage().data_ptr() in taken:
                result = result.clone()
            taken.add(result.untyped_storage().data_ptr())
            results.append(result)
    return results


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with memory that holds its values: no conjugate, negative or zero that is only marked as one."""
    tensor = tensor.clone() if tensor._is_zerotensor() else tensor
    return tensor.resolve_conj().resolve_neg()
