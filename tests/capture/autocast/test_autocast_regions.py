"""Autocast beside checkpoints and vmap; batches of cotangents for compiled gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.func import grad, vmap  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("outside", [False, True])
def test_a_checkpoint_is_computed_again_with_its_casts(reentrant: bool, outside: bool) -> None:
    torch.manual_seed(0)
    layer, data = nn.Linear(4, 4), [torch.randn(3, 4) for _ in range(3)]

    def kept(x: Any) -> Any:
        return checkpoint(lambda v: layer(v).relu(), x, use_reentrant=reentrant)

    def inside(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return kept(x)

    def outcome(compiled: bool) -> list[Any]:
        layer.zero_grad()
        function = kept if outside else inside
        run = tatara.compile(function) if compiled else function
        seen: list[Any] = []
        for each in data:
            x = each.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16, enabled=outside):
                y = run(x)
            y.float().square().sum().backward()
            seen += [y.detach(), x.grad]
        return [*seen, layer.weight.grad, layer.bias.grad]

    for want, got in zip(outcome(False), outcome(True), strict=True):
        assert want.dtype == got.dtype
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert tatara.stats()["breaks"] == 0


def test_autocast_casts_what_batching_rules_call() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 4), torch.randn(3, 4)

    def each(v: Any) -> Any:
        return layer(v), layer(x), v * layer(x)[0], grad(lambda w: layer(w).float().sum())(v)

    def function(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            plain = layer(x)
            return (*vmap(each)(x), *vmap(vmap(layer))(x[None]), grad(lambda w: vmap(layer)(w).float().sum())(x), plain)

    run = tatara.compile(function)
    for _ in range(2):
        for want, got in zip(function(x), run(x), strict=True):
            assert want.dtype == got.dtype
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("rows", [3, 1])
def test_batches_of_cotangents(create: bool, rows: int) -> None:
    torch.manual_seed(0)
    weight = torch.randn(4, 3, requires_grad=True)

    def function(x: Any) -> Any:
        return (x @ weight).tanh(), x.sin()

    def outcome(run: Any) -> list[Any]:
        seen: list[Any] = []
        for _ in range(3):
            x = torch.randn(2, 4, requires_grad=True)
            y, z = run(x)
            given = (torch.randn(rows, 2, 3), torch.randn(rows, 2, 4))
            found = torch.autograd.grad((y, z), (x, weight), given, is_grads_batched=True, create_graph=create)
            seen += list(found)
            if create:
                seen += list(torch.autograd.grad(sum(g.square().sum() for g in found), (x, weight)))
        return seen

    torch.manual_seed(1)
    want = outcome(function)
    torch.manual_seed(1)
    got = outcome(tatara.compile(function))
    for a, b in zip(want, got, strict=True):
        assert (a.shape, a.dtype, a.requires_grad) == (b.shape, b.dtype, b.requires_grad)
        torch.testing.assert_close(b, a)


def test_jacobians_by_batches() -> None:
    torch.manual_seed(0)
    weight = torch.randn(4, 3)
    run = tatara.compile(lambda x: (x @ weight).tanh())
    for _ in range(3):
        x = torch.randn(2, 4)
        want = torch.autograd.functional.jacobian(lambda v: (v @ weight).tanh(), x, vectorize=True)
        torch.testing.assert_close(torch.autograd.functional.jacobian(run, x, vectorize=True), want)
