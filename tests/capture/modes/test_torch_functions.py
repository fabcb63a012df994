"""__torch_function__ of tensors' classes and modes, and names that the program replaces: called as often as in eager."""

from __future__ import annotations

import builtins
import contextlib
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode  # noqa: E402

import tatara  # noqa: E402

LOG: list[Any] = []


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


class Logs(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(("mode", _name(func)))
        return func(*args, **(kwargs or {}))


class Tagged(torch.Tensor):  # type: ignore[misc, name-defined]
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(("tagged", _name(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Like:
    """Not a tensor, but torch's functions take it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(("like", _name(func)))
        return func(*[torch.ones(3) if isinstance(a, Like) else a for a in args], **(kwargs or {}))


class Told:
    """Notes who asks for its repr."""

    def __repr__(self) -> str:
        LOG.append("repr")
        return "told"


TAGGED = torch.arange(3.0).as_subclass(Tagged)
LIKE = Like()
TOLD = Told()


def _mode_around_a_break(x: Any) -> Any:
    with Logs():
        y = torch.sin(x)
        LOG.append(y.sum().item() > 0)
        return torch.cos(y)


def _mode_entered_by_a_stack(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        y = x + 1
        stack.enter_context(Logs())
        y = torch.sin(y)
        print(end="")
        y = torch.cos(y)
    return y * 2


def _device(x: Any) -> Any:
    with torch.device("cpu"):
        y = torch.ones(3) + x
        print(end="")
        return y + torch.zeros(3)


def _subclass(x: Any) -> Any:
    y = torch.sin(x)
    z = torch.add(y, TAGGED)
    return torch.cos(y), z


def _subclass_in_a_list(x: Any) -> Any:
    return torch.stack([x * 2, TAGGED]).sum()


def _no_tensor(x: Any) -> Any:
    return torch.mul(LIKE, torch.sin(x)) + 1


def _repr(x: Any) -> Any:
    return x + (1 if TOLD is not None else 2)


PROGRAMS = [
    _mode_around_a_break,
    _mode_entered_by_a_stack,
    _device,
    _subclass,
    _subclass_in_a_list,
    _no_tensor,
    _repr,
]


def _run(f: Callable[[Any], Any], x: Any) -> tuple[Any, list[Any]]:
    LOG.clear()
    result = f(x)
    said = list(LOG)
    with torch._C.DisableTorchFunction():
        parts = result if isinstance(result, tuple) else (result,)
        return [(type(part), part.detach().as_subclass(torch.Tensor).clone()) for part in parts], said


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("around", [False, True])
def test_called_as_often_as_in_eager(f: Callable[[Any], Any], around: bool) -> None:
    compiled = tatara.compile(f)
    for k in range(4):
        x = torch.linspace(-1, 1, 3) * (k + 1)
        with Logs() if around else contextlib.nullcontext():
            theirs, said = _run(f, x)
        with Logs() if around else contextlib.nullcontext():
            ours, told = _run(compiled, x)
        assert told == said
        assert [kind for kind, _ in ours] == [kind for kind, _ in theirs]
        for (_, a), (_, b) in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    if f is _repr:
        LOG.clear()
        tatara.explain(compiled)
        assert LOG == []


@contextlib.contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    old = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if old is None:
            delattr(owner, name)
        else:
            setattr(owner, name, old)


def _module() -> types.ModuleType:
    source = (
        "import math, torch\ndef f(x):\n    y = torch.sin(x).mul(2)\n"
        "    return y + len([1, 2]) + max(1, 2) + math.floor(1.5) + y.size(0)\n"
    )
    module = types.ModuleType("patched")
    exec(source, module.__dict__)
    return module


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (None, "len", lambda items: 7),
        (None, "max", lambda *items: 30),
        ("builtins", "len", lambda items: 9),
        (math, "floor", lambda x: 100),
        (torch, "sin", torch.cos),
        (torch.Tensor, "mul", lambda a, b: a - b),
        (torch.Tensor, "size", lambda t, d: 50),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_names_replaced_between_calls(owner: Any, name: str, value: Any) -> None:
    """A global that hides a builtin, a function of a module, a method of tensors: used from the next call on."""
    module = _module()
    if owner == "builtins":
        module.__dict__["__builtins__"] = owner = types.ModuleType("builtins")
        owner.__dict__.update(vars(builtins))
        exec("def f(x): return x + len([1, 2])", module.__dict__)
    owner = module if owner is None else owner
    compiled = tatara.compile(module.f)
    x = torch.linspace(-1, 1, 3)
    for _ in range(2):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), module.f(x))
        with _patched(owner, name, value):
            for _ in range(2):
                torch.testing.assert_close(compiled(x), module.f(x))
