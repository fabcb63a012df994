"""Scans of torch's higher-order operators while a compiled function is traced: as ordinary operators on slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan as host_scan
from torch.utils._pytree import tree_flatten, tree_unflatten

Combine = Callable[[list[Any], list[Any]], list[Any]]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """`combine_fn` over prefixes, in a number of steps that is the logarithm of the length (Blelloch, Prefix Sums and Their
    Applications, 1990). A function that is not pointwise ("generic") gets one element of each, by vmap. What torch would
    refuse goes to torch's own.
    """
    leaves, spec = tree_flatten(xs)
    if not _is_simple(leaves, dim, combine_mode):
        return host_scan(combine_fn, xs, dim, reverse, combine_mode)

    def flat(left: list[Any], right: list[Any]) -> list[Any]:
        found: list[Any] = tree_flatten(combine_fn(tree_unflatten(left, spec), tree_unflatten(right, spec)))[0]
        return found

    combine = flat if combine_mode == "pointwise" else torch.vmap(flat)
    parts = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        parts = [part.flip(0) for part in parts]
    parts = _prefixes(combine, parts)
    if reverse:
        parts = [part.flip(0) for part in parts]
    return tree_unflatten([part.movedim(0, dim) for part in parts], spec)


def _is_simple(leaves: list[Any], dim: int, combine_mode: str) -> bool:
    if combine_mode not in ("pointwise", "generic") or not leaves or not isinstance(dim, int):
        return False
    first = leaves[0]
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or leaf.shape != first.shape:
            return False
    return bool(-first.dim() <= dim < first.dim() and first.numel() != 0)


def _prefixes(combine: Combine, parts: list[Any]) -> list[Any]:
    """Along the first dimension: pairs are combined, their prefixes are those at odd places, and what is between follows."""
    count = parts[0].shape[0]
    if count < 2:
        return parts
    paired = combine([part[: count // 2 * 2 : 2] for part in parts], [part[1::2] for part in parts])
    odd = _prefixes(combine, paired)
    found = []
    if count > 2:
        later = [part[2::2] for part in parts]
        before = [part[: (count - 1) // 2] for part in odd]
        even = combine(before, later)
        for part, own, between in zip(parts, odd, even, strict=True):
            found.append(_interleaved(torch.cat([part[:1], between]), own))
    else:
        for part, own in zip(parts, odd, strict=True):
            found.append(torch.cat([part[:1], own]))
    return found


def _interleaved(even: Any, odd: Any) -> Any:
    count = odd.shape[0]
    pairs = torch.stack([even[:count], odd], 1).flatten(0, 1)
    return pairs if even.shape[0] == count else torch.cat([pairs, even[count:]])
