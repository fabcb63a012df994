"""NumPy functions as functions of tensors, and derivatives and batches of functions of arrays."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from tatara._api import compile as tatara_compile
from tatara._errors import InvalidArgument, Unsupported


def _torch_part(name: str) -> Any:
    try:
        return importlib.import_module(f"tatara.torch.{name}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "numpy"):
            raise
        raise Unsupported(f"this needs {error.name}, which is not installed") from None


def _checked(function: Any, what: str) -> Any:
    if not callable(function):
        raise InvalidArgument(f"{what} takes a callable, not {type(function).__name__} {function!r}")
    return function


def wrap_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function as a function of tensors, on any device, without a changed line. Gradients, torch.func's transforms and
    autocast go through it, and in compiled code it is part of the graph.

    It is captured for the tensors' shapes and element types. What it computes must not decide what it does (an `if` on an
    element) and it may write to its arguments alone; else it runs by NumPy, compiled, where values are all that is wanted (on
    copies of tensors of other devices, with a warning), and raises `tatara.Unsupported` where gradients or a transform are.
    Arrays that it returns are tensors, NumPy's scalars tensors without dimensions; element types are NumPy's.
    """
    return _torch_part("_numpy_functions").wrap(_checked(function, "wrap_numpy"), tatara_compile)  # type: ignore[no-any-return]


class _Transformed:
    """A transform of a function, for tensors and for arrays."""

    def __init__(self, function: Any, transform: Callable[[Any], Any], name: str) -> None:
        self.function = _checked(function, name)
        self.transform = transform
        self.on_arrays: Any = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrays = _torch_part("_numpy_arrays")
        if arrays.holds_tensors((args, kwargs)):
            return self.transform(self.function)(*args, **kwargs)
        if self.on_arrays is None:
            self.on_arrays = tatara_compile(self.transform(wrap_numpy(self.function)))
        args, kwargs = arrays.to_tensors((args, kwargs))
        return arrays.to_arrays(self.on_arrays(*args, **kwargs))


def _function(function: Any, transform: Callable[[Any], Any], name: str, argnums: Any = None) -> Callable[..., Any]:
    made = _Transformed(function, transform, name)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        if argnums is not None:
            places = argnums if isinstance(argnums, tuple) else (argnums,)
            wanted = [place % len(args) for place in places if -len(args) <= place < len(args)]
            args = tuple(_torch_part("_numpy_arrays").number(a) if k in wanted else a for k, a in enumerate(args))
        return made(args, kwargs)

    if hasattr(function, "__name__"):
        functools.update_wrapper(transformed, function)
    return transformed


def grad(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function that gives one number: of a NumPy function on arrays, compiled, or of a torch function on
    tensors (torch.func.grad). By the arguments in places `argnums`; with `has_aux` the function gives a pair, whose second
    part comes beside the gradient.
    """
    func = lambda f: _torch_part("_numpy_arrays").func.grad(f, argnums, has_aux)  # noqa: E731
    return _function(function, func, "grad", argnums)


def value_and_grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function's result and its gradient, as `grad`: `(value, gradient)`, with `has_aux` `((value, aux), gradient)`."""

    def turned(f: Any) -> Any:
        both = _torch_part("_numpy_arrays").func.grad_and_value(f, argnums, has_aux)

        def call(*args: Any, **kwargs: Any) -> Any:
            gradient, value = both(*args, **kwargs)
            return value, gradient

        return call

    return _function(function, turned, "value_and_grad", argnums)


def jacobian(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The matrix of derivatives of each result by each element of an argument, as `grad` (torch.func.jacrev)."""
    func = lambda f: _torch_part("_numpy_arrays").func.jacrev(f, argnums)  # noqa: E731
    return _function(function, func, "jacobian", argnums)


def hessian(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The matrix of second derivatives, as `grad` (torch.func.hessian)."""
    func = lambda f: _torch_part("_numpy_arrays").func.hessian(f, argnums)  # noqa: E731
    return _function(function, func, "hessian", argnums)


def vmap(function: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """The function over a batch of arguments, along `in_dims` of each, as `grad` (torch.func.vmap)."""
    func = lambda f: _torch_part("_numpy_arrays").func.vmap(f, in_dims, out_dims)  # noqa: E731
    return _function(function, func, "vmap")


@functools.lru_cache(maxsize=64)
def _moved(function: Any) -> _Transformed:
    def transform(f: Any) -> Any:
        return lambda primals, tangents: _torch_part("_numpy_arrays").func.jvp(f, primals, tangents)

    return _Transformed(function, transform, "jvp")


def jvp(function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """The value, and the derivative along `tangents` (torch.func.jvp): of a NumPy function at arrays, or of a torch function."""
    number = _torch_part("_numpy_arrays").number
    given = tuple(number(each) for each in primals), tuple(number(each) for each in tangents)
    return _moved(function)(given, {})  # type: ignore[no-any-return]
