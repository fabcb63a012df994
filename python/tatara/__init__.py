"""Tatara compiles ordinary tensor programs: `tatara.compile(fn_or_module)` keeps their meaning and runs them as fused kernels."""

from __future__ import annotations

from tatara import _core
from tatara._api import compile, disable, is_compiling, mark_dynamic, reset, stats
from tatara._backends import list_backends, register_backend
from tatara._config import config
from tatara._errors import CompilationError, Error, InternalError, InvalidArgument, Unsupported
from tatara._explain import explain
from tatara._numpy import grad, hessian, jacobian, jvp, value_and_grad, vmap, wrap_numpy
from tatara._version import __version__ as __version__
from tatara.report._history import Event, History, kernel_history
from tatara.report._model import Break, CapturedGraph, HostCall, Kernel
from tatara.report._report import Report

_core.set_unsupported_type(Unsupported)


def _find_llvm() -> None:
    # By its place on disk: importing llvmlite would load LLVM, which a warm start never needs.
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec("llvmlite")
    if spec is not None and spec.origin:
        library = Path(spec.origin).parent / "binding" / "libllvmlite.so"
        if library.is_file():
            _core.set_llvm_path(str(library))


_find_llvm()
# A wrong variable of the environment is an error here, not at some call later.
_core.check_environment()


def __getattr__(name: str) -> object:
    # Needs torch, which need not be there.
    if name == "CompiledModule":
        from tatara._module import CompiledModule

        return CompiledModule
    if name == "array_api":
        import tatara.array_api

        return tatara.array_api
    raise AttributeError(f"module 'tatara' has no attribute {name!r}")


__all__ = [
    "Break",
    "CapturedGraph",
    "CompilationError",
    "Error",
    "Event",
    "History",
    "HostCall",
    "InternalError",
    "InvalidArgument",
    "Kernel",
    "Report",
    "Unsupported",
    "compile",
    "config",
    "disable",
    "explain",
    "grad",
    "hessian",
    "is_compiling",
    "jacobian",
    "jvp",
    "kernel_history",
    "list_backends",
    "mark_dynamic",
    "register_backend",
    "reset",
    "stats",
    "value_and_grad",
    "vmap",
    "wrap_numpy",
]
