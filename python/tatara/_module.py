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


def _own_function(own: type, name: str) -> Any:
    """A method of a class as it is written there; None: no function of Python's."""
    found = next((vars(base)[name] for base in own.__mro__ if name in vars(base)), None)
    if isinstance(found, _core.CompiledFunction):
        found = found._tatara_function
    return found if isinstance(found, types.FunctionType) else None


def _call_whole(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _original(module: torch.nn.Module) -> torch.nn.Module:
    return module


class CompiledModule:
    """What compiled modules have in common: `isinstance(x, tatara.CompiledModule)`. Pickles and copies are of the original,
    which is `x._orig_mod`.
    """

    _orig_mod: Any
    _compiled_forward: Any
    _compiled_call: Any
    _compiled_whole: Any
    _traced: tuple[Any, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The original class's own hook is for the classes of its users.
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        d = self.__dict__
        own = type(self._orig_mod)
        if (own.__call__, own.forward) != self._traced:
            # Another function has been put there since: on the class, or by another class.
            return self._compiled_whole(*args, **kwargs)
        if "forward" in d:
            return self._compiled_call(*args, **kwargs)
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
        return list(dict.fromkeys((cls._compiled_forward, cls._compiled_call, cls._compiled_whole)))


def compile_module(module: Any, make: Any) -> Any:
    """Compiles a module's forward (and, for modules with hooks, its whole call). `make(function, self)` compiles a
    function.
    """
    if isinstance(module, CompiledModule):
        module = module._orig_mod
    if isinstance(module, torch.jit.ScriptModule):
        return module  # TorchScript: there is no Python code to compile
    own: Any = type(module)
    plain = own.__call__ is torch.nn.Module.__call__
    whole = make(_call_whole, module)
    call_function = _own_function(own, "__call__")
    call = make(call_function, module) if call_function is not None else whole
    function = _own_function(own, "forward")
    forward = make(function, module) if function is not None else call
    traced = (own.__call__, own.forward)

    @functools.wraps(function if function is not None else own.forward)
    def compiled_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(module).forward is not traced[1]:
            return type(module).forward(module, *args, **kwargs)
        return forward(*args, **kwargs)

    namespace = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
        "_orig_mod": module,
        # Not functions of the class: no self is put before their arguments.
        "_compiled_forward": staticmethod(forward if plain else call),
        "_compiled_call": staticmethod(call),
        "_compiled_whole": staticmethod(whole),
        "_traced": traced,
        "forward": compiled_forward,
    }
    kind: Any = types.new_class(own.__name__, (CompiledModule, own), exec_body=lambda body: body.update(namespace))
    compiled = object.__new__(kind)
    compiled.__dict__ = module.__dict__
    return compiled
