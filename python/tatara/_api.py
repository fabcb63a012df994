"""compile, disable, reset and their kin."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from tatara import _core
from tatara._backends import find_backend
from tatara._config import checked_value, suggestion
from tatara._errors import InvalidArgument, Unsupported

# Whether Tatara is tracing right now; eager answers False.
is_compiling = _core.is_compiling

_PENDING = "generator functions, coroutines and async generators run in eager: their frames outlive the call"


def _unwrap(function: Any) -> Any:
    return function._tatara_function if isinstance(function, _core.CompiledFunction) else function


def _checked_options(options: dict[str, Any] | None) -> dict[str, Any] | None:
    if options is None:
        return None
    if not isinstance(options, dict):
        raise InvalidArgument(f"options takes a dict of options or None, not {type(options).__name__} {options!r}")
    known = {name: doc for name, doc, scope in _core.option_names() if scope == "compilation"}
    every = [name for name, *_ in _core.option_names()]
    checked = {}
    for name, value in options.items():
        if name in every and name not in known:
            raise InvalidArgument(
                f"option {name!r} is for the whole process: set tatara.config.{name} (not options={{{name!r}: {value!r}}})"
            )
        if name not in known:
            raise InvalidArgument(f"unknown option {name!r}{suggestion(str(name), sorted(known))}")
        checked[name] = checked_value(name, value)
    return checked


class _Maker:
    """Makes compiled functions with one set of choices."""

    def __init__(
        self, backend: str | Callable[..., Any], fullgraph: bool, dynamic: bool | None, options: dict[str, Any] | None
    ) -> None:
        if not isinstance(fullgraph, bool):
            raise InvalidArgument(f"fullgraph takes True or False, not {fullgraph!r}")
        if dynamic is not None and not isinstance(dynamic, bool):
            raise InvalidArgument(f"dynamic takes True, False or None, not {dynamic!r}")
        self.backend = find_backend(backend)
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.options = _checked_options(options)

    def function(self, function: Any, self_argument: Any = None, named: Any = None) -> Any:
        """A compiled function; with `self_argument` before its arguments."""
        pending = inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)
        if self.fullgraph and (pending or inspect.isasyncgenfunction(function)):
            code = function.__code__
            raise Unsupported(f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}: {_PENDING}")
        compiled = _core.CompiledFunction(
            function, self.backend, self.fullgraph, self_argument, self.dynamic, self.options
        )
        functools.update_wrapper(compiled, function if named is None else named)
        return compiled

    def __call__(self, model: Any) -> Any:
        if isinstance(model, classmethod | staticmethod):
            return type(model)(self(model.__func__))
        if isinstance(model, functools.partial):
            return functools.partial(self(model.func), *model.args, **model.keywords)
        if isinstance(model, property):
            raise InvalidArgument("cannot compile a property: compile its function")
        if not callable(model):
            raise InvalidArgument(f"cannot compile {type(model).__name__} {model!r}: not callable")
        if isinstance(model, type):
            raise InvalidArgument(f"cannot compile the class {model.__qualname__}: compile its methods, or an instance")
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(model, torch.nn.Module):
            from tatara._module import compile_module

            return compile_module(model, self.function)
        if isinstance(model, types.MethodType):
            function = _unwrap(model.__func__)
            if isinstance(function, types.FunctionType):
                return self.function(function, model.__self__)
            return self._foreign(model)
        function = _unwrap(model)
        if isinstance(function, types.FunctionType):
            return self.function(function, model._tatara_self if function is not model else None)
        call = getattr(type(function), "__call__", None)  # noqa: B004 - the function itself is wanted
        if isinstance(_unwrap(call), types.FunctionType):
            return self.function(_unwrap(call), function, named=call)
        return self._foreign(function)

    def _foreign(self, callable_object: Any) -> Any:
        # C code has no frame to trace: a frame of ours calls it, which captures torch's own functions.
        def call(*args: Any, **kwargs: Any) -> Any:
            return callable_object(*args, **kwargs)

        return self.function(call, named=callable_object)


def compile(
    model: Any = None,
    *,
    backend: str | Callable[..., Any] = "tatara",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """A compiled form of a function, method, callable object or `torch.nn.Module`, with the same meaning.

    `backend` is "tatara", "eager" (capture only), a name given to `tatara.register_backend`, or a callable
    `(graph, example_inputs) -> callable`. With `fullgraph` a graph break raises `tatara.Unsupported`. A size becomes a
    symbol when it is seen with a second value; with `dynamic=True` every size but 0 and 1 is one from the start, with
    `dynamic=False` none ever is. `options` are those of
    `tatara.config` that concern a compilation, for this function alone. Without `model` this is a decorator.
    """
    maker = _Maker(backend, fullgraph, dynamic, options)
    return maker if model is None else maker(model)


class _Disabled(contextlib.ContextDecorator):
    def __enter__(self) -> None:
        _core.disable(1)

    def __exit__(self, *exc: object) -> None:
        _core.disable(-1)


def disable(function: Callable[..., Any] | None = None) -> Any:
    """As a context: compiled functions called in this thread run in eager. Around a function (also as a decorator, with or
    without parentheses): it runs in eager wherever it is called, also from compiled code, which breaks its graph there.
    """
    if function is None:
        return _Disabled()
    if not callable(function):
        raise InvalidArgument(f"disable takes a callable, not {type(function).__name__} {function!r}")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(function, torch.nn.Module):
        raise InvalidArgument("disable takes functions; a module's forward can be given: disable(module.forward)")
    return _Disabled()(_unwrap(function))


def _identity(original: Any) -> Any:
    return original


def _reduce(compiled: Any) -> Any:
    """For pickle: by name where the name leads to the compiled function itself, else the original."""
    original = compiled._tatara_function if compiled._tatara_self is None else compiled._tatara_self
    found: Any = sys.modules.get(getattr(compiled, "__module__", None) or "")
    for part in compiled.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is compiled:
        return str(compiled.__qualname__)
    return _identity, (original,)


def _copy(compiled: Any) -> Any:
    """For copy and deepcopy: functions are not copied, and no more is a bound object."""
    return compiled


def reset() -> None:
    """Forgets everything that was captured, and sets the counters to zero."""
    _core.reset()


def stats() -> dict[str, int]:
    """Counters since the last reset, over all threads: graphs, breaks, recompiles, kernels_compiled and kernels_launched,
    host_calls (of torch's own kernels), cache_hits (kernels found on disk), guard_hits (calls that found an entry),
    fallbacks (graphs and calls that run in eager), native_loops (loops over NumPy arrays made into code, native_loop_runs, and
    native_loops_taken_back, which the interpreter ran instead), turns_copied (of loops over tensors: they were not traced),
    native_products (big matmuls by kernels of our own),
    cuda_graphs_recorded and cuda_graphs_launched, calls_recorded (of torch's functions, those in graphs) and calls_converted
    (into the compiler's form of a graph; more where something new was learned on the way), tensors_asked (whose layout torch
    was asked for, since their own memory does not tell it). Launches and host calls are counted when a compiled graph runs, on
    a GPU also those within a CUDA graph. scratch_bytes is no counter: memory that is kept for runs on the CPU.
    """
    return dict(_core.stats())


def mark_dynamic(tensor: Any, dim: int | tuple[int, ...]) -> None:
    """Asks that a dimension be symbolic from the first call on."""
    asked = dim if isinstance(dim, tuple | list) else (dim,)
    rank = getattr(tensor, "ndim", None)
    if rank is None:
        raise InvalidArgument(f"mark_dynamic takes a tensor, not {type(tensor).__name__} {tensor!r}")
    for each in asked:
        if type(each) is not int or not -rank <= each < rank:
            raise InvalidArgument(
                f"mark_dynamic takes dimensions from {-rank} to {rank - 1} of this tensor, not {each!r}"
            )
    dims = set(getattr(tensor, "_tatara_dynamic", ()))
    dims.update(asked)
    tensor._tatara_dynamic = tuple(sorted(dims))
