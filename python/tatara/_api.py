"""compile, disable, reset and their kin."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from tatara import _core
from tatara._errors import InvalidArgument


def _torch() -> Any:
    return sys.modules.get("torch")


def _unwrap(function: Any) -> Any:
    return getattr(function, "_tatara_function", function)


def _make(function: Any, backend: Any, fullgraph: bool, dynamic: bool | None, self: Any = None) -> Any:
    compiled = _core.CompiledFunction(function, backend, fullgraph, self, dynamic)
    functools.update_wrapper(compiled, function)
    return compiled


def compile(
    model: Any = None,
    *,
    backend: str | Callable[..., Any] = "tatara",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """A compiled form of a function or `torch.nn.Module`, with the same meaning.

    `backend` is "tatara", "eager" (capture only) or a callable `(graph, example_inputs) -> callable`. With `fullgraph`
    a graph break raises `tatara.Unsupported`. A size becomes a symbol when it is seen with a second value; with
    `dynamic=True` every size but 0 and 1 is one from the start, with `dynamic=False` none ever is. Without `model` this is
    a decorator.
    """
    if model is None:
        return functools.partial(compile, backend=backend, fullgraph=fullgraph, dynamic=dynamic, options=options)
    if isinstance(backend, str) and backend not in ("tatara", "eager"):
        raise InvalidArgument(f"unknown backend {backend!r}; there are 'tatara', 'eager' and callables")
    torch = _torch()
    if torch is not None and isinstance(model, torch.nn.Module):
        from tatara._module import compile_module

        return compile_module(
            model, lambda function, self: _core.CompiledFunction(function, backend, fullgraph, self, dynamic)
        )
    if isinstance(model, types.MethodType):
        function = _unwrap(model.__func__)
        if isinstance(function, types.FunctionType):
            return _make(function, backend, fullgraph, dynamic, model.__self__)
    if not callable(model):
        raise InvalidArgument(f"cannot compile {type(model).__name__}: not callable")
    function = _unwrap(model)
    if not isinstance(function, types.FunctionType):
        call = getattr(type(model), "__call__", None)  # noqa: B004 - the function itself is wanted
        if isinstance(call, types.FunctionType) and not isinstance(model, type):
            return _make(call, backend, fullgraph, dynamic, model)
        return model
    return _make(function, backend, fullgraph, dynamic)


class _Disabled(contextlib.ContextDecorator):
    def __enter__(self) -> None:
        _core.set_disabled(True)

    def __exit__(self, *exc: object) -> None:
        _core.set_disabled(False)


def disable(function: Callable[..., Any] | None = None) -> Any:
    """As a context or decorator: inside, compiled functions run in eager. Around a function: it is never compiled."""
    if function is None:
        return _Disabled()
    return _Disabled()(function)


def reset() -> None:
    """Forgets everything that was captured and the counters."""
    _core.reset()


def stats() -> dict[str, int]:
    """Counters since the last reset: graphs, breaks, recompiles, kernels compiled and launched, host calls, cache hits."""
    return dict(_core.stats())


def is_compiling() -> bool:
    """False, as in eager: a program takes the same path under Tatara."""
    return False


def mark_dynamic(tensor: Any, dim: int | tuple[int, ...]) -> None:
    """Asks that a dimension be symbolic from the first call on."""
    dims = set(getattr(tensor, "_tatara_dynamic", ()))
    dims.update((dim,) if isinstance(dim, int) else dim)
    tensor._tatara_dynamic = tuple(sorted(dims))
