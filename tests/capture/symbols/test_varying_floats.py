"""A float that is another one in each call does not recompile for each value, wherever it comes from and whatever it is used for.

`float_forms.py` has the forms. Each is compared with eager: values, types, strides, gradients, the state of the generator, errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from float_forms import FORMS, Form

import numpy as np
import tatara
from counters import counts

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]

VALUES = (0.3, 0.7, 1.3, 2.1, 0.9, 1.7)
# Those for which operators have ways of their own, after two others: what is compiled for any value meets them.
SPECIAL = (
    0.3,
    0.7,
    0.0,
    1.0,
    -0.0,
    2.0,
    0.5,
    -1.0,
    float("inf"),
    float("nan"),
    2,
    True,
    np.float64(0.4),
    1e300,
    1e-300,
)


# Differ from eager for a number that is the same in each call, too.
FIXED = {
    # Eager fails an assertion of its own; its vector code and its scalar code differ; other products of matrices; last bits.
    ("rpow", True), ("torch_pow", True), ("hardtanh", "nan"), ("hardshrink", "nan"), ("addmm", "inf"),
    ("addmm_alpha", "inf"), ("adam", -1.0),
}  # fmt: skip


def _is_fixed(name: str, number: Any) -> bool:
    shown = round(number, 6) if math.isfinite(number) and not isinstance(number, bool) else number
    return (name, str(number)) in FIXED or (name, shown) in {each for each in FIXED if type(each[1]) is type(shown)}


class Layer(torch.nn.Module):
    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.program = program
        self.number: Any = 0.5

    def forward(self, x: Any) -> Any:
        return self.program(x, self.number)


def of_argument(program: Callable[..., Any]) -> Callable[[bool], Callable[..., Any]]:
    compiled = tatara.compile(program)
    return lambda ours: compiled if ours else program


def of_attribute(program: Callable[..., Any]) -> Callable[[bool], Callable[..., Any]]:
    layer = Layer(program)
    compiled = tatara.compile(layer)

    def call(ours: bool) -> Callable[..., Any]:
        def run(x: Any, number: Any) -> Any:
            layer.number = number
            return (compiled if ours else layer)(x)

        return run

    return call


def of_closure(program: Callable[..., Any]) -> Callable[[bool], Callable[..., Any]]:
    number: Any = 0.5

    def inner(x: Any) -> Any:
        return program(x, number)

    compiled = tatara.compile(inner)

    def call(ours: bool) -> Callable[..., Any]:
        def run(x: Any, value: Any) -> Any:
            nonlocal number
            number = value
            return (compiled if ours else inner)(x)

        return run

    return call


def of_list(program: Callable[..., Any]) -> Callable[[bool], Callable[..., Any]]:
    numbers: list[Any] = [0.5]

    def inner(x: Any) -> Any:
        return program(x, numbers[0])

    compiled = tatara.compile(inner)

    def call(ours: bool) -> Callable[..., Any]:
        def run(x: Any, value: Any) -> Any:
            numbers[0] = value
            return (compiled if ours else inner)(x)

        return run

    return call


def of_arithmetic(program: Callable[..., Any]) -> Callable[[bool], Callable[..., Any]]:
    return of_argument(lambda x, number: program(x, number * 0.5 + number / 2))


SOURCES = {f.__name__[3:]: f for f in (of_argument, of_attribute, of_closure, of_list, of_arithmetic)}


def _outcome(call: Callable[..., Any], number: Any, gradients: bool) -> list[Any]:
    """Results, gradient and the state of the generator; of an error its type."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).requires_grad_(gradients)
    torch.manual_seed(7)
    try:
        result = call(x, number)
    except (RuntimeError, ValueError, TypeError, OverflowError, ZeroDivisionError, IndexError) as error:
        return [type(error)]
    state = torch.get_rng_state()
    parts = list(result) if isinstance(result, list | tuple) else [result]
    wanted = [t.real if t.is_complex() else t for t in parts if isinstance(t, torch.Tensor) and t.requires_grad]
    grads: list[Any] = []
    if wanted:
        try:
            grads = list(torch.autograd.grad([t.sin().sum() for t in wanted], x, allow_unused=True))
        except RuntimeError as error:
            grads = [type(error)]
    return [*parts, *grads, state]


def _check(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs), (ours, theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b)
        if isinstance(b, torch.Tensor):
            assert (a.dtype, a.shape, a.stride(), a.requires_grad) == (b.dtype, b.shape, b.stride(), b.requires_grad)
            torch.testing.assert_close(a, b, rtol=5e-5, atol=5e-5, equal_nan=True)
        else:
            assert a == b or a != a


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", FORMS)
def test_compiles_once_for_all_values(name: str, source: str) -> None:
    form: Form = FORMS[name]
    for gradients in (False, True) if form.gradients else (False,):
        call = SOURCES[source](form.program)
        with counts() as grown:
            for number in VALUES:
                _check(_outcome(call(True), number, gradients), _outcome(call(False), number, gradients))
        assert grown["recompiles"] < form.compiles
        assert form.reason or grown["recompiles"] < 2
        assert grown["fallbacks"] == 0


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_special_values(name: str, gradients: bool) -> None:
    call = of_argument(FORMS[name].program)
    for number in (*SPECIAL, torch.tensor(0.6).item()):
        if _is_fixed(name, number):
            continue
        _check(_outcome(call(True), number, gradients), _outcome(call(False), number, gradients))


def test_every_source_at_once() -> None:
    layer = Layer(lambda x, c: x.clamp(-c, c) + torch.nn.functional.leaky_relu(x, c) * torch.full((6,), c))
    compiled = tatara.compile(layer)
    x = torch.randn(4, 6)
    with counts() as grown:
        for number in VALUES:
            layer.number = number
            torch.testing.assert_close(compiled(x), layer(x))
    assert grown["recompiles"] == 1
    assert grown["breaks"] == 0
