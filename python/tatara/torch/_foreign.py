"""Stand-ins for sparse and quantised tensors: what calls on them give is found out by making them of such tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_SOME = 2  # elements of the second stand-in, where there is room


def _listed(tensor: torch.Tensor, some: bool) -> torch.Tensor:
    sparse, shape = tensor.sparse_dim(), tuple(tensor.shape)
    count = min(_SOME, *shape[:sparse]) if some and sparse else 0
    indices = torch.arange(count, device=tensor.device).expand(sparse, count)
    values = torch.ones(count, *shape[sparse:], dtype=tensor.dtype, device=tensor.device)
    # Each has places of its own, so it is coalesced if it says so.
    made = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
    return made._coalesced_(tensor.is_coalesced())


def stand_ins(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Without elements and with some. A quantised one stands for itself."""
    if tensor.is_quantized:
        return tensor.detach(), tensor.detach()
    if tensor.layout == torch.sparse_coo:
        return _listed(tensor, False), _listed(tensor, True)
    by_rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    begins, places = (
        (tensor.crow_indices(), tensor.col_indices()) if by_rows else (tensor.ccol_indices(), tensor.row_indices())
    )
    values, batch = tensor.values(), begins.dim() - 1
    none = torch.sparse_compressed_tensor(
        torch.zeros_like(begins),
        places.new_empty(*places.shape[:batch], 0),
        values.new_empty(*values.shape[:batch], 0, *values.shape[batch + 1 :]),
        tensor.shape,
        layout=tensor.layout,
        check_invariants=False,
    )
    return none, tensor.detach()


def probe(function: Callable[..., Any], args: Any, kwargs: Any, device: torch.device | None, other: bool) -> Any:
    """`function` of the stand-ins. Tensors without data among its operands are full of zeros, or of ones."""

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_meta:
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            return made.fill_(1 if other and (value.is_floating_point() or value.is_complex()) else 0)
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(real(each) for each in value)
        return value

    return function(*real(args), **{name: real(value) for name, value in (kwargs or {}).items()})


def _facts(tensor: torch.Tensor) -> list[Any]:
    facts: list[Any] = [tensor.layout, tensor.dtype, tensor.shape, tensor.device]
    if not tensor.is_quantized:
        return facts
    by_tensor = tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    return [*facts, tensor.qscheme(), *([tensor.q_scale(), tensor.q_zero_point()] if by_tensor else [])]


def agree(one: Any, other: Any) -> bool:
    """Whether they are alike in all that a trace knows of them."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and _facts(one) == _facts(other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(agree, one, other))
    return type(one) is type(other) and bool(one == other)
