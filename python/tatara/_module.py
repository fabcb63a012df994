"""Compiled modules stay modules: everything but the call is the original's."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as _module

from tatara import _core

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_GLOBAL_HOOKS = tuple(
    getattr(_module, name)
    for name in (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
)


def _original(module: torch.nn.Module) -> torch.nn.Module:
    return module


class CompiledModule(torch.nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """A module whose call is compiled. Attributes, parameters, state and pickling are the original's."""

    def __init__(self, original: torch.nn.Module, forward: Any, call: Any) -> None:
        self.__dict__["_modules"] = {"_orig_mod": original}
        self.__dict__["_parameters"] = {}
        self.__dict__["_buffers"] = {}
        self.__dict__["_non_persistent_buffers_set"] = set()
        self.__dict__["_orig_mod"] = original
        self.__dict__["_compiled_forward"] = forward
        self.__dict__["_compiled_call"] = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        d = self._orig_mod.__dict__
        for hooks in _GLOBAL_HOOKS:
            if hooks:
                return self._compiled_call(*args, **kwargs)
        if d["_forward_hooks"] or d["_forward_pre_hooks"] or d["_backward_hooks"] or d["_backward_pre_hooks"]:
            return self._compiled_call(*args, **kwargs)
        return self._compiled_forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_orig_mod"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_orig_mod"])

    def __repr__(self) -> str:
        return f"tatara.compile({self._orig_mod!r})"

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __iter__(self) -> Any:
        return iter(self._orig_mod)

    def __getitem__(self, index: Any) -> Any:
        return self._orig_mod[index]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _original, (self._orig_mod,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        return copy.deepcopy(self._orig_mod, memo)


def _delegate(name: str) -> Any:
    def method(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._orig_mod, name)(*args, **kwargs)
        return self if result is self._orig_mod else result

    method.__name__ = name
    return method


for _name in (
    "state_dict", "load_state_dict", "parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules",
    "children", "named_children", "train", "eval", "to", "cpu", "cuda", "half", "float", "double", "bfloat16", "apply",
    "zero_grad",
    "requires_grad_", "register_buffer", "register_parameter", "register_module", "add_module", "get_submodule",
    "get_parameter", "get_buffer", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_full_backward_pre_hook", "extra_repr", "type", "share_memory", "_apply",
):  # fmt: skip
    setattr(CompiledModule, _name, _delegate(_name))


def compile_module(module: torch.nn.Module, backend: Any, fullgraph: bool) -> torch.nn.Module:
    """Compiles a module's forward (and, for modules with hooks, its whole call)."""
    if isinstance(module, CompiledModule):
        module = module._orig_mod
    forward = module.forward
    function = getattr(forward, "__func__", None)
    if function is None or not hasattr(function, "__code__"):
        call = _core.CompiledFunction(torch.nn.Module._wrapped_call_impl, backend, fullgraph, module)
        return CompiledModule(module, call, call)
    compiled = _core.CompiledFunction(function, backend, fullgraph, module)
    call = _core.CompiledFunction(torch.nn.Module._wrapped_call_impl, backend, fullgraph, module)
    return CompiledModule(module, compiled, call)
