"""Torch-function modes of torch's own that the program enters in a trace, as masks of attention do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.overrides import TorchFunctionMode, _len_torch_function_stack
from torch.utils._device import DeviceContext

import tatara
from results import same
from tatara.report._report import report_of

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def expanded(mask: Mask, x: Tensor) -> Tensor:
    """As transformers' sdpa_mask makes it of a function of places."""
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        mask = torch.vmap(mask, in_dims=dims, out_dims=0)
    rows, columns = x.shape
    return mask(torch.arange(rows), torch.arange(1), torch.arange(columns), torch.arange(columns))


def padding(x: Tensor) -> Tensor:
    kept = x > 0
    with TransformGetItemToIndex():
        return expanded(lambda b, h, q, k: (k <= q) & kept[b, k], x)


def chunks(x: Tensor) -> Tensor:
    with TransformGetItemToIndex():
        return expanded(lambda b, h, q, k: torch.div(q, 2, rounding_mode="trunc") >= k.new_ones(()) * k, x)


def of_rows(x: Tensor) -> Tensor:
    row = torch.tensor(1)
    with TransformGetItemToIndex():
        y = x[row] + 1  # no view: a place as any other
    return y + x[row]


def one_in_the_other(x: Tensor) -> Tensor:
    with TransformGetItemToIndex(), TransformGetItemToIndex():
        y = x.detach()[torch.tensor(0)] * torch.ones(x.size(1))
    return y * x


@pytest.mark.parametrize(
    ("program", "needs"),
    [(padding, False), (padding, True), (chunks, True), (of_rows, False), (one_in_the_other, True)],
)
def test_one_graph(program: Callable[[Tensor], Tensor], needs: bool) -> None:
    compiled = tatara.compile(program)
    for size in (4, 4, 5, 6):
        ours = torch.randn(2, size)
        theirs = ours.clone().requires_grad_(needs)
        ours.requires_grad_(needs)
        found, wanted = compiled(ours), program(theirs)
        same(found, wanted)
        assert found.requires_grad == wanted.requires_grad
        if wanted.requires_grad:
            found.square().sum().backward()
            wanted.square().sum().backward()
            same(ours.grad, theirs.grad)
    assert [b.reason for b in report_of(compiled).breaks] == []
    assert _len_torch_function_stack() == 0


def value_inside(x: Tensor) -> tuple[Tensor, float]:
    with TransformGetItemToIndex():
        y = x[torch.tensor(1)] + 1
        value = y.sum().item()
        y = y + x[torch.tensor(0)]
    return y, value


def raises_inside(x: Tensor) -> Tensor:
    try:
        with TransformGetItemToIndex():
            if x.size(1) > 4:
                raise KeyError(x.size(1))
            return x[torch.tensor(1)] + 1
    except KeyError as error:
        return x + error.args[0]


def asks_for_modes(x: Tensor) -> tuple[Tensor, int]:
    with TransformGetItemToIndex():
        return x[torch.tensor(1)] + 1, _len_torch_function_stack()


def writes_before(x: Tensor) -> tuple[list[Any], Tensor]:
    found: list[Any] = []
    with TransformGetItemToIndex():
        y = x[torch.tensor(1)] * 2
        found.append(y)
        found.append(float(y.sum()))
    return found, y


def device(x: Tensor) -> Tensor:
    with DeviceContext(torch.device("cpu")):
        return torch.zeros(x.shape) + x + torch.arange(x.size(1))


@pytest.mark.parametrize("program", [value_inside, raises_inside, asks_for_modes, writes_before, device])
def test_what_breaks_the_graph_there_does_as_eager(program: Callable[[Tensor], Any]) -> None:
    compiled = tatara.compile(program)
    for size in (4, 4, 5, 6):
        x = torch.randn(2, size)
        same(compiled(x), program(x))
        assert _len_torch_function_stack() == 0


def test_a_mode_that_stays_on() -> None:
    def program(x: Tensor) -> Tensor:
        TransformGetItemToIndex().__enter__()
        return x[torch.tensor(1)] + 1

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(2, 3)
        found = compiled(x)
        assert _len_torch_function_stack() == 1
        torch._C._pop_torch_function_stack()
        same(found, x[1] + 1)


def test_modes_of_the_program_see_each_call() -> None:
    seen: list[str] = []

    class Seen(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def program(x: Tensor) -> Tensor:
        with Seen():
            return x[0].relu() + len(x)

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(2, 3)
        wanted = program(x)
        expected = seen[:]
        seen.clear()
        same(compiled(x), wanted)
        assert seen == expected
        seen.clear()
