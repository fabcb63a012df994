"""Lists and dicts from outside of the arguments that are operands of torch's functions, or in operands: compared in each call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
shape = [2, 4]
bank: list[Tensor] = []
places = [0]
nested = {"dims": [[0], [1]]}


class Bank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.features.append(x * 2)
        return torch.stack(self.features).sum(0)


def stacked(x: Tensor) -> Tensor:
    bank.append(x * 2)
    return torch.stack(bank).sum(0)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(shape),
    "a keyword": lambda x: torch.ones(size=shape) + x[0],
    "an index": lambda x: x[places],
    "an index in a tuple": lambda x: x.view(2, 4)[:, places],
    "a tensor of a list": lambda x: torch.tensor(places) + x[0],
    "as_tensor": lambda x: torch.as_tensor(places) * x[0],
    "a list in a dict": lambda x: torch.tensordot(x.view(2, 2, 2), x.view(2, 2, 2), nested["dims"]),
    "stack": stacked,
    "foreach": lambda x: torch.stack(torch._foreach_add([x, *bank], 1.0)),
}


def change(call: int) -> None:
    if call == 2:
        shape[:] = [4, 2]
        places.append(1)
        nested["dims"][0][0] = 2
        bank.append(torch.ones(8))


def start() -> None:
    shape[:], places[:], bank[:] = [2, 4], [0], [torch.zeros(8)]
    nested["dims"] = [[0], [1]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_that_torch_reads_are_compared(name: str) -> None:
    results: list[list[Tensor]] = []
    for run in (PROGRAMS[name], tatara.compile(PROGRAMS[name])):
        start()
        results.append([])
        for call in range(4):
            change(call)
            results[-1].append(run(torch.arange(8.0) + call))
    for eager, compiled in zip(*results, strict=True):
        assert torch.equal(eager, compiled)


def test_lists_that_stay_cost_no_other_compilation() -> None:
    start()
    run = tatara.compile(PROGRAMS["view"])
    run(torch.ones(8))
    with counts() as grown:
        for _ in range(3):
            run(torch.ones(8))
    assert grown["graphs"] == grown["recompiles"] == 0


def test_a_list_of_a_module_may_grow() -> None:
    eager, module = Bank(), Bank()
    compiled = tatara.compile(module)
    for call in range(4):
        x = torch.arange(3.0) + call
        assert torch.equal(compiled(x), eager(x))
    assert all(torch.equal(a, b) for a, b in zip(module.features, eager.features, strict=True))
