"""The `fft` extension."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tatara.array_api._torch import types
from tatara.array_api._torch.creation import Device


def _one(function: Callable[..., torch.Tensor], x: torch.Tensor, n: int | None, axis: int, norm: str) -> torch.Tensor:
    return function(x, n=n, dim=axis, norm=norm)


def _many(
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str,
) -> torch.Tensor:
    if s is not None and axes is None:
        axes = tuple(range(x.ndim - len(s), x.ndim))
    return function(x, s=None if s is None else tuple(s), dim=None if axes is None else tuple(axes), norm=norm)


def fft(x: torch.Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> torch.Tensor:
    return _one(torch.fft.fft, x, n, axis, norm)


def ifft(x: torch.Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> torch.Tensor:
    return _one(torch.fft.ifft, x, n, axis, norm)


def rfft(x: torch.Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> torch.Tensor:
    return _one(torch.fft.rfft, x, n, axis, norm)


def irfft(x: torch.Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> torch.Tensor:
    return _one(torch.fft.irfft, x, n, axis, norm)


def hfft(x: torch.Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> torch.Tensor:
    return _one(torch.fft.hfft, x, n, axis, norm)


def ihfft(x: torch.Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> torch.Tensor:
    # Not conjugated only when it is read: other libraries would see other numbers.
    return _one(torch.fft.ihfft, x, n, axis, norm).resolve_conj()


def fftn(
    x: torch.Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> torch.Tensor:
    return _many(torch.fft.fftn, x, s, axes, norm)


def ifftn(
    x: torch.Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> torch.Tensor:
    return _many(torch.fft.ifftn, x, s, axes, norm)


def rfftn(
    x: torch.Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> torch.Tensor:
    return _many(torch.fft.rfftn, x, s, axes, norm)


def irfftn(
    x: torch.Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> torch.Tensor:
    return _many(torch.fft.irfftn, x, s, axes, norm)


def _frequencies_type(dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return torch.get_default_dtype()
    if not types.is_floating(dtype) or types.is_complex(dtype):
        raise ValueError(f"frequencies are real numbers, not {dtype}")
    return dtype


def fftfreq(n: int, /, *, d: float = 1.0, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.fft.fftfreq(n, d, dtype=_frequencies_type(dtype), device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.fft.rfftfreq(n, d, dtype=_frequencies_type(dtype), device=device)


def fftshift(x: torch.Tensor, /, *, axes: int | Sequence[int] | None = None) -> torch.Tensor:
    return torch.fft.fftshift(x, dim=axes)


def ifftshift(x: torch.Tensor, /, *, axes: int | Sequence[int] | None = None) -> torch.Tensor:
    return torch.fft.ifftshift(x, dim=axes)
