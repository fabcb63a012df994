"""Gradients of bags of embeddings: of every kind, with empty bags, weights of samples and padding, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the ecosystem's name

import tatara

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("indices", [torch.int64, torch.int32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_as_eager(mode: str, last: bool, padding: int | None, weighted: bool, indices: torch.dtype) -> None:
    if weighted and mode != "sum":
        pytest.skip("torch takes weights of samples for sums only")
    torch.manual_seed(0)
    table = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    samples = torch.rand(31, dtype=torch.float64, requires_grad=True) if weighted else None

    def bags(index: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(
            index, table, offsets, mode=mode, include_last_offset=last, padding_idx=padding, per_sample_weights=samples
        )

    def gradients(call: Any, begins: list[int]) -> tuple[torch.Tensor | None, ...]:
        table.grad = None
        if samples is not None:
            samples.grad = None
        index = torch.randint(0, 20, (31,), generator=torch.Generator().manual_seed(1)).to(indices)
        result = call(index, torch.tensor(begins).to(indices))
        (result * torch.arange(result.numel()).view(result.shape)).sum().backward()
        return result.detach(), table.grad, None if samples is None else samples.grad

    compiled = tatara.compile(bags)
    for begins in ([0, 4, 4, 9, 20, 31], [0, 4, 4, 9, 20, 31], [0, 0, 31, 31]):
        for got, expected in zip(gradients(compiled, begins), gradients(bags, begins), strict=True):
            assert (got is None) == (expected is None)
            if got is not None:
                torch.testing.assert_close(got, expected)
                assert got.stride() == expected.stride()
    assert tatara.stats()["fallbacks"] == 0


def test_matrices_of_indices_run_no_autograd_of_the_host() -> None:
    bag = torch.nn.EmbeddingBag(50, 8, mode="mean")
    compiled = tatara.compile(bag)
    index = torch.randint(0, 50, (6, 4))
    for _ in range(2):
        bag.zero_grad()
        bag(index).sum().backward()
        expected = bag.weight.grad
        bag.zero_grad()
        with tatara.kernel_history() as history:
            compiled(index).sum().backward()
        torch.testing.assert_close(bag.weight.grad, expected)
    assert [e.name for e in history.events if e.kind == "host_call"] == ["aten::embedding_bag"]
