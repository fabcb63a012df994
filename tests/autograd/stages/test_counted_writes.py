"""Writes of compiled graphs count as eager's do: a backward pass that needs the old contents raises. Writes in graphs where
gradients are switched off in part are in the graph, or fall back where the graph can't tell contents from history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")


def written(buffer: torch.Tensor) -> torch.Tensor:
    buffer.add_(1)
    return buffer * 2


def written_with_gradients(buffer: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        buffer.mul_(0.5).add_(weight)
    return (weight * buffer).sum()


class TestVersions:
    @pytest.mark.parametrize("size", [3, 4])
    def test_what_eager_saved_and_a_graph_wrote_raises(self, size: int) -> None:
        weight = torch.randn(size, requires_grad=True)
        compiled = tatara.compile(written)
        for _ in range(3):
            buffer = torch.randn(size)
            product = weight * buffer
            compiled(buffer)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.sum().backward()
        assert tatara.stats()["graphs"] == 1

    def test_views_and_bases_count_together(self) -> None:
        weight = torch.randn(3, requires_grad=True)
        compiled = tatara.compile(written)
        for _ in range(3):
            base = torch.randn(2, 3)
            product = weight * base
            compiled(base[0])
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.sum().backward()

    def test_a_training_graph_counts_before_it_saves(self) -> None:
        compiled = tatara.compile(written_with_gradients)
        for _ in range(3):
            weight = torch.randn(3, requires_grad=True)
            buffer = torch.randn(3)
            first = weight * buffer
            compiled(buffer, weight).backward()
            assert torch.equal(weight.grad, buffer)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                first.sum().backward()
        assert tatara.stats()["fallbacks"] == 0

    def test_what_a_graph_saved_and_another_wrote_raises(self) -> None:
        weight = torch.randn(3, requires_grad=True)
        product = tatara.compile(lambda w, x: w * x)
        write = tatara.compile(written)
        for _ in range(3):
            buffer = torch.randn(3)
            result = product(weight, buffer)
            write(buffer)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()

    def test_inference_tensors_outside_of_inference_mode(self) -> None:
        compiled = tatara.compile(written)
        for _ in range(2):
            compiled(torch.randn(3))
        with torch.inference_mode():
            other = torch.randn(3)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            compiled(other)
        with torch.inference_mode():
            before = other.clone()
            assert torch.equal(compiled(other), (before + 1) * 2)


def drawn(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    with torch.no_grad():
        noise = torch.empty_like(w).exponential_().log_().neg_()
    return (w * x + noise).softmax(-1)


def gumbel(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    return F.gumbel_softmax(w * x, tau=0.5, hard=True)


def running(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    h = F.relu(w * x - b, inplace=True)
    with torch.no_grad():
        b.mul_(0.9).add_(h.mean(0), alpha=0.1)
    return h * b.clone()


def masked(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    h = w * x
    with torch.no_grad():
        m = (h > 0).float()
        m[0] = 0
    h[:, 0] = m[:, 0]
    return h * m


def detached(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    h = w * x
    seen = h.detach()
    h.add_(1)
    b.copy_(seen)
    return h * seen


def filled(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    h = torch.zeros(3, 4)
    with torch.no_grad():
        h[0] = x[0] * w[0]
    h[1] = w[1] * x[1]
    return h


# What the graph can't tell from its history; torch makes these writes between the parts of the graph.
def contents_alone(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    y = w * x
    with torch.no_grad():
        y.view(-1).add_(1)
    return y * 2


def through_a_detached_view(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    y = w * x
    y.detach().mul_(2)
    return y.sin().sum() + y.detach().sum()


def of_a_leaf(w: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> Any:
    with torch.no_grad():
        w.view(-1).clamp_(-1, 1)
    return w * x


INSIDE = [drawn, gumbel, running, masked, detached, filled]
OUTSIDE = [contents_alone, through_a_detached_view, of_a_leaf]


def trained(function: Callable[..., Any]) -> list[Any]:
    found: list[Any] = []
    torch.manual_seed(3)
    for size in (4, 4, 4):
        w, x, b = torch.randn(3, size, requires_grad=True), torch.randn(3, size), torch.randn(3, size)
        result = function(w, x, b)
        try:
            result.pow(2).sum().backward()
        except RuntimeError as error:
            found.append(str(error))
        found += [result.detach(), w.detach(), w.grad, x, b, b.requires_grad, result.requires_grad]
    return [*found, torch.get_rng_state()]


@pytest.mark.parametrize("function", INSIDE + OUTSIDE, ids=lambda f: f.__name__)
def test_writes_beside_what_takes_no_gradient(function: Callable[..., Any]) -> None:
    compiled = tatara.compile(function)
    same(trained(compiled), trained(function))
    assert tatara.stats()["fallbacks"] == 0
    cut = any("between" in (entry.get("details") or {}) for entry in compiled._report()["entries"])
    assert cut == (function in OUTSIDE)
