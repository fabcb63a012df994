"""Classes of tensors that the program defines: those that change nothing are operands as any other, and the __torch_function__ of
others is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara
from counters import counts
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
CALLS: list[str] = []


class Scaled(torch.nn.Parameter):
    """A parameter that carries a number."""

    def __new__(cls, data: Tensor, scale: float = 2.0) -> Scaled:
        return super().__new__(cls, data)

    def __init__(self, data: Tensor, scale: float = 2.0) -> None:
        self.scale = scale


class Plain(Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    def twice(self) -> Tensor:
        return self * 2


class Boxed:
    """No tensor, but torch's functions take it."""

    def __init__(self, value: Tensor, depth: int = 0) -> None:
        self.value, self.depth = value, depth

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append(func.__name__)
        plain = [a.value if isinstance(a, Boxed) else a for a in args]
        depth = max(a.depth for a in args if isinstance(a, Boxed))
        return Boxed(func(*plain, **(kwargs or {})), depth + 1)


class Bytes(Tensor):
    """A weight of bytes with a scale for each row, as libraries for quantised models have it."""

    @staticmethod
    def __new__(cls, q: Tensor, scale: Tensor, shape: Any, dtype: torch.dtype) -> Bytes:
        return Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=q.device)

    def __init__(self, q: Tensor, scale: Tensor, shape: Any, dtype: torch.dtype) -> None:
        self.q, self.scale = q, scale

    @classmethod
    def of(cls, w: Tensor) -> Bytes:
        scale = w.abs().amax(1) / 127
        return cls((w / scale[:, None]).round().to(torch.int8), scale, w.shape, w.dtype)

    def whole(self) -> Tensor:
        return self.q.to(self.dtype) * self.scale[:, None]

    @classmethod
    def linear(cls, x: Tensor, w: Bytes, bias: Tensor | None = None) -> Tensor:
        y = torch.mm(x.reshape(-1, x.shape[-1]), w.q.t().to(x.dtype)) * w.scale
        y = y.reshape(*x.shape[:-1], y.shape[-1])
        return y if bias is None else y + bias

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            return cls.linear(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        w = args[0]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return cls(w.q, w.scale, w.shape, w.dtype)
        raise NotImplementedError(str(func))


class Halves(Bytes):
    """Two numbers of four bits in a byte, with a scale for each group of eight."""

    @classmethod
    def of(cls, w: Tensor) -> Halves:
        groups = w.reshape(w.shape[0], -1, 8)
        scale = groups.abs().amax(2) / 7
        q = (groups / scale[..., None]).round().clamp(-8, 7).to(torch.int8).reshape(w.shape) + 8
        return cls((q[:, ::2] | (q[:, 1::2] << 4)).to(torch.uint8), scale, w.shape, w.dtype)

    @classmethod
    def linear(cls, x: Tensor, w: Bytes, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, w.whole(), bias)

    def whole(self) -> Tensor:
        q = torch.stack([self.q & 15, self.q >> 4], -1).reshape(self.shape).to(self.dtype) - 8
        return (q.reshape(self.shape[0], self.scale.shape[1], -1) * self.scale[..., None]).reshape(self.shape)


def _model(kind: type[Bytes] | None) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 16)
    )
    for layer in model:
        if kind is not None and isinstance(layer, torch.nn.Linear):
            layer.weight = torch.nn.Parameter(kind.of(layer.weight.detach()), requires_grad=False)
    return model


WEIGHT = torch.randn(16, 16)
SCALED, PLAIN = Scaled(WEIGHT.clone(), 3.0), WEIGHT.clone().as_subclass(Plain)
BYTES, HALVES = _model(Bytes), _model(Halves)


def _scaled(x: Tensor) -> Tensor:
    return F.linear(x, SCALED * SCALED.scale).tanh() + SCALED.sum()


def _plain(x: Tensor) -> Tensor:
    return (x @ PLAIN.twice() + PLAIN.relu().sum(0)).sin()


def _boxed(x: Tensor) -> Any:
    y = torch.add(torch.sin(Boxed(x * 2)), Boxed(x, 5))
    return y.value * 2, y.depth


def _block(x: Tensor) -> Tensor:
    return BYTES(x[None]).sum(0) + HALVES(x).cos()


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "a parameter of a class": _scaled,
    "a tensor of a class": _plain,
    "no tensor": _boxed,
    "int8 weights": lambda x: BYTES(x),
    "int4 weights": lambda x: HALVES(x),
    "both": _block,
}


def _outcome(function: Callable[..., Any], x: Tensor, needs: bool) -> tuple[Any, ...]:
    CALLS.clear()
    x = x.clone().requires_grad_(needs)
    result = function(x)
    first = result[0] if isinstance(result, tuple) else result
    gradient = torch.autograd.grad(first.square().sum(), x)[0] if needs else None
    return result, gradient, tuple(CALLS)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("needs", [False, True])
def test_one_graph(name: str, needs: bool) -> None:
    program = PROGRAMS[name]
    compiled = tatara.compile(program)
    with torch.set_grad_enabled(needs), counts() as grown:
        for _ in range(4):
            x = torch.randn(4, 16)
            expected, found = _outcome(program, x, needs), _outcome(compiled, x, needs)
            same(found, expected, atol=1e-4, rtol=1e-4)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"], grown["fallbacks"]) == (1, 0, 0, 0)


def test_a_class_as_an_argument() -> None:
    def program(w: Tensor) -> Tensor:
        return (w * 2).tanh() + w.sum()

    compiled = tatara.compile(program)
    for _ in range(3):
        for made in (torch.randn(4, 4).as_subclass(Plain), Scaled(torch.randn(4, 4)), torch.randn(4, 4)):
            same(compiled(made), program(made), atol=1e-5, rtol=1e-5)
    assert tatara.stats()["breaks"] == 0


def test_what_changes_behind_the_class_is_seen() -> None:
    weight = Bytes.of(torch.randn(8, 8))

    def program(x: Tensor) -> Tensor:
        return F.linear(x, weight).tanh() * 2

    compiled = tatara.compile(program)
    x = torch.randn(3, 8)
    for change in (lambda: None, lambda: weight.scale.mul_(2), lambda: setattr(weight, "q", -weight.q)):
        change()
        for _ in range(2):
            same(compiled(x), program(x), atol=1e-5, rtol=1e-5)
    original = Bytes.linear
    try:
        Bytes.linear = classmethod(lambda cls, x, w, bias=None: x * 0)  # type: ignore[assignment]
        same(compiled(x), program(x))
    finally:
        Bytes.linear = original  # type: ignore[assignment]
    same(compiled(x), program(x), atol=1e-5, rtol=1e-5)


class Polite:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append(cls.__name__)
        if any(t not in (Polite, Tensor) for t in types):
            return NotImplemented
        return func(*(a.value if isinstance(a, Polite) else a for a in args))


class Last(Polite):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append(cls.__name__)
        if func is torch.mul:
            raise ValueError("no products")
        return func(*(a.value if isinstance(a, Polite) else a for a in args)) + 1


class Greedy(Polite):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*(a.value if isinstance(a, Polite) else a for a in args))
        CALLS.append(f"{value.sum().item():.3f}")  # a value: the graph breaks in here
        return value * 2


@pytest.mark.parametrize("kinds", [(Polite, Polite), (Polite, Last), (Last, Polite), (Greedy, Greedy), (Tensor, Last)])
@pytest.mark.parametrize("func", [torch.add, torch.mul])
def test_who_is_asked(kinds: tuple[Any, Any], func: Callable[..., Tensor]) -> None:
    """In torch's order, once in each call; exceptions are the handler's."""

    def program(x: Tensor) -> Tensor:
        a, b = (x.sin() if kind is Tensor else kind(x.sin()) for kind in kinds)
        try:
            return func(a, b) * 3
        except ValueError as error:
            CALLS.append(str(error))
            return x.cos()

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(4, 4)
        same(_outcome(compiled, x, False), _outcome(program, x, False), atol=1e-5, rtol=1e-5)


def test_nobody_knows_the_call() -> None:
    class Other:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    def program(x: Tensor) -> Tensor:
        try:
            return torch.add(x * 2, Other())
        except TypeError as error:
            return x + len(str(error))

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(3)
        same(compiled(x), program(x))


def test_inputs_that_no_trace_takes_are_left_alone() -> None:
    """After some calls nobody looks at what such a call does; other inputs are compiled as before."""

    class Counted(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})

    def program(x: Tensor) -> Tensor:
        return (x * 2).relu() + x.sin()

    compiled = tatara.compile(program)
    x = torch.randn(4)
    for _ in range(20):
        same(compiled(x.as_subclass(Counted)), program(x.as_subclass(Counted)))
    tried = tatara.stats()["fallbacks"]
    assert tried < 10
    for _ in range(3):
        same(compiled(x), program(x))
    assert tatara.stats()["graphs"] == 1 and tatara.stats()["guard_hits"] == 2
    same(compiled(x.as_subclass(Counted)), program(x.as_subclass(Counted)))
    assert tatara.stats()["fallbacks"] == tried
