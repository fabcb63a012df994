"""Attention by functions (torch's flex_attention) while a compiled function is traced: as ordinary operators.

The functions of scores and masks are traced as any other code. The compiler makes one kernel of the product, the function, the
softmax and the second product where it has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import flex_attention as host

Mod = Callable[..., Any]


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Mod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """softmax(score_mod(query @ key.mT * scale) where the mask of `block_mask`) @ value, as torch's page says
    (Dong et al., Flex Attention, 2024).

    query: [B, Hq, L, E], key: [B, Hkv, S, E], value: [B, Hkv, S, Ev]. Scores are float32, or float64 where the query is.
    As in eager, the blocks of `block_mask` decide nothing, its function does.
    """
    fits = _fits(query, key, value, block_mask, enable_gqa) and not (return_lse and return_aux is not None)
    if not (fits and _gives(query.device.type, kernel_options, return_aux)):
        return host.flex_attention(
            query,
            key,
            value,
            score_mod,
            block_mask,
            scale,
            enable_gqa,
            return_lse,
            kernel_options,
            return_aux=return_aux,
        )
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        query, key, value = (x.to(dtype) if x.dtype != torch.float64 else x for x in (query, key, value))
    with torch.autocast(kind, enabled=False):
        out, scores = _attention(query, key, value, score_mod, block_mask, scale)
        out = _laid_out(out, query)
        if return_aux is None and not return_lse:
            return out
        lse = most = None
        if return_lse or return_aux.lse:
            lse = scores.logsumexp(-1)
        if return_aux is None:
            return out, lse
        if return_aux.max_scores:
            most = scores.detach().amax(-1)
        return out, host.AuxOutput(lse=lse, max_scores=most)


def _fits(query: Any, key: Any, value: Any, block_mask: Any, grouped: bool) -> bool:
    """Whether torch's own takes it."""
    for x in (query, key, value):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.dim() != 4:
            return False
        if x.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            return False
        if x.dtype != query.dtype or x.device != query.device:
            return False
    if query.device.type == "cpu" and any(x.requires_grad for x in (query, key, value)):
        return False
    if key.shape[:3] != value.shape[:3] or query.shape[3] != key.shape[3]:
        return False
    if query.shape[1] != key.shape[1] and not (grouped and query.shape[1] % key.shape[1] == 0):
        return False
    if block_mask is None:
        return bool(query.shape[0] == key.shape[0])
    if query.shape[0] != key.shape[0] and key.shape[0] != 1:
        return False
    if not isinstance(block_mask, host.BlockMask) or _is_sliced(block_mask):
        return False
    fits = tuple(block_mask.shape[-2:]) == (query.shape[2], key.shape[2])
    return bool(fits and block_mask.kv_num_blocks.device == query.device)


def _is_sliced(block_mask: Any) -> bool:
    """Whether its function says no more than that it is that of a part."""
    return block_mask.mask_mod is getattr(host, "_sliced_mask_mod_error", block_mask)


def _gives(kind: str, options: Any, wanted: Any) -> bool:
    """Whether torch's own knows the options, and gives on such a device what is asked for."""
    for name in ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX"):
        if name in (options or {}):
            return False
    if (options or {}).get("BACKEND", "AUTO") not in ("AUTO", "TRITON", "TRITON_DECODE"):
        return False
    return not (kind == "cpu" and wanted is not None and wanted.max_scores)


def _attention(
    query: Any, key: Any, value: Any, score_mod: Mod | None, block_mask: Any, scale: float | None
) -> tuple[Any, Any]:
    """Result and scores."""
    exact = torch.float64 if query.dtype == torch.float64 else torch.float32
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if query.shape[0] != key.shape[0]:
        key, value = (x.expand(query.shape[0], *x.shape[1:]) for x in (key, value))
    scores = (
        query.to(exact) @ key.to(exact).transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    )
    places = [torch.arange(0, size, device=query.device) for size in scores.shape]
    if score_mod is not None:
        scores = _everywhere(score_mod, (0,))(scores, *places)
    if block_mask is not None:
        mask = _everywhere(block_mask.mask_mod, ())(*places)
        scores = torch.where(mask, scores, -math.inf)
    scores = scores.to(exact)
    return torch._safe_softmax(scores, dim=-1).to(query.dtype) @ value, scores


def _laid_out(out: Any, query: Any) -> Any:
    """With dims in memory in the query's order, the last one innermost."""
    inner = sorted(range(4), key=lambda d: (d != 3, query.stride(d)))
    strides, step = [0] * 4, 1
    for d in inner:
        strides[d] = step
        step *= out.shape[d]
    return out if tuple(strides) == out.stride() else out.new_empty_strided(out.shape, strides).copy_(out)


def _everywhere(mod: Mod, first: tuple[int, ...]) -> Mod:
    """A function of an element and its place, of all elements."""
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        mod = torch.vmap(mod, in_dims=first + dims)
    return mod
