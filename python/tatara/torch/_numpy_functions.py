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
from tatara._errors import InvalidArgument, Unsupported
from tatara.torch._numpy_arrays import to_tensors
from tatara.torch._numpy_programs import Finder, Operand, Output, device_of, replaced

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


def _by_numpy(compiled: Callable[..., Any], tensors: list[torch.Tensor], given: list[Any], structure: Any) -> Any:
    """By NumPy, with its loops as native code: in the memory of tensors and arrays, or in copies of tensors of another device."""
    far = [place for place, tensor in enumerate(tensors) if tensor.device.type != "cpu"]
    device = device_of(tensors)
    if len(far) > 1 and not _core.apart_in_memory([tensors[place] for place in far]):
        raise Unsupported(f"wrap_numpy: tensors on {device} that share memory, for a function that runs by NumPy")
    arrays = [_as_array(item) for item in given]
    args, kwargs = replaced(structure, lambda leaf: arrays[leaf.place] if isinstance(leaf, Operand) else leaf)
    try:
        result = compiled(*args, **kwargs)
    finally:
        for place in far:
            _write_back(tensors[place].detach(), arrays[place])
    places = {id(array): place for place, array in enumerate(arrays)}

    def as_given(leaf: Any) -> Any:
        if id(leaf) in places:
            return tensors[places[id(leaf)]]
        made = _as_tensor(leaf)
        return made.to(device) if isinstance(made, torch.Tensor) else made

    return replaced(result, as_given)


def _write_back(tensor: torch.Tensor, array: np.ndarray[Any, Any]) -> None:
    """Copies what the function has written; what it has not keeps its version."""
    now = torch.from_numpy(array).to(tensor.device)
    # Not by values: NaN is no other one than before.
    before = tensor.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
    if not torch.equal(before, now.reshape(-1).view(torch.uint8)):
        tensor.copy_(now)


def _as_array(item: Any) -> Any:
    return item.detach().resolve_conj().resolve_neg().cpu().numpy() if isinstance(item, torch.Tensor) else item


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
    return bool(device_of(tensors).type == "cpu")


def _unsafe_writes(tensors: list[torch.Tensor]) -> str:
    """Why a program that writes to its arguments may not: the arrays that it was captured on were contiguous, each by itself."""
    if not all(tensor.is_contiguous() for tensor in tensors):
        return "a write to an argument, beside tensors with gaps"
    apart = len(tensors) < 2 or _core.apart_in_memory(tensors)
    return "" if apart else "a write to an argument that shares memory with another"


def _collected(item: Any, tensors: list[torch.Tensor], given: list[Any]) -> Any:
    """The structure with operands in place of tensors and arrays. They are added to `tensors`, as they came to `given`."""
    if isinstance(item, torch.Tensor | np.ndarray | np.generic):
        for place, known in enumerate(given):
            if known is item:
                return Operand(place)
        tensors.append(item if isinstance(item, torch.Tensor) else to_tensors(item))
        given.append(item)
        return Operand(len(given) - 1)
    if type(item) is tuple or type(item) is list:
        return type(item)([_collected(each, tensors, given) for each in item])
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*[_collected(each, tensors, given) for each in item])
    if type(item) is dict:
        return {key: _collected(each, tensors, given) for key, each in item.items()}
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


def wrap(function: Any, compiler: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """See tatara.wrap_numpy; `compiler` is tatara.compile, for what runs by NumPy."""
    plain = _wanted_function(function)
    finder = Finder(plain)
    find = finder.find
    compiled = compiler(plain)

    def refused(why: str, tensors: list[torch.Tensor], given: list[Any], structure: Any) -> Any:
        if not _wants_values(tensors):
            raise Unsupported(f"wrap_numpy: {why}")
        name = getattr(plain, "__name__", "the function")
        if not _is_here(tensors):
            warnings.warn(f"wrap_numpy: {name} runs by NumPy on the CPU: {why}", stacklevel=3)
        return _core.call_apart(
            f"wrap_numpy: {name} runs by NumPy: {why}", _by_numpy, compiled, tensors, given, structure
        )

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tensors: list[torch.Tensor] = []
        given: list[Any] = []
        structure = (_collected(args, tensors, given), _collected(kwargs, tensors, given))
        way = _core.call_alone(find, tuple([_kind(tensor) for tensor in tensors]), structure)
        if isinstance(way, str):
            return refused(way, tensors, given, structure)
        if way.program is not None:
            if way.program.writes:
                why = _unsafe_writes(tensors)
                if why:
                    return refused(why, tensors, given, structure)
            if way.program.steps > _LONG and _is_here(tensors) and _wants_values(tensors):
                return refused("a long program, whose loops NumPy's way keeps", tensors, given, structure)
        try:
            outputs = () if way.program is None else way.program(tensors)
        except Unsupported as error:  # nothing has been written yet
            return refused(str(error), tensors, given, structure)
        return _filled_in(way.result, outputs, tensors)

    functools.update_wrapper(wrapped, function if hasattr(function, "__name__") else plain)
    return wrapped
