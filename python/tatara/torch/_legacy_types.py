"""`Tensor.type(...)` by torch's older names of types: ``torch.LongTensor``, ``"torch.cuda.HalfTensor"``."""

from __future__ import annotations

from typing import Any

import torch


def converted(args: tuple[Any, ...], kwargs: dict[str, Any] | None, device: Any) -> Any:
    """The dtype that such a call converts a tensor of that device to. None: the call is none of these, or moves it elsewhere."""
    extra = dict(kwargs or {})
    wanted = args[1] if len(args) > 1 else extra.pop("dtype", None)
    if len(args) > 3 or len(args) < 1 or set(extra) - {"non_blocking"}:
        return None
    if isinstance(wanted, str):
        wanted = _named(wanted)
    if isinstance(wanted, torch.dtype):
        return wanted
    if not isinstance(wanted, type(torch.FloatTensor)):
        return None
    same_place = wanted.is_cuda == (device.type == "cuda") and device.type in ("cpu", "cuda")
    return wanted.dtype if same_place and wanted.layout is torch.strided else None


def _named(name: str) -> Any:
    found: Any = torch
    first, *rest = name.split(".")
    for part in rest:
        found = getattr(found, part, None)
    return found if first == "torch" and rest else None
