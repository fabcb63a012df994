"""torch's higher-order operators of control flow while a compiled function is traced: as the Python that they stand for.

What torch would refuse goes to torch's own, which says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.cond import cond as host_cond
from torch._higher_order_ops.map import map as host_map
from torch._higher_order_ops.scan import scan as host_scan
from torch._higher_order_ops.while_loop import while_loop as host_while
from torch.utils._pytree import tree_flatten, tree_unflatten


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """One of two functions of tensors. Where `pred` is a tensor the graph is split at its value, as at any branch."""
    fits = isinstance(operands, (tuple, list)) and _all_tensors(tree_flatten(operands)[0])
    if isinstance(pred, torch.Tensor) and not (fits and pred.numel() == 1):
        return host_cond(pred, true_fn, false_fn, operands)
    if not isinstance(pred, (bool, int, float, torch.Tensor)):
        return host_cond(pred, true_fn, false_fn, operands)
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """`carried_inputs = body_fn(*carried_inputs)` while `cond_fn(*carried_inputs)` holds."""
    leaves, spec = tree_flatten(carried_inputs)
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, int)):
            return host_while(cond_fn, body_fn, carried_inputs)
    if not cond_fn(*carried_inputs):
        copies = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return tuple(tree_unflatten(copies, spec))
    carried = body_fn(*carried_inputs)
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f` of each part along the first dimension of `xs`, stacked."""
    leaves, spec = tree_flatten(xs)
    if not _all_tensors(leaves) or any(leaf.dim() == 0 for leaf in leaves):
        return host_map(f, xs, *args)
    count = leaves[0].shape[0]
    if count == 0 or any(leaf.shape[0] != count for leaf in leaves):
        return host_map(f, xs, *args)
    parts = [f(tree_unflatten([leaf[turn] for leaf in leaves], spec), *args) for turn in range(count)]
    return _stacked(parts)


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """A carried value goes through `combine_fn` with each part of `xs` along `dim`: the last one, and what was given, stacked."""
    starts = tree_flatten(init)[0]
    leaves, spec = tree_flatten(xs)
    if not leaves:
        return init, []
    if not _is_scan(starts, leaves, dim, reverse):
        result: tuple[Any, Any] = host_scan(combine_fn, init, xs, dim=dim, reverse=reverse)
        return result
    at = dim % leaves[0].dim()
    count = leaves[0].shape[at]
    carry, given = init, []
    for turn in range(count - 1, -1, -1) if reverse else range(count):
        carry, part = combine_fn(carry, tree_unflatten([leaf.select(at, turn) for leaf in leaves], spec))
        given.append(part)
    if reverse:
        given.reverse()
    out = _stacked(given)
    if at != 0:
        flat, form = tree_flatten(out)
        out = tree_unflatten([leaf.movedim(0, at) if at < leaf.dim() else leaf for leaf in flat], form)
    return carry, out


def _all_tensors(leaves: list[Any]) -> bool:
    return len(leaves) > 0 and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _is_scan(starts: list[Any], leaves: list[Any], dim: Any, reverse: Any) -> bool:
    if not (_all_tensors(starts) and _all_tensors(leaves) and isinstance(dim, int) and isinstance(reverse, bool)):
        return False
    rank = leaves[0].dim()
    if not -rank <= dim < rank:
        return False
    at = dim % rank
    if any(leaf.dim() <= at for leaf in leaves):
        return False
    count = leaves[0].shape[at]
    return bool(count > 0 and all(leaf.shape[at] == count for leaf in leaves))


def _stacked(parts: list[Any]) -> Any:
    """A tree of stacks of a list of equal trees."""
    flat = [tree_flatten(part)[0] for part in parts]
    form = tree_flatten(parts[0])[1]
    return tree_unflatten([torch.stack(column) for column in zip(*flat, strict=True)], form)
