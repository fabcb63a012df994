"""Which tensors the host's own nodes of gradients hold on to: asked of the host, on tensors without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tatara.torch._training import stand_in, unseen_by_hooks


class Operand(NamedTuple):
    """In the place of a tensor among arguments."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    needs: bool


def operand(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, needs: bool) -> Operand:
    return Operand(sizes, strides, dtype, needs)


# Of a call: for each tensor among its arguments, and each result, whether it is held; whether the first result has the memory
# of the first tensor.
Answer = tuple[tuple[bool, ...], tuple[bool, ...], bool]

_known: dict[Any, Answer | None] = {}
_MOST_KNOWN = 4096


def held(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Answer | None:
    """None where the host cannot be asked."""
    key = (function, _frozen(args), _frozen(kwargs))
    try:
        return _known[key]
    except KeyError:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = answer = _ask(function, args, kwargs)
        return answer
    except TypeError:  # an argument that has no hash
        return _ask(function, args, kwargs)


def _frozen(value: Any) -> Any:
    if isinstance(value, Operand):
        return value
    if isinstance(value, (tuple, list)):
        return (type(value), *map(_frozen, value))
    if isinstance(value, dict):
        return (dict, *((name, _frozen(item)) for name, item in value.items()))
    if isinstance(value, slice):
        return (slice, value.start, value.stop, value.step)
    return (type(value), value)


def _ask(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Answer | None:
    from tatara.torch import _meta

    operands: list[torch.Tensor] = []

    def made(value: Any) -> Any:
        if isinstance(value, Operand):
            operands.append(stand_in(*value))
            return operands[-1]
        if isinstance(value, (tuple, list)):
            return type(value)(map(made, value))
        if isinstance(value, dict):
            return {name: made(item) for name, item in value.items()}
        if isinstance(value, slice):
            return slice(made(value.start), made(value.stop), made(value.step))
        return value

    given, named = made(args), made(kwargs)
    try:
        with torch.inference_mode(False), torch.enable_grad(), unseen_by_hooks():
            found = _meta.call(function, given, named)
            results = [
                r for r in (found if isinstance(found, (tuple, list)) else (found,)) if isinstance(r, torch.Tensor)
            ]
            kept = _kept_by([r.grad_fn for r in results])
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None
    if kept is None:
        return None
    memory = {_memory(tensor) for tensor in kept}
    alias = bool(results and operands) and _memory(results[0]) == _memory(operands[0])
    return tuple(_memory(t) in memory for t in operands), tuple(_memory(t) in memory for t in results), alias


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _kept_by(roots: list[Any]) -> list[torch.Tensor] | None:
    """The tensors that these nodes and those behind them hold."""
    kept: list[torch.Tensor] = []
    pending, seen = list(roots), set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return None
        for name in dir(type(node)):
            if not name.startswith("_saved_"):
                continue
            value = getattr(node, name)
            kept += [
                t for t in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(t, torch.Tensor)
            ]
        pending += [following for following, _ in node.next_functions]
    return kept
