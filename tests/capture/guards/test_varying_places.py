"""Places outside of the arguments that hold another object in each call: guarded by structure, with sizes that may grow."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
Pair = namedtuple("Pair", "h c")
held = torch.zeros(4)


@dataclass
class State:
    h: Tensor
    extra: list[Tensor]


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for each in value.values() for t in tensors_in(each)]
    if isinstance(value, list | tuple):
        return [t for each in value for t in tensors_in(each)]
    return tensors_in(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, nn.Module) else []


class Cell(nn.Module):
    """A step from `self.state`, in whatever structure, which the caller may replace as well."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], Any], read: Callable[[Any], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.wrap, self.read = wrap, read
        self.state = wrap(torch.zeros(3, 4), torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.read(self.state)
        gate, new = self.layer(torch.cat([x, h], 1)).chunk(2, 1)
        c = c * gate.sigmoid() + new.tanh()
        h = c.tanh() * gate
        self.state = self.wrap(h, c)
        return h + x


class Sourced(Cell):
    """Only reads: the caller gives it another state before each call."""

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.read(self.state)
        return self.layer(torch.cat([x, h * c.exp()], 1)).relu().sum(1)


STRUCTURES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "tuple": (lambda h, c: (h, c), lambda s: s),
    "list": (lambda h, c: [h, c], lambda s: (s[0], s[-1])),
    "dict": (lambda h, c: {"h": h, "c": c}, lambda s: (s["h"], s["c"])),
    "namedtuple": (lambda h, c: Pair(h, c), lambda s: (s.h, s.c)),
    "namespace": (lambda h, c: SimpleNamespace(h=h, c=c), lambda s: (s.h, s.c)),
    "dataclass": (lambda h, c: State(h, [c]), lambda s: (s.h, s.extra[0])),
    "nested": (lambda h, c: ({"a": [h]}, (c, None, "k")), lambda s: (s[0]["a"][0], s[1][0])),
    "tensor": (lambda h, c: torch.cat([h, c], 1), lambda s: s.chunk(2, 1)),
}


def late_recompiles(step: Callable[[int], None], calls: int = 9, learning: int = 4) -> int:
    for call in range(learning):
        step(call)
    before = tatara.stats()
    for call in range(learning, calls):
        step(call)
    after = tatara.stats()
    assert after["fallbacks"] == 0
    return (after["graphs"] - before["graphs"]) + (after["recompiles"] - before["recompiles"])


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("kind", [Cell, Sourced])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_state_of_a_module(structure: str, kind: type[Cell], detach: bool) -> None:
    wrap, read = STRUCTURES[structure]
    eager, model = kind(wrap, read), kind(wrap, read)
    model.load_state_dict(eager.state_dict())
    compiled = tatara.compile(model)

    def step(call: int) -> None:
        results = []
        for module, run in ((eager, eager), (model, compiled)):
            torch.manual_seed(call)
            if detach or kind is Sourced:
                h, c = (torch.randn(3, 4) for _ in range(2)) if kind is Sourced else read(module.state)
                module.state = wrap(h.detach(), c.detach())
            module.zero_grad()
            out = run(torch.randn(3, 4))
            if detach or kind is Sourced:
                out.sum().backward()
            results.append(
                [out, *tensors_in(module.state), *(p.grad for p in module.parameters() if p.grad is not None)]
            )
        assert len(results[0]) == len(results[1])
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)
            assert (found.requires_grad, found.is_leaf) == (expected.requires_grad, expected.is_leaf)

    assert late_recompiles(step) == 0


@dataclass
class Counter:
    steps: int
    rates: list[float]


NUMBERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dict": (lambda n, r: {"n": n, "r": r}, lambda s: (s["n"], s["r"])),
    "list": (lambda n, r: [n, r], lambda s: (s[0], s[1])),
    "namespace": (lambda n, r: SimpleNamespace(n=n, r=r), lambda s: (s.n, s.r)),
    "dataclass": (lambda n, r: Counter(n, [r]), lambda s: (s.steps, s.rates[0])),
    "tuple": (lambda n, r: (n, r), lambda s: s),
}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("structure", NUMBERS)
def test_numbers_in_what_is_replaced(structure: str, written: bool) -> None:
    """Counters and rates in a state that is another object in each call."""
    wrap, read = NUMBERS[structure]

    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            n, r = read(self.state)
            out = x * n + r / (n + 1)
            if written:
                self.state = wrap(n + 1, r * 0.5)
            return out

    eager, model = Module(), Module()
    compiled = tatara.compile(model)

    def step(call: int) -> None:
        for module in (eager, model):
            if not written or call == 0:
                module.state = wrap(call + 3, 0.5 + call)
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), eager(x))
        found, expected = read(model.state), read(eager.state)
        assert found == expected and [type(each) for each in found] == [type(each) for each in expected]

    assert late_recompiles(step) == 0


def test_what_grows_gets_symbols() -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.keys = x if self.keys is None else torch.cat([self.keys, x], 1)
            return torch.softmax(x @ self.keys.transpose(1, 2), -1) @ self.keys

    eager, model = Cache(), Cache()
    compiled = tatara.compile(model)

    def step(call: int) -> None:
        x = torch.randn(2, 3, 4)
        torch.testing.assert_close(compiled(x), eager(x))
        torch.testing.assert_close(model.keys, eager.keys)

    assert late_recompiles(step) == 0 and model.keys is not None and model.keys.shape == (2, 27, 4)


@pytest.mark.parametrize("place", ["parameter", "buffer", "global", "cell", "item", "key", "get", "attribute"])
@pytest.mark.parametrize("sizes", [False, True])
def test_replaced_outside(place: str, sizes: bool) -> None:
    """What the program replaces between two calls, of the same sizes or of others."""
    module, items, table, holder = nn.Linear(4, 4), [torch.zeros(4), 1], {"k": torch.zeros(4)}, SimpleNamespace(t=held)
    module.register_buffer("scale", torch.zeros(4))
    inside = torch.zeros(4)

    def program(x: Tensor) -> Tensor:
        if place in ("parameter", "buffer"):
            value = module.weight if place == "parameter" else module.scale
        elif place in ("global", "cell"):
            value = held if place == "global" else inside
        elif place in ("key", "get"):
            value = table["k"] if place == "key" else table.get("k")
        else:
            value = items[0] if place == "item" else holder.t
        return (x.unsqueeze(0) * value.sum() + value.mean(0)).sin()

    compiled = tatara.compile(program)

    def step(call: int) -> None:
        global held
        nonlocal inside
        value = torch.randn(call + 2 if sizes else 5, 4)
        module.weight, module.scale, held, inside = nn.Parameter(value), value, value, value
        items[0] = table["k"] = holder.t = value
        x = torch.randn(3)[:, None]
        torch.testing.assert_close(compiled(x), program(x))

    assert late_recompiles(step) == 0


def test_observers_behind_a_condition() -> None:
    """Running ranges of quantization: another tensor in each call, and a branch that the first call alone takes."""

    class Observer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("low", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            low = x.detach().min()
            if self.low.min() > -1e-5:
                self.low = self.low + low
            else:
                self.low = self.low * 0.9 + low * 0.1
            return (x / self.low).round() * self.low

    eager, model = (nn.Sequential(Observer(), nn.Tanh(), Observer()) for _ in range(2))
    compiled = tatara.compile(model)

    def step(call: int) -> None:
        x = torch.randn(4, 5)
        torch.testing.assert_close(compiled(x), eager(x))
        for found, expected in zip(model.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(found, expected)

    assert late_recompiles(step, calls=12, learning=8) == 0


def test_one_tensor_in_two_places() -> None:
    """Two places hold one tensor or two: writes to one are seen in the other, or not."""
    holder = SimpleNamespace(a=torch.zeros(3), b=torch.zeros(3))

    def program(x: Tensor) -> Tensor:
        holder.a.add_(x)
        return holder.b * 2 + x

    compiled = tatara.compile(program)
    for call in range(12):
        results = []
        for run in (program, compiled):
            value = torch.full((3,), float(call))
            holder.a, holder.b = value, value if call % 3 == 0 else value.clone()
            if call % 4 == 3:
                holder.b = value[:]
            results.append((run(torch.ones(3)), holder.a, holder.b))
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)


def test_the_argument_in_a_place() -> None:
    holder = SimpleNamespace(t=torch.zeros(3))

    def program(x: Tensor) -> Tensor:
        x.mul_(2)
        return holder.t + x

    compiled = tatara.compile(program)
    for call in range(10):
        results = []
        for run in (program, compiled):
            x = torch.full((3,), float(call + 1))
            holder.t = x if call % 2 == 0 else x.clone()
            results.append((run(x), x, holder.t))
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)


def test_other_kinds_are_told_apart() -> None:
    """Another dtype, layout, class or requires_grad in the place: never the entry of another one."""
    holder: SimpleNamespace = SimpleNamespace(t=torch.zeros(3))

    def program(x: Tensor) -> Tensor:
        return holder.t * 2 + x if holder.t is not None else x

    compiled = tatara.compile(program)
    values = [
        lambda: torch.ones(3),
        lambda: torch.ones(3),
        lambda: torch.ones(3, dtype=torch.float64),
        lambda: torch.ones(3, requires_grad=True),
        lambda: nn.Parameter(torch.ones(3)),
        lambda: torch.ones(3, dtype=torch.int64),
        lambda: 2.5,
        lambda: None,
        lambda: torch.ones(1),
        lambda: torch.ones(6)[::2],
        lambda: torch.ones(3, dtype=torch.complex64),
        lambda: torch.ones(3).to_sparse().to_dense(),
    ]
    for make in values * 2:
        holder.t = make()
        x = torch.randn(3)
        found, expected = compiled(x), program(x)
        torch.testing.assert_close(found, expected)
        assert (found.dtype, found.requires_grad) == (expected.dtype, expected.requires_grad)


def test_no_old_tensor_is_kept() -> None:
    import weakref

    holder = SimpleNamespace(t=torch.zeros(3))
    compiled = tatara.compile(lambda x: holder.t + x)
    seen = []
    for _ in range(6):
        holder.t = torch.randn(3)
        seen.append(weakref.ref(holder.t))
        compiled(torch.ones(3))
    assert sum(each() is not None for each in seen) <= 2  # the place's, and the first one
