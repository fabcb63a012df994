"""What `tatara.wrap_numpy` makes of a function: the call on tensors, in eager and in compiled code."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

import numpy as np
from tatara import _core
from tatara._api import compile as tatara_compile
from tatara._errors import InvalidArgument, Unsupported
from tatara.torch._numpy_arrays import to_tensors
from tatara.torch._numpy_programs import Finder, Operand, Output, replaced

_LONG = 400  # steps of a program: loops written out, which are native code where NumPy runs

_NAMES = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}


def _kind(tensor: torch.Tensor) -> tuple[tuple[int, ...], str]:
    name = _NAMES.get(tensor.dtype)
    if name is None:
        raise InvalidArgument(f"wrap_numpy takes tensors of element types that NumPy has, not {tensor.dtype}")
    return tuple(tensor.shape), name


def _by_numpy(compiled: Callable[..., Any], tensors: list[torch.Tensor], structure: Any) -> Any:
    """By NumPy, with its loops as native code: in the tensors' memory, or in copies of those of another device."""
    device = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), torch.device("cpu"))
    arrays = [tensor.detach().resolve_conj().resolve_neg().cpu().numpy() for tensor in tensors]
    places = {id(array): place for place, array in enumerate(arrays)}
    copies = [(tensor, array, array.copy()) for tensor, array in zip(tensors, arrays, strict=True) if not _is_here([tensor])]
    args, kwargs = replaced(structure, lambda leaf: arrays[leaf.place] if isinstance(leaf, Operand) else leaf)
    result = compiled(*args, **kwargs)
    for tensor, array, before in copies:
        if before.tobytes() != array.tobytes():
            tensor.detach().copy_(torch.from_numpy(array))

    def given(leaf: Any) -> Any:
        if id(leaf) in places:
            return tensors[places[id(leaf)]]
        made = _as_tensor(leaf)
        return made.to(device) if isinstance(made, torch.Tensor) else made

    return replaced(result, given)


def _as_tensor(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return torch.from_numpy(leaf if min(leaf.strides, default=0) >= 0 else leaf.copy())
    return torch.from_numpy(np.asarray(leaf)) if isinstance(leaf, np.generic) else leaf


def _wants_values(tensors: list[torch.Tensor]) -> bool:
    """Whether nothing but the values of the tensors is wanted."""
    for tensor in tensors:
        wanted = tensor.requires_grad and torch.is_grad_enabled()
        if wanted or tensor.device.type == "meta" or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return False
        if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
            return False
    return True


def _is_here(tensors: list[torch.Tensor]) -> bool:
    return all(tensor.device.type == "cpu" for tensor in tensors)


def _unsafe_writes(tensors: list[torch.Tensor]) -> str:
    """Why a program that writes to its arguments may not: the arrays that it was captured on were contiguous, each by itself."""
    if not all(tensor.is_contiguous() for tensor in tensors):
        return "a write to an argument, beside tensors with gaps"
    apart = len(tensors) < 2 or _core.apart_in_memory(tensors)
    return "" if apart else "a write to an argument that shares memory with another"


def _collected(item: Any, tensors: list[torch.Tensor]) -> Any:
    """The structure with operands in place of tensors and arrays, which are added to `tensors`."""
    if isinstance(item, torch.Tensor):
        for place, known in enumerate(tensors):
            if known is item:
                return Operand(place)
        tensors.append(item)
        return Operand(len(tensors) - 1)
    if isinstance(item, np.ndarray | np.generic):
        return _collected(to_tensors(item), tensors)
    if type(item) is tuple or type(item) is list:
        return type(item)([_collected(each, tensors) for each in item])
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*[_collected(each, tensors) for each in item])
    if type(item) is dict:
        return {key: _collected(each, tensors) for key, each in item.items()}
    return item


def _filled_in(item: Any, outputs: tuple[torch.Tensor, ...], tensors: list[torch.Tensor]) -> Any:
    if isinstance(item, Output):
        return outputs[item.place]
    if isinstance(item, Operand):
        return tensors[item.place]
    if type(item) is tuple or type(item) is list:
        return type(item)([_filled_in(each, outputs, tensors) for each in item])
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*[_filled_in(each, outputs, tensors) for each in item])
    if type(item) is dict:
        return {key: _filled_in(each, outputs, tensors) for key, each in item.items()}
    return _as_tensor(item)


def _wanted_function(function: Any) -> Any:
    """A Python function that calls it."""
    if isinstance(function, _core.CompiledFunction):
        function = function._tatara_function if function._tatara_self is None else function
    if isinstance(function, types.FunctionType):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def wrap(function: Any) -> Callable[..., Any]:
    """See tatara.wrap_numpy."""
    plain = _wanted_function(function)
    finder = Finder(plain)
    find = finder.find
    compiled = tatara_compile(plain)

    def refused(why: str, tensors: list[torch.Tensor], structure: Any) -> Any:
        if not _wants_values(tensors):
            raise Unsupported(f"wrap_numpy: {why}")
        if any(tensor.device.type != "cpu" for tensor in tensors):
            name = getattr(plain, "__name__", "the function")
            warnings.warn(f"wrap_numpy: {name} runs by NumPy on the CPU: {why}", stacklevel=3)
        return _core.call_apart(_by_numpy, compiled, tensors, structure)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tensors: list[torch.Tensor] = []
        structure = (_collected(args, tensors), _collected(kwargs, tensors))
        way = _core.call_alone(find, tuple([_kind(tensor) for tensor in tensors]), structure)
        if isinstance(way, str):
            return refused(way, tensors, structure)
        if way.program is not None:
            if way.program.writes:
                why = _unsafe_writes(tensors)
                if why:
                    return refused(why, tensors, structure)
            if way.program.steps > _LONG and _is_here(tensors) and _wants_values(tensors):
                return refused("a long program, whose loops NumPy's way keeps", tensors, structure)
        try:
            outputs = () if way.program is None else way.program(tensors)
        except Unsupported as error:  # nothing has been written yet
            return refused(str(error), tensors, structure)
        return _filled_in(way.result, outputs, tensors)

    functools.update_wrapper(wrapped, function if hasattr(function, "__name__") else plain)
    return wrapped
