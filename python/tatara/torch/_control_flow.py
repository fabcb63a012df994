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

from tatara._core import CompiledFunction
from tatara.torch._transforms import _replay


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """One of two functions of tensors. Where `pred` is a tensor both are part of the graph, if they are functions of tensors
    alone; else the graph is split at its value, as at any branch.
    """
    fits = isinstance(operands, (tuple, list)) and _all_tensors(tree_flatten(operands)[0])
    if isinstance(pred, torch.Tensor) and not (fits and pred.numel() == 1):
        return host_cond(pred, true_fn, false_fn, operands)
    if not isinstance(pred, (bool, int, float, torch.Tensor)):
        return host_cond(pred, true_fn, false_fn, operands)
    if isinstance(pred, torch.Tensor):
        leaves, spec = tree_flatten(operands)
        plain = all(isinstance(each, torch.Tensor) for each in operands)
        chosen = _choose(
            pred,
            true_fn if plain else lambda *given: true_fn(*tree_unflatten(given, spec)),
            false_fn if plain else lambda *given: false_fn(*tree_unflatten(given, spec)),
            tuple(leaves),
        )
        if chosen is True:  # it differs from example to example of a batch
            found, form = tree_flatten(true_fn(*operands))
            others = tree_flatten(false_fn(*operands))[0]
            pairs = zip(found, others, strict=True)
            return tree_unflatten([torch.where(pred.reshape(()), a, b) for a, b in pairs], form)
        if isinstance(chosen, tuple):
            return chosen[0]
    return true_fn(*operands) if pred else false_fn(*operands)


def cond_operator(
    operator: Any, pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
) -> Any:
    """The operator behind `torch.cond`, as exported programs call it."""
    return cond(pred, true_fn, false_fn, operands)


def _choose(
    pred: torch.Tensor, true_fn: Callable[..., Any], false_fn: Callable[..., Any], tensors: tuple[Any, ...]
) -> tuple[Any] | bool | None:
    """What one of the functions gives, in a tuple; True: it is one for some examples of a batch, the other for others. Without a
    trace: unknown.
    """
    return None


class _Pair:
    """Two recorded functions of the same tensors, of which one runs."""

    def __init__(
        self, recordings: tuple[Any, Any], first_reads: int, uses: tuple[tuple[bool, ...], ...], types: tuple[Any, ...]
    ) -> None:
        def compiled(recording: Any) -> Any:
            return CompiledFunction(lambda values, tensors: _replay(recording, values, tensors))

        self._functions = [compiled(recording) for recording in recordings]
        self._recordings, self._first_reads, self._uses, self._types = recordings, first_reads, uses, types
        self._sizes: list[torch.Size] | None = None  # of the operands, for which the types hold

    def run(self, which: int, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        count = len(self._uses[0])
        values = operands[count : count + self._first_reads], operands[count + self._first_reads :]
        tensors = operands[:count]
        wanted = [t for t in operands if t.requires_grad] if torch.is_grad_enabled() else []
        if wanted:
            # What the other function uses alone gets zeros for its gradient.
            unused = [t for t, used in zip(tensors, self._uses[which], strict=True) if not used] + values[1 - which]
            idle = [t for t in unused if t.requires_grad]
            own = [*zip(tensors, self._uses[which], strict=True), *((t, True) for t in values[which])]
            used = [i for i, (t, is_used) in enumerate(own) if is_used and t.requires_grad]
            if idle and used:
                given, place = (tensors, used[0]) if used[0] < count else (values[which], used[0] - count)
                given[place] = _Beside.apply(given[place], False, *idle)
        found = self._functions[which](tuple(values[which]), tuple(tensors))
        if not wanted and not any(t._is_view() or t.is_inference() for t in found):
            return list(found)  # nobody else has their memory
        taken = {t.untyped_storage().data_ptr() for t in operands}
        results = []
        for result in found:
            fresh = result
            if wanted and not result.requires_grad and (result.is_floating_point() or result.is_complex()):
                fresh = _Beside.apply(result, True, *wanted)
            elif result.untyped_storage().data_ptr() in taken:
                fresh = result.clone()
            taken.add(fresh.untyped_storage().data_ptr())
            results.append(fresh)
        return results

    def without_data(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        history = torch.is_grad_enabled() and any(t.requires_grad for t in operands)
        count = len(self._uses[0])
        made = [torch.empty_strided(s, strides, dtype=d, device="meta") for d, s, strides, _ in self._types]
        sizes = [t.shape for t in operands]
        self._sizes = self._sizes or sizes
        if sizes != self._sizes:
            # Where what it computes needs values, the sizes hold for this call alone.
            given = [t.detach() for t in operands]
            values = tuple(given[count : count + self._first_reads])
            made = [t.clone() for t in self._recordings[0](values, tuple(given[:count]), 0)]
        return [t.requires_grad_(history and (t.is_floating_point() or t.is_complex())) for t in made]


class _Beside(torch.autograd.Function):  # type: ignore[misc]
    """A tensor that has others in its history, to which it gives zeros."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, fresh: bool, *others: torch.Tensor) -> torch.Tensor:
        ctx.others = [(t.shape, t.dtype, t.device) for t in others]
        return tensor.clone() if fresh else tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        zeros = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.others]
        return (gradient, None, *zeros)


_pairs: list[_Pair] = []
_operators: dict[int, Any] = {}
_library: Any = None


def register(
    true: Any, false: Any, first_reads: int, uses: tuple[tuple[bool, ...], ...], types: tuple[Any, ...]
) -> tuple[Any, int]:
    """The operator that runs one of two recorded functions, and its number for these."""
    _pairs.append(_Pair((true, false), first_reads, uses, types))
    count = len(types)
    if count not in _operators:
        _operators[count] = _define(count)
    return _operators[count], len(_pairs) - 1


def _define(count: int) -> Any:
    global _library
    if _library is None:
        _library = torch.library.Library("tatara_cond", "DEF")
    results = ", ".join(["Tensor"] * count)
    name = f"choose_{count}"
    _library.define(
        f"{name}(Tensor pred, int number, Tensor[] operands) -> {results if count == 1 else f'({results})'}"
    )

    def run(pred: torch.Tensor, number: int, operands: list[torch.Tensor]) -> Any:
        pair = _pairs[number]
        found = pair.without_data(operands) if pred.is_meta else pair.run(0 if pred else 1, list(operands))
        return found[0] if count == 1 else tuple(found)

    # Its derivatives are those of what it calls.
    _library.impl(name, run, "CompositeImplicitAutograd")
    return getattr(torch.ops.tatara_cond, name).default


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
