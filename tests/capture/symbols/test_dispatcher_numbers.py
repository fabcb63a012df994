"""Operators of the dispatcher, called as themselves with numbers that change from call to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

FLOATS = (0.5, 1.5, 2.25, 0.75)
INTS = (1, 0, 2, 1)
_NUMBERS = {"float", "number", "Scalar", "int", "SymInt", "double"}


def _operators() -> Iterator[tuple[str, Any, list[str]]]:
    """Overloads of one tensor and one to three numbers that have no default, which write nothing and give new tensors."""
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        for overload in packet.overloads():
            schema = getattr(packet, overload)._schema
            needed = [a for a in schema.arguments if not a.has_default_value()]
            kinds = [str(a.type) for a in needed[1:]]
            tags = str(getattr(packet, overload).tags)
            if (
                needed
                and str(needed[0].type) == "Tensor"
                and 1 <= len(kinds) <= 3
                and set(kinds) <= _NUMBERS
                and not any(a.alias_info for a in (*schema.arguments, *schema.returns))
                and all(str(r.type) == "Tensor" for r in schema.returns)
                and "nondeterministic" not in tags
                and "empty" not in name
            ):
                yield f"{name}.{overload}", getattr(packet, overload), kinds


OPERATORS = {name: (operator, kinds) for name, operator, kinds in _operators()}


def _outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
        return type(error)


def _check(program: Callable[..., Any], numbers: list[tuple[Any, ...]], x: torch.Tensor) -> int:
    compiled = tatara.compile(program)
    worked = 0
    for each in numbers:
        expected, made = _outcome(program, x, *each), _outcome(compiled, x, *each)
        if isinstance(expected, type):
            assert made is expected, f"{each}"
            continue
        same(made, expected, equal_nan=True)
        worked += 1
    return worked


def test_there_are_many() -> None:
    assert len(OPERATORS) > 80


@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_that_change(name: str) -> None:
    operator, kinds = OPERATORS[name]
    x = torch.tensor([[0.25, 1.5, 2.0], [3.0, 0.5, 1.0]])
    integers = torch.tensor([[1, 2, 3], [4, 5, 6]])

    def program(x: torch.Tensor, *numbers: Any) -> Any:
        return operator(x, *numbers)

    def packet(x: torch.Tensor, *numbers: Any) -> Any:
        return operator.overloadpacket(x, *numbers)

    calls = [tuple((INTS if k in ("int", "SymInt") else FLOATS)[i] for k in kinds) for i in range(4)]
    if not _check(program, calls, x) and not _check(program, calls, integers):
        pytest.skip("eager refuses these operands")
    _check(packet, calls, x)


@pytest.mark.parametrize("kind", ["float", "int", "Scalar", "SymInt", "float?", "Scalar[]"])
@pytest.mark.parametrize("form", ["packet", "overload", "keyword"])
def test_operators_of_the_program(kind: str, form: str) -> None:
    library = torch.library.Library("of_tests_numbers", "FRAGMENT")
    library.define(f"scaled(Tensor x, {kind} by) -> Tensor")
    for key in ("CPU", "Meta"):
        library.impl("scaled", lambda x, by: x * (by[0] if isinstance(by, list) else by), key)
    scaled = torch.ops.of_tests_numbers.scaled

    def program(x: torch.Tensor, by: Any) -> Any:
        given = [by] if kind.endswith("]") else by
        if form == "keyword":
            return scaled(x=x, by=given) + 1
        return (scaled if form == "packet" else scaled.default)(x, given) + 1

    values = INTS if kind in ("int", "SymInt") else FLOATS
    assert _check(program, [(v,) for v in values], torch.ones(2, 3)) == 4
    library._destroy()


def test_a_method_that_only_its_object_has() -> None:
    def program(x: torch.Tensor, by: float) -> Any:
        return torch.ops.aten.leaky_relu.default._op(x, by) + 1

    assert _check(program, [(v,) for v in FLOATS], torch.randn(2, 3)) == 4


def test_under_a_mode_of_the_program() -> None:
    class Seen(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[Any] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls.append((str(func), args[1]))
            return func(*args, **(kwargs or {}))

    def program(x: torch.Tensor, by: float) -> Any:
        return torch.ops.aten.leaky_relu.default(x, by)

    compiled = tatara.compile(program)
    x = torch.tensor([-1.0, -2.0])
    for by in FLOATS:
        seen = []
        for function in (program, compiled):
            with Seen() as mode:
                result = function(x, by)
            same(result, x * by)
            seen.append(mode.calls)
        assert seen[0] == seen[1]
