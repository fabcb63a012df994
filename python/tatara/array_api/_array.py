"""An array object with the standard's operators, around a tensor."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tatara.array_api import _names
from tatara.array_api._torch import creation, elementwise, linear, manipulation, types

_SAME_BITS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


class Array:
    """What `tatara.array_api.arrays` computes with. `tensor` is the tensor that it stands for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        if api_version is not None and api_version not in _names.VERSIONS:
            raise ValueError(f"version {api_version!r} of the standard is not here: the newest is {_names.VERSION}")
        return importlib.import_module("tatara.array_api.arrays")

    # --- Attributes.

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def device(self) -> torch.device:
        return self.tensor.device

    @property
    def ndim(self) -> int:
        return int(self.tensor.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def size(self) -> int:
        return int(self.tensor.numel())

    @property
    def T(self) -> Array:  # noqa: N802
        if self.tensor.ndim != 2:
            raise ValueError(f"T is of matrices, not of arrays of {self.tensor.ndim} dimensions")
        return Array(self.tensor.mT)

    @property
    def mT(self) -> Array:  # noqa: N802
        return Array(linear.matrix_transpose(self.tensor))

    # --- Elements.

    def __getitem__(self, key: Any, /) -> Array:
        backwards, rest = _parted(self.tensor, key)
        tensor = self.tensor if backwards is None else _turned(self.tensor, backwards)
        if tensor.dtype in _SAME_BITS:
            # Nor can it, on a GPU, read by masks and places.
            return Array(tensor.view(_SAME_BITS[tensor.dtype])[rest].view(tensor.dtype))
        return Array(tensor[rest])

    def __setitem__(self, key: Any, value: Any, /) -> None:
        tensor = self.tensor
        backwards, rest = _parted(tensor, key)
        own = value.tensor if isinstance(value, Array) else value
        if tensor.dtype in _SAME_BITS:
            # torch cannot write to parts of these types.
            own = creation.asarray(own, dtype=tensor.dtype, device=tensor.device).view(_SAME_BITS[tensor.dtype])
            tensor = tensor.view(_SAME_BITS[tensor.dtype])
        if backwards is None:
            tensor[rest] = own
            return
        # No view goes backwards: a copy that does is written to, and written back.
        turned = _turned(tensor, backwards)
        turned[rest] = own
        forwards, axes = backwards
        tensor[forwards] = torch.flip(turned, axes)

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Iterator[Array]:
        for each in self.tensor:
            yield Array(each)

    def __bool__(self, /) -> builtins.bool:
        return builtins.bool(self.tensor)

    def __int__(self, /) -> int:
        # torch has no Python number for the upper half of uint64.
        if self.tensor.dtype is torch.uint64:
            return int(self.tensor.to(torch.int64)) % 2**64
        return int(self.tensor)

    def __float__(self, /) -> float:
        return float(int(self) if self.tensor.dtype is torch.uint64 else self.tensor)

    def __complex__(self, /) -> complex:
        return complex(int(self) if self.tensor.dtype is torch.uint64 else self.tensor)

    def __index__(self, /) -> int:
        if not types.is_integer(self.tensor.dtype):
            raise TypeError(f"an array of {self.tensor.dtype} is no index")
        return int(self)

    def __repr__(self) -> str:
        return repr(self.tensor).replace("tensor(", "Array(", 1).replace("\n ", "\n")

    # --- Other devices and libraries.

    def to_device(self, device: creation.Device, /, *, stream: Any = None) -> Array:
        if stream is not None:
            raise ValueError("to_device() works on torch's current stream")
        return Array(self.tensor.to(device))

    def __dlpack__(self, /, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: builtins.bool | None = None) -> Any:  # fmt: skip
        try:
            return self.tensor.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        except ValueError as error:  # the standard's word for a copy that is needed and not allowed
            raise BufferError(str(error)) from error

    def __dlpack_device__(self, /) -> Any:
        return self.tensor.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: builtins.bool | None = None) -> Any:
        result = self.tensor.numpy()
        return result.astype(dtype, copy=bool(copy)) if dtype is not None or copy else result


Backwards = tuple[tuple[slice, ...], list[int]]


def _turned(x: torch.Tensor, backwards: Backwards) -> torch.Tensor:
    forwards, axes = backwards
    return manipulation.flip(x[forwards], axis=tuple(axes))


def _parted(x: torch.Tensor, key: Any) -> tuple[Backwards | None, Any]:
    """Slices that go backwards, which torch refuses, and what is left of a key behind them."""
    parts = [_index(each) for each in (key if isinstance(key, tuple) else (key,))]
    if not builtins.any(_goes_back(each) or _is_empty_mask(each) for each in parts):
        return None, tuple(parts)
    forwards = [slice(None)] * x.ndim
    axes: list[int] = []
    axis = 0
    for place, each in enumerate(parts):
        if each is Ellipsis:
            axis += x.ndim - sum(_axes_taken(other) for other in parts)
        elif _goes_back(each):
            chosen = range(*each.indices(x.shape[axis]))
            forwards[axis] = slice(chosen[-1], chosen[0] + 1, -chosen.step) if chosen else slice(0, 0)
            axes.append(axis)
            parts[place] = slice(None)
        elif _is_empty_mask(each):
            parts[place] = _fitted(each, x.shape[axis : axis + each.ndim])
        axis += _axes_taken(each)
    return (tuple(forwards), axes) if axes else None, tuple(parts)


def _axes_taken(part: Any) -> int:
    """How many axes of the array a part of a key is about."""
    if part is None or part is Ellipsis:
        return 0
    return int(part.ndim) if _is_mask(part) else 1


def _goes_back(part: Any) -> builtins.bool:
    return isinstance(part, slice) and part.step is not None and part.step < 0


def _is_mask(part: Any) -> builtins.bool:
    return isinstance(part, torch.Tensor) and part.dtype is torch.bool


def _is_empty_mask(part: Any) -> builtins.bool:
    return _is_mask(part) and 0 in part.shape


def _fitted(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    # A mask without elements may lack those of the array too.
    if mask.ndim == len(shape) and builtins.all(
        one in (0, other) for one, other in zip(mask.shape, shape, strict=True)
    ):
        return torch.zeros(shape, dtype=torch.bool, device=mask.device)
    return mask


def _index(part: Any) -> Any:
    tensor = part.tensor if isinstance(part, Array) else part
    if isinstance(tensor, torch.Tensor) and types.is_integer(tensor.dtype):
        return tensor.to(torch.int64)
    return tensor


# --- Operators.

_Function = Callable[[Any, Any], torch.Tensor]

_BINARY: dict[str, _Function] = {
    "add": elementwise.add,
    "sub": elementwise.subtract,
    "mul": elementwise.multiply,
    "truediv": elementwise.divide,
    "floordiv": elementwise.floor_divide,
    "mod": elementwise.remainder,
    "pow": elementwise.pow,
    "matmul": linear.matmul,
    "and": elementwise.bitwise_and,
    "or": elementwise.bitwise_or,
    "xor": elementwise.bitwise_xor,
    "lshift": elementwise.bitwise_left_shift,
    "rshift": elementwise.bitwise_right_shift,
}

_COMPARISONS: dict[str, _Function] = {
    "eq": elementwise.equal,
    "ne": elementwise.not_equal,
    "lt": elementwise.less,
    "le": elementwise.less_equal,
    "gt": elementwise.greater,
    "ge": elementwise.greater_equal,
}

_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs": elementwise.abs,
    "invert": elementwise.bitwise_invert,
    "neg": elementwise.negative,
    "pos": elementwise.positive,
}


def _operand(other: Any) -> Any:
    """None: nothing that arrays are computed with."""
    if isinstance(other, Array):
        return other.tensor
    return other if isinstance(other, torch.Tensor) or types.is_scalar(other) else None


def _forward(function: _Function) -> Callable[[Array, Any], Any]:
    def operate(self: Array, other: Any, /) -> Any:
        own = _operand(other)
        return NotImplemented if own is None else Array(function(self.tensor, own))

    return operate


def _reflected(function: _Function) -> Callable[[Array, Any], Any]:
    def operate(self: Array, other: Any, /) -> Any:
        own = _operand(other)
        return NotImplemented if own is None else Array(function(own, self.tensor))

    return operate


def _in_place(function: _Function, name: str) -> Callable[[Array, Any], Any]:
    def operate(self: Array, other: Any, /) -> Any:
        own = _operand(other)
        if own is None:
            return NotImplemented
        result = function(self.tensor, own)
        if result.dtype is not self.tensor.dtype:
            raise TypeError(f"{name} would turn {self.tensor.dtype} into {result.dtype}")
        if result.shape != self.tensor.shape:
            raise ValueError(f"{name} would turn the shape {tuple(self.tensor.shape)} into {tuple(result.shape)}")
        self.tensor.copy_(result)
        return self

    return operate


def _alone(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    def operate(self: Array, /) -> Array:
        return Array(function(self.tensor))

    return operate


def _give_operators() -> None:
    made: dict[str, Callable[..., Any]] = {}
    for name, binary in _BINARY.items():
        made[f"__{name}__"] = _forward(binary)
        made[f"__r{name}__"] = _reflected(binary)
        made[f"__i{name}__"] = _in_place(binary, f"__i{name}__")
    for name, binary in _COMPARISONS.items():
        made[f"__{name}__"] = _forward(binary)
    for name, unary in _UNARY.items():
        made[f"__{name}__"] = _alone(unary)
    for name, function in made.items():
        function.__name__ = name
        function.__qualname__ = f"Array.{name}"
        setattr(Array, name, function)
    # Equal arrays are no equal keys.
    Array.__hash__ = None  # type: ignore[assignment]


_give_operators()
