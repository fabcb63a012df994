"""Result types from the host's meta kernels, without the import of torch's own compiler.

Many of torch's meta kernels are written in Python and marked as not for its compiler, by a decorator that imports the compiler
(2 to 7 seconds) at the first call only to find out that there is nothing to disable. While `call` runs such a kernel, the
marked functions stand for themselves; afterwards they are as they were.
"""

from __future__ import annotations

import sys
import types
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
