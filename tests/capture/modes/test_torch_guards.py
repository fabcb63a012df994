"""Guards of torch's that change what its calls do, around compiled functions and inside: results and answers as in eager."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import overrides  # noqa: E402
from torch.utils._device import device_decorator  # noqa: E402

import tatara  # noqa: E402


class Counts:
    """Not a tensor, but torch's functions and operators take it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return cls.calls

    def __radd__(self, other: Any) -> str:
        return "added to"


class Tagged(torch.Tensor):  # type: ignore[misc, name-defined]
    pass


COUNTS = Counts()
TAGGED = torch.arange(3.0).as_subclass(Tagged)
SILENT = torch._C.DisableTorchFunction()


def _keys() -> Any:
    return torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)


def _arguments(name: str) -> tuple[Any, ...]:
    if name in ("_ExcludeDispatchKeyGuard", "ExcludeDispatchKeyGuard"):
        return (_keys(),)
    if name == "_IncludeDispatchKeyGuard":
        return (torch._C.DispatchKey.ADInplaceOrView,)
    if name == "_ForceDispatchKeyGuard":
        return (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())
    if name == "_SetExcludeDispatchKeyGuard":
        return (torch._C.DispatchKey.ADInplaceOrView, True)
    return {"_InferenceMode": (True,), "device": ("cpu",)}.get(name, ())


def _guards() -> list[str]:
    """All context managers in C that torch has, but for streams, and those that end with a snapshot of another thread."""
    left_out = ("Stream", "Event", "_RestorePythonTLSSnapshot")
    found = [name for name in dir(torch._C) if isinstance(getattr(torch._C, name), type)]
    return [name for name in found if hasattr(getattr(torch._C, name), "__enter__") and name not in left_out]


def _enter(name: str) -> Any:
    return getattr(torch._C, name)(*_arguments(name))


def _asked(y: Any) -> tuple[Any, ...]:
    return (
        overrides.has_torch_function((y,)),
        overrides.has_torch_function_unary(y),
        overrides.has_torch_function_variadic(y, COUNTS),
        overrides.is_tensor_like(COUNTS),
        torch._C._is_torch_function_enabled(),
        torch._C._is_torch_function_all_disabled(),
        torch._C._is_torch_function_mode_enabled(),
        torch._C._len_torch_function_stack(),
        [type(mode).__name__ for mode in overrides._get_current_function_mode_stack()],
        type(overrides._get_current_function_mode()).__name__,
    )


def _objects(y: Any) -> list[Any]:
    said: list[Any] = []
    for call in (lambda: torch.add(y, COUNTS), lambda: y + COUNTS, lambda: torch.sin(COUNTS), lambda: TAGGED * y):
        try:
            result = call()
            said.append(type(result).__name__ if isinstance(result, torch.Tensor) else result)
        except TypeError as error:
            said.append(str(error)[:30])
    return said


def _calls(x: Any) -> Any:
    return torch.sin(x) * torch.ones(3)


def _asks(x: Any) -> Any:
    y = torch.sin(x)
    return y * 2, _asked(y)


def _meets_objects(x: Any) -> Any:
    y = torch.sin(x)
    return y * 2, _objects(y)


def _breaks(x: Any) -> Any:
    y = torch.cos(x)
    print(end="")
    return torch.nn.functional.relu(y) + 1, _asked(y)


def _inside(f: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    def inside(x: Any) -> Any:
        y = torch.sin(x)
        with _enter(name):
            y = y * 2
            inner = f(y)
        return y + 1, inner, _asked(y)

    return inside


def _inside_a_stack(f: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    def inside_a_stack(x: Any) -> Any:
        y = x * 3
        with contextlib.ExitStack() as stack:
            stack.enter_context(_enter(name))
            y = y + torch.ones(3)
        return torch.cos(y), f(y)

    return inside_a_stack


def _flat(result: Any) -> list[Any]:
    """All that can be compared of a result; of tensors also what they know of their history."""
    if isinstance(result, (tuple, list)):
        return [part for each in result for part in _flat(each)]
    if isinstance(result, torch.Tensor):
        with torch._C.DisableTorchFunction():
            values = [round(v, 4) for v in result.detach().as_subclass(torch.Tensor).tolist()]
        return [(type(result), values, result.requires_grad, result.is_inference(), result.grad_fn is not None)]
    return [result]


def _run(f: Callable[[Any], Any], x: Any) -> list[Any]:
    Counts.calls = 0
    try:
        return _flat(f(x))
    except RuntimeError as error:
        return [str(error)[:60]]


PROGRAMS = [_calls, _asks, _meets_objects, _breaks]


@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", _guards())
def test_guard_around_and_inside(name: str, f: Callable[[Any], Any], grad: bool) -> None:
    """The guard around some calls of a compiled function, in any order; and inside of the function."""
    x = torch.linspace(-1, 1, 3, requires_grad=grad)
    for order in ([False, True, True, False, True], [True, True, False, False, True]):
        compiled = tatara.compile(f)
        for around in order:
            with _enter(name) if around else contextlib.nullcontext():
                theirs = _run(f, x)
            with _enter(name) if around else contextlib.nullcontext():
                ours = _run(compiled, x)
            assert ours == theirs
    # Inference mode is part of a trace: its results are those of eager, but none is an inference tensor.
    for make in (_inside, _inside_a_stack) if name != "_InferenceMode" else ():
        program = make(f, name)
        compiled = tatara.compile(program)
        for _ in range(3):
            assert _run(compiled, x) == _run(program, x)


def _guard_from_outside(x: Any) -> Any:
    with SILENT:
        y = torch.sin(x) * 2
    return y + 1


def _decorated(x: Any) -> Any:
    return torch.sin(x) * torch.ones(3)


def _quick(x: Any) -> Any:
    with torch.profiler.record_function("quick"):
        y = torch.sin(x)
    return y + 1


def test_entered_in_other_ways() -> None:
    x = torch.linspace(-1, 1, 3)
    for f in (_guard_from_outside, device_decorator(torch.device("cpu"), _decorated)):
        compiled = tatara.compile(f)
        for _ in range(3):
            assert _run(compiled, x) == _run(f, x)
    assert tatara.explain(_quick)(x).breaks == []  # torch's own code has a guard there
