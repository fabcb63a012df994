"""Backends by name: what becomes of a captured graph."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

from tatara._config import suggestion
from tatara._errors import InvalidArgument

BUILT_IN = ("tatara", "eager")
_registered: dict[str, Callable[..., Any]] = {}


def _installed() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group="tatara.backends")}


def register_backend(name: str, backend: Callable[..., Any] | None = None) -> Any:
    """Gives a backend `(graph, example_inputs) -> callable` a name for `tatara.compile(..., backend=name)`; without
    `backend` a decorator. Packages can bring backends as entry points of the group "tatara.backends".
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a backend's name is a string, not {name!r}")
    if backend is None:
        return lambda function: register_backend(name, function)
    if name in BUILT_IN:
        raise InvalidArgument(f"the backend {name!r} is Tatara's own")
    if not callable(backend):
        raise InvalidArgument(f"backend {name!r} is not callable: {backend!r}")
    _registered[name] = backend
    return backend


def list_backends() -> list[str]:
    """Names that `tatara.compile` takes as its backend."""
    return sorted({*BUILT_IN, *_registered, *_installed()})


def find_backend(backend: Any) -> Any:
    """The callable behind a name, or a name that the core knows itself."""
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise InvalidArgument(f"backend takes a callable or one of {', '.join(list_backends())}, not {backend!r}")
    if backend in BUILT_IN:
        return backend
    if backend in _registered:
        return _registered[backend]
    installed = _installed()
    if backend in installed:
        loaded = installed[backend].load()
        register_backend(backend, loaded)
        return loaded
    raise InvalidArgument(f"unknown backend {backend!r}{suggestion(backend, list_backends())}")
