"""Samples that the suite does not have: those of an entry with one operand or number changed.

Most of them are errors in eager, some are not; in both cases the compiled function must do what eager does.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

NUMBERS = (-1, 0, 1, 2, -3, 7)
DTYPES = (torch.bool, torch.int64, torch.float64, torch.complex64, torch.bfloat16)


def _changed_tensors(t: torch.Tensor) -> Iterator[torch.Tensor]:
    if t.numel():
        yield t.flatten()[0].clone()
    if t.dim():
        yield t.narrow(0, 0, 0)
        yield t.narrow(-1, 0, 1) if t.shape[-1] else t
        yield t.transpose(0, -1).contiguous().transpose(0, -1)
        yield torch.stack([t, t], -1)[..., 0]
        yield t[:1].expand(t.shape) if t.shape[0] else t
    if t.dim() > 1 and t.shape[0]:
        yield t[0]
        yield t.transpose(0, -1)
    yield t.unsqueeze(0)
    yield t.unsqueeze(-1)
    for dtype in DTYPES:
        if dtype != t.dtype:
            yield t.to(dtype)


def _changed(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return list(_changed_tensors(value)) if value.layout == torch.strided else []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [number for number in NUMBERS if number != value]
    if isinstance(value, float):
        return [-value, 0.0, float("inf"), 2]
    return []


def _is_leaf(value: Any) -> bool:
    """Lists of numbers are changed as a whole, too."""
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(type(item) is int for item in value)


def _changed_list(value: Any) -> list[Any]:
    kind = type(value) if type(value) in (list, tuple) else tuple
    longer, shorter = kind([*value, 1]), kind(value[:-1])
    single = [kind([*value[:i], number, *value[i + 1 :]]) for i in range(len(value)) for number in NUMBERS]
    return [longer, shorter, value[0], kind(reversed(value)), *single]


def odd_samples(samples: Iterator[Any], seed: str, most: int) -> list[Any]:
    """At most `most` changed forms of the first few samples, chosen by the seed."""
    changes: list[Callable[[], Any]] = []
    for sample in itertools.islice(samples, 3):
        leaves, spec = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)), is_leaf=_is_leaf)
        for i, leaf in enumerate(leaves):
            for other in _changed_list(leaf) if _is_leaf(leaf) else _changed(leaf):
                with_other = [*leaves[:i], other, *leaves[i + 1 :]]
                changes.append(lambda leaves=with_other, spec=spec: tree_unflatten(leaves, spec))  # type: ignore[misc]
    random.Random(seed).shuffle(changes)
    made = [change() for change in changes[:most]]
    return [SimpleNamespace(input=value, args=args, kwargs=kwargs) for value, args, kwargs in made]
