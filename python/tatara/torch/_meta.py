"""Result types from the host's meta kernels, without the import of torch's own compiler.

Many of torch's meta kernels are written in Python and marked as not for its compiler, by a decorator that imports the compiler
(2 to 7 seconds) at the first call only to find out that there is nothing to disable. While `call` runs such a kernel, the
marked functions stand for themselves; afterwards they are as they were.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

_CACHE = "__dynamo_disable"  # where torch._compile keeps what it found out
_marked: list[Any] | None = None


def _functions() -> Iterator[Any]:
    """Everything that torch's Python meta kernels are made of."""
    tables = getattr(sys.modules.get("torch._decomp"), "global_decomposition_table", {})
    for table in tables.values():
        yield from list(table.values())
    for name, module in list(sys.modules.items()):
        if name == "torch._refs" or name.startswith("torch._refs."):
            yield from list(vars(module).values())


def _find_marked() -> list[Any]:
    torch = sys.modules["torch"]
    marker = getattr(torch, "_disable_dynamo", None)
    if marker is None:
        return []
    code = marker(_find_marked).__code__
    found: list[Any] = []
    seen: set[int] = set()
    pending = [f for f in _functions() if isinstance(f, types.FunctionType)]
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        # Decorators hold what they wrap in their closures (`__wrapped__` may name something else).
        inside = [cell.cell_contents for cell in function.__closure__ or () if _is_function(cell)]
        if function.__code__ is code:
            found += inside
        pending += inside
    return found


def _is_function(cell: Any) -> bool:
    try:
        return isinstance(cell.cell_contents, types.FunctionType)
    except ValueError:  # an empty cell
        return False


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """`function(*args, **kwargs)` on meta tensors."""
    global _marked
    if isinstance(function, UnderAutocast):
        return tried(function, args, kwargs)
    if _marked is None:
        _marked = _find_marked()
    given = [f for f in _marked if _CACHE not in vars(f)]
    for f in given:
        setattr(f, _CACHE, f)
    try:
        return function(*args, **(kwargs or {}))
    finally:
        for f in given:
            vars(f).pop(_CACHE, None)


class UnderAutocast:
    """A call that runs with autocast on, wherever it runs."""

    def __init__(self, function: Callable[..., Any], dtype: Any) -> None:
        self._function, self._dtype = function, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        with torch.autocast("cpu", dtype=self._dtype):
            return self._function(*args, **kwargs)


def tried(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """The results of a call on numbers of our own, as tensors without data. It is made twice, of other numbers: results whose
    sizes data decide, and views of operands, are an error.
    """
    import torch
    from torch.utils import _pytree

    generator = torch.Generator()

    def numbers(like: Any) -> Any:
        if like.is_floating_point() or like.is_complex():
            wide = torch.complex128 if like.is_complex() else torch.float64
            made = torch.rand(like.shape, dtype=wide, generator=generator)
            made = (made.real * 3).floor() if which == 1 else made
        elif which == 1:
            made = torch.arange(like.numel()).reshape(like.shape).add(1) % 3
        else:
            made = torch.ones(like.shape)
        own = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        return own.copy_(made)

    def without_data(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.layout != torch.strided or value.untyped_storage().data_ptr() in places:
            raise NotImplementedError("a result that is not a new tensor")
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

    def word(value: Any) -> Any:
        return (value.shape, value.stride(), value.dtype) if isinstance(value, torch.Tensor) else value

    found: list[list[Any]] = []
    state = torch.get_rng_state()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for which in range(3):  # the second time with zeros among them
            if len(found) == 2:
                break
            generator.manual_seed(which)
            operands = _pytree.tree_map_only(torch.Tensor, numbers, (args, kwargs or {}))
            tensors = [each for each in _pytree.tree_leaves(operands) if isinstance(each, torch.Tensor)]
            places = {each.untyped_storage().data_ptr() for each in tensors} - {0}
            try:
                result = function(*operands[0], **operands[1])
            except RuntimeError:
                if which == 1:
                    continue  # zeros are an error
                raise
            made = [without_data(each) for each in (result if isinstance(result, (tuple, list)) else (result,))]
            found.append(made)
    if not torch.equal(state, torch.get_rng_state()):
        torch.set_rng_state(state)
        raise NotImplementedError("a call that draws random numbers")
    if list(map(word, found[0])) != list(map(word, found[1])):
        raise NotImplementedError("a call whose results data decide")
    if torch.is_grad_enabled() and any(
        each.requires_grad for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)
    ):
        for each in found[0]:
            if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
                each.requires_grad_()
    if isinstance(result, torch.Tensor):
        return found[0][0]
    return type(result)(found[0])
