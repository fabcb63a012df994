"""Cotangents of transforms: those of torch.func, and batches (`torch.autograd.grad(..., is_grads_batched=True)`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C import _functorch


def transformed(tensor: Any) -> bool:
    """Whether the tensor is one of a transform of torch.func, or a dual one."""
    if _functorch.is_functorch_wrapped_tensor(tensor):
        return True
    level = torch.autograd.forward_ad._current_level
    return level >= 0 and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


def each_example(gradients: Callable[[tuple[Any, ...], bool], Any], cotangents: tuple[Any, ...]) -> list[Any]:
    """`gradients(cotangents, kept)`, one example at a time if any cotangent is a batch; `kept`: it is called again."""
    if not any(g is not None and _functorch.is_legacy_batchedtensor(g) for g in cotangents):
        return list(gradients(cotangents, False))
    torch._C._vmapmode_increment_nesting()
    level = torch._C._vmapmode_decrement_nesting()
    batches = [_examples(g, level) for g in cotangents]
    size = next((len(b) for b in batches if b is not None), 0)
    rows = []
    for i in range(size):
        given = tuple(g if b is None else b[i] for g, b in zip(cotangents, batches, strict=True))
        rows.append(list(gradients(given, True)))
    columns = zip(*rows, strict=True)
    return [None if c[0] is None else torch._add_batch_dim(torch.stack(c), 0, level) for c in columns]


def _examples(cotangent: Any, level: int) -> Any:
    """All examples, in front. Not of a tensor that is the same for all of them."""
    if cotangent is None or not _functorch.is_legacy_batchedtensor(cotangent):
        return None
    return torch._remove_batch_dim(cotangent, level, -1, 0)
