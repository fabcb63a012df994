"""Compiled modules stay modules: an object of a subclass that shares the original's `__dict__`.

So parameters, buffers, submodules, hooks, `train`, `to`, `state_dict`, attribute writes and every method of the class work on
the original's own state, and methods that call the module (`generate`, say) use the compiled call.
"""

from __future__ import annotations

import copy
import functools
import types
from typing import Any

import torch
from torch.nn.modules import module as _module

from tatara import _core

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


class CompiledModule:
    """What compiled modules have in common: `isinstance(x, tatara.CompiledModule)`. Pickles and copies are of the original,
    which is `x._orig_mod`.
    """

    _orig_mod: Any
    _compiled_forward: Any
    _compiled_call: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The original class's own hook is for the classes of its users.
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        d = self.__dict__
        for hooks in _GLOBAL_HOOKS:
            if hooks:
                return self._compiled_call(*args, **kwargs)
        if d["_forward_hooks"] or d["_forward_pre_hooks"] or d["_backward_hooks"] or d["_backward_pre_hooks"]:
            return self._compiled_call(*args, **kwargs)
        return self._compiled_forward(*args, **kwargs)

    def __repr__(self) -> str:
        return f"tatara.compile({self._orig_mod!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _original, (self._orig_mod,)

    def __copy__(self) -> Any:
        return copy.copy(self._orig_mod)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._orig_mod, memo)

    @classmethod
    def _tatara_parts(cls) -> list[Any]:
        return [cls._compiled_forward, cls._compiled_call]


def compile_module(module: Any, make: Any) -> Any:
    """Compiles a module's forward (and, for modules with hooks, its whole call). `make(function, self)` compiles a
    function.
    """
    if isinstance(module, CompiledModule):
        module = module._orig_mod
    if isinstance(module, torch.jit.ScriptModule):
        return module  # TorchScript: there is no Python code to compile
    call = make(torch.nn.Module._wrapped_call_impl, module)
    bound = module.forward
    function = getattr(bound, "__func__", None)
    if isinstance(function, _core.CompiledFunction):
        function = function._tatara_function
    forward = make(function, module) if isinstance(function, types.FunctionType) else call
    own = type(module)

    @functools.wraps(function if function is not None else own.forward)
    def compiled_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    namespace = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
        "_orig_mod": module,
        # Not functions of the class: no self is put before their arguments.
        "_compiled_forward": staticmethod(forward),
        "_compiled_call": staticmethod(call),
        "forward": compiled_forward,
    }
    kind: Any = types.new_class(own.__name__, (CompiledModule, own), exec_body=lambda body: body.update(namespace))
    compiled = object.__new__(kind)
    compiled.__dict__ = module.__dict__
    return compiled
