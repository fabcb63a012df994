"""Nodes of eager's gradients that saved a tensor which has been written since.

A module of its own: the first call of every function that writes to tensors asks for it, also where no gradients are taken.
"""

from __future__ import annotations

from typing import Any

import torch


def next_node() -> int:
    """The number that the next node of gradients gets in this thread."""
    return int(torch._C._autograd._get_sequence_nr())


_saved_names: dict[type, list[str]] = {}  # attributes of a kind of node whose reading compares versions


def _error_of(node: Any) -> str | None:
    """What a pass through the node raises, if a tensor that it has saved was written since."""
    kind = type(node)
    names = _saved_names.get(kind)
    if names is None:
        names = [name for name in dir(kind) if name.startswith("_saved_")]
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            names.append("saved_tensors")
        _saved_names[kind] = names
    for name in names:
        try:
            getattr(node, name)
        except RuntimeError as error:
            if "modified by an inplace operation" in str(error):
                return str(error)
    return None


def spoiled(results: list[Any], first: int) -> list[str | None]:
    """For each of these tensors: what eager raises when gradients go through it, since something that was saved for them has
    been written, or None. Looks at nodes of gradients from number `first` on. With hooks on saved tensors, which would be
    called, it looks at nothing.
    """
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return [None] * len(results)
    found: dict[Any, str | None] = {}

    def first_error(root: Any) -> str | None:
        pending, seen = [root], set()
        while pending:
            node = pending.pop()
            if node is None or node in seen or node._sequence_nr() < first:
                continue
            seen.add(node)
            if node not in found:
                found[node] = _error_of(node)
            if found[node] is not None:
                return found[node]
            pending += [following for following, _ in node.next_functions]
        return None

    return [first_error(result.grad_fn) for result in results]
