"""A few cases of each call of the table of factories and samplers; `make factories` checks all."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import factories  # noqa: E402
import tatara  # noqa: E402

CASES = factories.all_cases()
PARTS = 20


def test_every_operator_has_a_case() -> None:
    assert factories.uncovered() == set()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore")
def test_calls(part: int) -> None:
    rng = random.Random(part)
    wrong = []
    for call in list(CASES)[part::PARTS]:
        wrong += factories.check_call(call, rng.sample(CASES[call], min(4, len(CASES[call]))))[1]
    assert wrong == []


@pytest.mark.parametrize(
    "ours, word",
    [
        (torch.ones(2, dtype=torch.float64), "float64"),
        (torch.ones(3), "Size([3])"),
        (torch.ones(2, device="meta"), "meta"),
        (torch.ones(2).to_sparse(), "sparse"),
        (torch.zeros(2), "values"),
    ],
)
def test_differences_are_seen(ours: Any, word: str) -> None:
    case = factories.Case("torch.rand(2)", "float32")
    assert word in str(factories._differs((ours,), (torch.ones(2),), case))


def test_another_state_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def draws_twice(function: Any, **_options: Any) -> Any:
        def call(*arguments: Any) -> Any:
            torch.rand(1)
            return function(*arguments)

        return call

    monkeypatch.setattr(tatara, "compile", draws_twice)
    assert "state" in str(factories.check([factories.Case("torch.zeros(2)", "float32")]))


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.to("meta"),
        lambda x: x.to(torch.device("meta")),
        lambda x: x.to(torch.ones(1, device="meta")),
        lambda x: x.type_as(torch.ones(1, device="meta")),
        lambda x: torch.ops.aten.to.device(x, "meta", torch.float32),
        lambda x: torch.as_tensor(x, device="meta"),
    ],
)
def test_a_copy_to_another_device_is_not_the_operand(move: Any) -> None:
    x = torch.ones(2)
    compiled = tatara.compile(move)
    for _ in range(3):
        assert compiled(x).device.type == move(x).device.type == "meta"


def test_a_sparse_result_of_a_meta_kernel() -> None:
    def f(values: torch.Tensor) -> Any:
        blocks = torch.sparse_bsr_tensor([0, 2, 3], [0, 1, 2], values, size=(2, 3))
        return blocks, blocks * 2

    compiled = tatara.compile(f)
    values = torch.ones(3, 1, 1)
    for _ in range(3):
        for ours, theirs in zip(compiled(values), f(values), strict=True):
            assert ours.layout == theirs.layout
            assert torch.equal(ours.to_dense(), theirs.to_dense())
