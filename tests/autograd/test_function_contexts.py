"""Below a graph break, forward and backward of an autograd.Function are not compiled anew for each context."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


class Solve(torch.autograd.Function):
    """Its backward makes a backward pass of its own, which breaks the graph at the call."""

    @staticmethod
    def forward(ctx: Any, z: Any, net: Any) -> Any:
        with torch.no_grad():
            for _ in range(3):
                z = z + 0.1 * net(z)
        ctx.net = net
        ctx.save_for_backward(z)
        return z.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (z,) = ctx.saved_tensors
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (back,) = torch.autograd.grad(ctx.net(z), z, grad)
        return grad + 0.1 * back, None


def test_no_call_is_traced_anew() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    scale = torch.ones(4, requires_grad=True)

    def step(x: Any) -> Any:
        loss = Solve.apply(x * scale, net).square().mean()
        scale.grad = None
        loss.backward()
        return loss.detach()

    run = tatara.compile(step)

    def both() -> None:
        x = torch.randn(3, 4)
        expected = step(x), scale.grad
        same((run(x), scale.grad), expected)

    for _ in range(4):
        both()
    with counts() as grown:
        for _ in range(6):
            both()
    assert (grown["graphs"], grown["recompiles"], grown["fallbacks"]) == (0, 0, 0)
