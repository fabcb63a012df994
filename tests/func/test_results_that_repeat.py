"""Results of vmap that are the same for every example, and functions with a backward of their own under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same
from tatara.report._report import report_of

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
vmap = torch.vmap


class Gather(torch.autograd.Function):
    """Lets torch make its batched form."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, places: list[Tensor]) -> Tensor:
        return torch.ops.aten.index(x, places)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[1])
        ctx.sizes = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return torch.zeros(ctx.sizes).index_put(ctx.saved_tensors, grad), None


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 5  # not that of the forward


def captured(x: Tensor) -> Tensor:
    row = x[0]
    return vmap(lambda a: row)(x)


def beside_others(x: Tensor) -> tuple[Tensor, Tensor]:
    total = x.sum(0)
    return vmap(lambda a: (a + 1, total * 2))(x)


def of_the_inner_level(x: Tensor) -> Tensor:
    return vmap(lambda a: vmap(lambda b: b.sum())(x))(x)


def of_the_outer_level(x: Tensor) -> Tensor:
    return vmap(lambda a: vmap(lambda b: a.sum())(x))(x)


def written_later(x: Tensor) -> Tensor:
    y = vmap(lambda a: x[0])(x)
    x.detach().mul_(2)
    return y


def gradient(x: Tensor) -> Tensor:
    return torch.func.grad(lambda y: vmap(lambda a: y[0] * 2)(x).sum())(x)


def places(x: Tensor) -> Tensor:
    kept = x.detach() > 0
    rows = torch.arange(x.size(0))
    return vmap(vmap(lambda i, j: Gather.apply(kept, [i, j]), (None, 0)), (0, None))(rows, torch.arange(3))


def constant_double(x: Tensor) -> Tensor:
    with torch.no_grad():
        return vmap(Doubled.apply)(x)


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        captured,
        beside_others,
        of_the_inner_level,
        of_the_outer_level,
        written_later,
        gradient,
        places,
        constant_double,
    ],
)
def test_one_graph(program: Callable[[Tensor], Any], needs: bool) -> None:
    compiled = tatara.compile(program)
    for size in (4, 4, 5, 6):
        theirs = torch.randn(size, 3)
        ours = theirs.clone().requires_grad_(needs)
        theirs.requires_grad_(needs)
        found, wanted = compiled(ours), program(theirs)
        same(found, wanted)
        same(ours, theirs)
        for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted), strict=True):
            assert a.requires_grad == b.requires_grad
            if b.requires_grad:
                a.square().sum().backward(retain_graph=True)
                b.square().sum().backward(retain_graph=True)
        same(ours.grad, theirs.grad)
    assert [b.reason for b in report_of(compiled).breaks] == []


def test_a_backward_of_its_own_counts() -> None:
    def program(x: Tensor) -> Tensor:
        return vmap(Doubled.apply)(x) * 3

    compiled = tatara.compile(program)
    for size in (4, 4, 5):
        x = torch.randn(size, 3)
        grads = []
        for run in (compiled, program):
            leaf = x.clone().requires_grad_()
            run(leaf).sum().backward()
            grads.append(leaf.grad)
        same(grads[0], grads[1])


def test_gradients_of_a_level_count() -> None:
    def program(x: Tensor) -> Tensor:
        return vmap(torch.func.grad(lambda row: Doubled.apply(row).sum()))(x)

    compiled = tatara.compile(program)
    for size in (4, 4, 5):
        x = torch.randn(size, 3)
        same(compiled(x), program(x))


@pytest.mark.parametrize("places", [lambda i: [i, None], lambda i: [None, i], lambda i: [i % 2, i % 3]])
def test_aten_index_by_places(places: Callable[[Tensor], list[Any]]) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.aten.index(x * 2, places(torch.tensor([0, 2]))) + 1

    compiled = tatara.compile(program)
    for size in (3, 3, 4):
        x = torch.randn(size, 5)
        same(compiled(x), program(x))
    assert (tatara.stats()["fallbacks"], tatara.stats()["breaks"]) == (0, 0)


def test_aten_index_by_a_mask() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.aten.index(x, [x[:, 0] > 0]) + 1

    compiled = tatara.compile(program)
    for size in (3, 3, 4, 5):
        x = torch.randn(size, 5)
        same(compiled(x), program(x))
