"""Operators of the host that only Python can put together: attention on GPUs with the state that its gradients need.

The core calls these functions when a plan runs; tensors are of no history.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_FLASH, _EFFICIENT, _CUDNN = 1, 2, 3  # numbers of torch.nn.attention.SDPBackend
_ALIGNMENT = 16  # of a mask's rows, in elements
_CUDNN_SUMS = [
    3
]  # dimensions of that kernel's logsumexp: [batch, heads, length], or with a dimension of one behind these
_Layout = tuple[tuple[int, ...], tuple[int, ...], str, str]


def _operator(name: str) -> Callable[..., Any]:
    return getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default  # type: ignore[no-any-return]


def _aligned(mask: torch.Tensor | None) -> torch.Tensor | None:
    """The mask with rows that begin where the kernels can read them."""
    if mask is None:
        return None
    odd = [s for s, n in zip(mask.stride()[:-1], mask.shape[:-1], strict=True) if n > 1 and s % _ALIGNMENT]
    if not odd and mask.stride(-1) == 1:
        return mask
    length = mask.shape[-1]
    return torch.nn.functional.pad(mask, (0, -length % _ALIGNMENT))[..., :length]


def _run(
    kernel: int,
    tensors: list[torch.Tensor],
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> list[torch.Tensor | None]:
    """Output, logsumexp, seed, offset."""
    if kernel == _FLASH:
        made = _operator("flash_attention")(*tensors, dropout, causal, False, scale=scale)
        return [made[0], made[1], made[6], made[7]]
    if kernel == _EFFICIENT:
        return list(_operator("efficient_attention")(*tensors, _aligned(mask), True, dropout, causal, scale=scale))
    made = _operator("cudnn_attention")(*tensors, _aligned(mask), True, dropout, causal, False, scale=scale)
    _CUDNN_SUMS[0] = made[1].dim()
    return [made[0], made[1].flatten(2), made[6], made[7]]


@functools.cache
def _states(kernel: int, device: str) -> tuple[Any, Any]:
    """Size, dtype's number and device (-1: the CPU) of the seed and of the offset that a kernel with dropout returns."""
    index = torch.device(device).index or 0
    state = torch.cuda.get_rng_state(index)
    try:
        operands = [torch.zeros(1, 1, 64, 64, dtype=torch.float16, device=device) for _ in range(3)]
        made = _run(kernel, operands, None, 0.5, False, None)[2:]
    finally:
        torch.cuda.set_rng_state(state, index)
    numbers = {torch.int64: 4, torch.uint64: 29, torch.int32: 3, torch.uint8: 0}
    found = [(tuple(t.shape), numbers[t.dtype], index if t.is_cuda else -1) for t in made if t is not None]
    return found[0], found[1]


def choose_fused_attention(
    operands: list[_Layout], mask: _Layout | None, dropout: float, causal: bool, scale: float | None, grouped: bool
) -> tuple[int, Any, Any] | None:
    """The kernel that eager takes for operands of these layouts that want gradients, and what its random numbers' state is;
    None where eager composes attention of its parts.
    """

    def like(layout: _Layout) -> torch.Tensor:
        sizes, strides, dtype, device = layout
        made = torch.empty_strided(sizes, strides, dtype=getattr(torch, dtype), device=device)
        return made.requires_grad_(made.is_floating_point())

    try:
        tensors = [like(layout) for layout in operands]
        given = None if mask is None else like(mask)
        kernel = torch._fused_sdp_choice(*tensors, given, dropout, causal, scale=scale, enable_gqa=grouped)
        if kernel not in (_FLASH, _EFFICIENT, _CUDNN) or (kernel == _FLASH and tensors[0].shape[-1] % 8):
            return None
        nothing = ((), 4, tensors[0].device.index)
        return (kernel, *(_states(kernel, operands[0][3]) if dropout else (nothing, nothing)))
    except RuntimeError:  # no memory for the trial, or a torch without one of the kernels: attention by its parts
        return None


def fused_attention(
    query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: Any, kernel: int, *_: Any
) -> Any:
    """Output, logsumexp, and no state of random numbers."""
    return [*_run(kernel, [query, key, value], mask, dropout, causal, scale)[:2], None, None]


def fused_attention_dropout(
    query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, scale: Any, kernel: int, *_: Any
) -> Any:
    """Output, logsumexp, and seed and offset of the mask that the kernel drew."""
    return _run(kernel, [query, key, value], mask, dropout, causal, scale)


def fused_attention_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    out: Any,
    logsumexp: Any,
    seed: Any,
    offset: Any,
    dropout: float,
    causal: bool,
    scale: Any,
    kernel: int,
    of_mask: bool,
) -> Any:
    """Gradients by query, key, value and, where it is wanted, mask."""
    if seed is None:
        seed = offset = torch.empty((), dtype=torch.int64, device=query.device if kernel != _EFFICIENT else "cpu")
    tensors = (query, key, value)
    lengths = (query.shape[2], key.shape[2])
    if kernel == _FLASH:
        backward = _operator("flash_attention_backward")
        gradients = backward(
            grad, *tensors, out, logsumexp, None, None, *lengths, dropout, causal, seed, offset, scale=scale
        )
        return [*gradients, None]
    if kernel == _EFFICIENT:
        backward = _operator("efficient_attention_backward")
        wanted = [True, True, True, of_mask]
        if not out.transpose(1, 2).is_contiguous():  # anything else is read wrongly
            out = out.transpose(1, 2).contiguous().transpose(1, 2)
        aligned = _aligned(mask)
        gradients = backward(
            grad, *tensors, aligned, out, logsumexp, seed, offset, dropout, wanted, causal, scale=scale
        )
        return [*gradients[:3], gradients[3] if of_mask else None]
    if of_mask:
        raise RuntimeError("this kernel of attention has no gradient by its mask")
    backward = _operator("cudnn_attention_backward")
    gradients = backward(
        grad,
        *tensors,
        out,
        logsumexp if _CUDNN_SUMS[0] == 3 else logsumexp.unsqueeze(-1),
        seed,
        offset,
        _aligned(mask),
        None,
        None,
        *lengths,
        dropout,
        causal,
        scale=scale,
    )
    return [*gradients, None]


def missing_derivative(_: Any, error: str) -> Any:
    """Eager's error."""
    raise RuntimeError(error)


def grouped_gradients(rows: Any, matrices: Any, ends: Any, grad: Any) -> Any:
    """Of rows [n, k] by groups times matrices [groups, k, columns], where the groups' `ends` are: both gradients, zeros for what
    belongs to no group.
    """
    of_rows, of_matrices = torch.zeros_like(rows), torch.zeros_like(matrices)
    begin = 0
    for group, end in enumerate(ends.tolist()):
        if end != begin:
            torch.mm(grad[begin:end], matrices[group].mT, out=of_rows[begin:end])
            torch.mm(rows[begin:end].mT, grad[begin:end], out=of_matrices[group])
            begin = end
    return [of_rows, of_matrices]
