"""Which results of a function of tensors carry the history of its operands.

A function that goes through levels of torch.func is one node of the host's autograd, so all of its results would require grad
as soon as one operand does. In eager a result does only if something that it is computed from does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._C import _functorch

Places = tuple[int, ...]


def alive(tensor: Any) -> Any:
    """The tensor in place of those of levels that have ended: a backward pass may come after its level."""
    while _functorch.is_gradtrackingtensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def has_tangent(tensor: Any) -> bool:
    """Whether the tensor below all levels is a dual one of the host's."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    if torch.autograd.forward_ad._current_level < 0 or _functorch.is_legacy_batchedtensor(tensor):
        return False  # levels of forward-mode derivatives do not nest, so what is a batch of the older kind has none
    with torch.autograd.forward_ad._set_fwd_grad_enabled(True):
        tangent = torch.autograd.forward_ad.unpack_dual(tensor).tangent
    return tangent is not None


def stopped(tensor: Any) -> Any:
    """The tensor, of no level, without history and tangent."""
    return tensor.detach() if tensor.requires_grad or has_tangent(tensor) else tensor


def _example(tensor: Any) -> Any:
    """A plain tensor with the shape that the innermost level sees, without history and tangents."""
    places = []
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            places.append(_functorch.maybe_get_bdim(tensor))
        tensor = _functorch.get_unwrapped(tensor)
    if _functorch.is_legacy_batchedtensor(tensor):  # a tangent or a cotangent, of which any serves
        tensor = torch.zeros(tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)
    tensor = tensor.data
    for place in reversed(places):
        tensor = tensor.select(place, 0)
    return tensor


def outermost_grad_mode() -> bool:
    """Whether operations on plain tensors are recorded: each level of torch.func.grad has a mode of its own."""
    for level in _functorch.get_interpreter_stack() or ():
        if level.key() == _functorch.TransformType.Grad:
            return bool(_functorch.CGradInterpreterPtr(level).prevGradMode())
    return bool(torch.is_grad_enabled())


@contextlib.contextmanager
def below_levels() -> Iterator[None]:
    """As outside of all transforms of torch.func."""
    levels = []
    while _functorch.peek_interpreter_stack() is not None:
        levels.append(_functorch.pop_dynamic_layer_stack())
    try:
        yield
    finally:
        for level in reversed(levels):
            _functorch.push_dynamic_layer_stack(level)


def _sources(result: Any, leaves: dict[int, Any]) -> Places:
    """Which of the leaves the history of the result goes back to."""
    found = {i for i, leaf in leaves.items() if result is leaf}
    pending, seen = [result.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found |= {i for i, leaf in leaves.items() if getattr(node, "variable", None) is leaf}
        pending += [following for following, _ in node.next_functions]
    return tuple(sorted(found))


def carried(function: Any, places: Places, operands: tuple[Any, ...]) -> tuple[Places, ...]:
    """For each result of `function(*operands)`: which of the operands at these places it is computed from."""
    with below_levels(), torch.enable_grad():
        given = [_example(t) for t in operands]
        leaves = {i: given[i].requires_grad_() for i in places}
        return tuple(_sources(result, leaves) for result in function(*given))


def moved(function: Any, places: Places, operands: tuple[Any, ...]) -> tuple[Places, ...]:
    """For each result: from which of the operands at these places it gets a tangent."""
    forward = torch.autograd.forward_ad
    found: list[list[int]] = []
    with below_levels(), torch.enable_grad(), forward._set_fwd_grad_enabled(True):
        plain = [_example(t) for t in operands]
        for place in places:
            given = list(plain)
            given[place] = forward.make_dual(given[place], torch.zeros_like(given[place]))
            results = function(*given)
            found = found or [[] for _ in results]
            for each, result in zip(found, results, strict=True):
                if forward.unpack_dual(result).tangent is not None:
                    each.append(place)
    return tuple(tuple(each) for each in found)


def carried_by_tangents(
    function: Any, moved: Places, count: int, places: Places, operands: tuple[Any, ...]
) -> tuple[Places, ...]:
    """The same for the tangents of the results: the first `count` operands are the function's own, then follow the tangents of
    those that are `moved`. Where eager multiplies with a tangent of zeros, it still counts.
    """
    forward = torch.autograd.forward_ad
    with below_levels(), torch.enable_grad(), forward._set_fwd_grad_enabled(True):
        given = [_example(t) for t in operands]
        leaves = {i: given[i].requires_grad_() for i in places}
        primals = given[:count]
        for i, tangent in zip(moved, given[count:], strict=True):
            primals[i] = forward.make_dual(primals[i], tangent)
        tangents = [forward.unpack_dual(result).tangent for result in function(*primals)]
        return tuple(() if tangent is None else _sources(tangent, leaves) for tangent in tangents)
