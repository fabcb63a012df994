"""On a GPU: inputs whose memory begins off the boundary that whole vectors need, as slices of a batch do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graph_counts import counted

import tatara

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 2 + 1


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1)


def product(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.float() @ x.float().transpose(-1, -2))


def steps(x: torch.Tensor) -> torch.Tensor:
    y = x.float() @ x.float().transpose(-1, -2)
    for _ in range(3):
        y = torch.softmax(y, -1) @ y
    return y


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows behind the first": lambda m: m[1:],
    "columns behind the first": lambda m: m[:, 1:],
    "one column": lambda m: m[:, 3:4],
    "every other column": lambda m: m[:, 1::2],
    "transposed": lambda m: m[1:, 1:].t(),
    "one row for all": lambda m: m[1:2].expand(5, -1),
    "flat from the third on": lambda m: m.reshape(-1)[3:163].view(16, 10),
    "nothing": lambda m: m[1:1],
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("program", [pointwise, softmax, product, steps])
def test_values(program: Callable[..., Any], view: str, dtype: torch.dtype) -> None:
    compiled = tatara.compile(program)
    with counted():
        for seed in range(6):  # later calls are CUDA graphs
            torch.manual_seed(seed)
            x = VIEWS[view](torch.randn(17, 11, device="cuda").to(dtype))
            kept = x.clone()
            expected, got = program(x), compiled(x)
            assert got.stride() == expected.stride() and torch.equal(x, kept)
            torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("view", ["rows behind the first", "flat from the third on"])
def test_written(view: str) -> None:
    @tatara.compile
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y.sum())
        return x.sin()

    with counted():
        for seed in range(5):
            torch.manual_seed(seed)
            whole, y = torch.randn(17, 11, device="cuda"), torch.randn(3, 5, device="cuda")[1:]
            other = whole.clone()
            got, version = add(VIEWS[view](whole), y), whole._version
            x = VIEWS[view](other)
            x.mul_(2).add_(y.sum())
            torch.testing.assert_close(got, x.sin())
            torch.testing.assert_close(whole, other)
            assert version > 0


def test_written_with_gaps_keeps_what_lies_between() -> None:
    @tatara.compile
    def double(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    whole = torch.randn(17, 11, device="cuda")
    other = whole.clone()
    for _ in range(3):
        double(whole[:, 1::2])
        other[:, 1::2].mul_(2)
    torch.testing.assert_close(whole, other)


def test_gradients() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(11, 32), torch.nn.GELU(), torch.nn.Linear(32, 5)).cuda()
    compiled = tatara.compile(layer)
    with counted():
        for seed in range(5):
            torch.manual_seed(seed)
            whole = torch.randn(17, 11, device="cuda", requires_grad=True)
            factor = torch.randn(17, 5, device="cuda").reshape(-1)[3:83].view(16, 5)
            grads = []
            for call in (layer, compiled):
                layer.zero_grad()
                whole.grad = None
                call(whole[1:]).backward(factor)
                grads.append([whole.grad, *(p.grad for p in layer.parameters())])
            for expected, got in zip(*grads, strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_parameters_of_one_block() -> None:
    block = torch.randn(1 + 7 * 11 + 7, device="cuda")
    weight, bias = block[1:78].view(7, 11), block[78:]
    x = torch.randn(3, 11, device="cuda")

    @tatara.compile
    def layer() -> torch.Tensor:
        return torch.nn.functional.linear(x, weight, bias).relu()

    with counted():
        for _ in range(5):
            torch.testing.assert_close(layer(), torch.nn.functional.linear(x, weight, bias).relu())
            block.mul_(1.5)
