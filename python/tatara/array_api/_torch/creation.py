"""Functions that make arrays."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch

from tatara.array_api._torch import types
from tatara.array_api._torch.operands import as_type, number

Device: TypeAlias = torch.device | str | int | None


def asarray(
    obj: Any, /, *, dtype: torch.dtype | None = None, device: Device = None, copy: bool | None = None
) -> torch.Tensor:
    """A tensor from a tensor (keeping its gradients), a Python number, nested sequences, or a buffer."""
    if isinstance(obj, torch.Tensor):
        return _converted(obj, dtype, device, copy)
    if not types.is_scalar(obj) and not isinstance(obj, (list, tuple)):
        return torch.asarray(obj, dtype=dtype, device=device, copy=copy)
    if copy is False:
        raise ValueError("Python numbers and sequences cannot become an array without a copy")
    if dtype is torch.uint64:
        return torch.tensor(_wrapped(obj), dtype=torch.int64, device=device).to(dtype)
    return torch.tensor(obj, dtype=dtype, device=device)


def _wrapped(obj: Any) -> Any:
    # Numbers above int64's are given to torch by their bits.
    if isinstance(obj, (list, tuple)):
        return [_wrapped(each) for each in obj]
    value = int(obj)
    return value - 2**64 if value >= 2**63 else value


def _converted(x: torch.Tensor, dtype: torch.dtype | None, device: Device, copy: bool | None) -> torch.Tensor:
    goal = x.device if device is None else torch.device(device)
    kind = x.dtype if dtype is None else dtype
    same_device = goal == x.device or (goal.type == x.device.type and goal.index is None)
    if kind is x.dtype and same_device:
        return x.clone() if copy else x
    if copy is False:
        raise ValueError(f"a copy is needed for {kind} on {goal} from {x.dtype} on {x.device}")
    return x.to(device=goal, dtype=kind)


def astype(x: torch.Tensor, dtype: torch.dtype, /, *, copy: bool = True, device: Device = None) -> torch.Tensor:
    """Another element type; a copy unless `copy` is false and nothing changes."""
    if types.is_complex(x.dtype) and not types.is_complex(dtype):
        # torch would warn.
        x = (x != 0) if dtype is torch.bool else x.real
    return x.to(device=device, dtype=dtype, copy=copy)


def from_dlpack(x: Any, /, *, device: Device = None, copy: bool | None = None) -> torch.Tensor:
    """A tensor over the memory of any object with `__dlpack__`."""
    if device is None and copy is None:
        return torch.from_dlpack(x)
    return torch.from_dlpack(x, device=None if device is None else torch.device(device), copy=copy)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: torch.dtype | None = None,
    device: Device = None,
) -> torch.Tensor:
    """Evenly spaced values; none where the step leads away from the stop."""
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        whole = isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    if (stop - start) * step <= 0 and step != 0:
        return torch.empty((0,), dtype=dtype, device=device)
    own = torch.int64 if dtype in types.WIDE_UNSIGNED else dtype
    return as_type(torch.arange(start, stop, step, dtype=own, device=device), dtype)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: torch.dtype | None = None,
    device: Device = None,
    endpoint: bool = True,
) -> torch.Tensor:
    """`num` evenly spaced values, with or without the last."""
    if dtype is None:
        dtype = torch.get_default_dtype()
        if any(isinstance(each, complex) for each in (start, stop)):
            dtype = types.complex_of(dtype)
    own = dtype if types.is_floating(dtype) else torch.float64
    steps = num - 1 if endpoint else num
    if steps <= 0:
        return torch.full((num,), start, dtype=own, device=device).to(dtype)
    # From either end, so that both are exact. Written out: the last bits of torch's own depend on the processor's vectors.
    step = (stop - start) / steps
    double = types.component(own) is torch.float64
    place = torch.arange(num, dtype=torch.float64 if double else torch.float32, device=device)
    return torch.where(2 * place < steps, start + place * step, stop - (steps - place) * step).to(dtype)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: torch.dtype | None = None, device: Device = None
) -> torch.Tensor:
    """Ones on the k-th diagonal."""
    columns = torch.arange(n_rows if n_cols is None else n_cols, device=device)
    # Diagonals outside of the matrix are all alike; their numbers need not fit int64.
    shift = max(-n_rows, min(k, columns.shape[0]))
    rows = torch.arange(n_rows, device=device).unsqueeze(1) + shift
    return (rows == columns).to(torch.get_default_dtype() if dtype is None else dtype)


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def empty(shape: int | tuple[int, ...], *, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.empty(_shape(shape), dtype=dtype, device=device)


def zeros(shape: int | tuple[int, ...], *, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.zeros(_shape(shape), dtype=dtype, device=device)


def ones(shape: int | tuple[int, ...], *, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.ones(_shape(shape), dtype=dtype, device=device)


def full(
    shape: int | tuple[int, ...], fill_value: types.Scalar, *, dtype: torch.dtype | None = None, device: Device = None
) -> torch.Tensor:
    """An array of one value; the value's default type unless told."""
    kind = types.of_scalar(fill_value) if dtype is None else dtype
    if kind in types.WIDE_UNSIGNED:
        goal = torch.get_default_device() if device is None else torch.device(device)
        return number(fill_value, kind, goal).expand(_shape(shape)).clone()
    return torch.full(_shape(shape), fill_value, dtype=kind, device=device)


def empty_like(x: torch.Tensor, /, *, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: torch.Tensor, /, *, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: torch.Tensor, /, *, dtype: torch.dtype | None = None, device: Device = None) -> torch.Tensor:
    return torch.ones_like(x, dtype=dtype, device=device)


def full_like(
    x: torch.Tensor, /, fill_value: types.Scalar, *, dtype: torch.dtype | None = None, device: Device = None
) -> torch.Tensor:
    kind = x.dtype if dtype is None else dtype
    return full(tuple(x.shape), fill_value, dtype=kind, device=x.device if device is None else device)


def meshgrid(*arrays: torch.Tensor, indexing: str = "xy") -> tuple[torch.Tensor, ...]:
    """Coordinate arrays from one-dimensional ones."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    for each in arrays:
        if each.ndim > 1:
            raise ValueError("meshgrid() wants one-dimensional arrays")
    return tuple(torch.meshgrid(*arrays, indexing=indexing)) if arrays else ()


def tril(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    return _of_matrices(torch.tril, x, k)


def triu(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    return _of_matrices(torch.triu, x, k)


def _of_matrices(function: Any, x: torch.Tensor, k: int) -> torch.Tensor:
    if x.ndim < 2:
        raise ValueError(f"a matrix is wanted, not an array of {x.ndim} dimensions")
    if x.dtype in types.WIDE_UNSIGNED:
        return as_type(function(x.to(torch.int64), k), x.dtype)
    return function(x, k)


e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi
