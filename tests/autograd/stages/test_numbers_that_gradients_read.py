"""Python floats that vary from call to call, and that gradients need: part of what a compiled forward saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

PROGRAMS: dict[str, Callable[..., Any]] = {
    "quotient": lambda x, w, t: ((x @ w) / t).sum(),
    "product": lambda x, w, t: ((x @ w).sin() * t).sum(),
    "two results": lambda x, w, t: (lambda h: h.sum() + (h / t).exp().sum())((x @ w) * t),
    "loss": lambda x, w, t: F.cross_entropy((x @ w) / t, torch.zeros(len(x), dtype=torch.long)),
    "normalised": lambda x, w, t: (F.normalize(x @ w, dim=1) / t).sum(),
    "sum of several": lambda x, w, t: (x @ w).mul(t).add(t).div(t + 1).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("again", [False, True])
def test_floats(name: str, again: bool) -> None:
    program = PROGRAMS[name]
    compiled = tatara.compile(program)
    for call in range(4):
        found = []
        for function in (program, compiled):
            generator = torch.Generator().manual_seed(call)
            x = torch.randn(4, 3, generator=generator)
            w = torch.randn(3, 5, generator=generator).requires_grad_()
            result = function(x, w, 0.3 + 0.1 * call)
            (gradient,) = torch.autograd.grad(result, w, create_graph=again)
            second = torch.autograd.grad((gradient * gradient).sum(), w) if gradient.requires_grad else ()
            found.append((result.detach(), gradient.detach(), second))
        same(found[1], found[0], rtol=1e-4, atol=1e-5)
    stats = tatara.stats()
    assert (stats["graphs"], stats["breaks"], stats["fallbacks"]) == (2, 0, 0)


def test_beside_a_write() -> None:
    queue, place = torch.zeros(4, 16), [0]

    def program(x: torch.Tensor, w: torch.Tensor, t: float) -> torch.Tensor:
        h = x @ w
        with torch.no_grad():
            queue[:, place[0] : place[0] + 4] = h.T
        place[0] = (place[0] + 4) % 16
        return (h / t).sum()

    compiled = tatara.compile(program)
    x, w = torch.randn(4, 3), torch.randn(3, 4, requires_grad=True)
    for call in range(6):
        t = 0.2 + 0.1 * call
        compiled(x, w, t).backward()
        assert w.grad is not None
        torch.testing.assert_close(w.grad, (x.T @ torch.ones(4, 4)) / t, rtol=1e-4, atol=1e-5)
        w.grad = None
    torch.testing.assert_close(queue[:, :4], (x @ w.detach()).T)
