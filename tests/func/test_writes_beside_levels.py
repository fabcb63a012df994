"""In-place writes of a program without gradients that maps a function too: masks of attention are made so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tatara

pytestmark = pytest.mark.usefixtures("fresh")


class Masked(torch.nn.Module):
    """Writes to what comes from parameters, beside a mask made by vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        places = torch.arange(8)
        mask = torch.vmap(torch.vmap(lambda a, b: a >= b, in_dims=(None, 0)), in_dims=(0, None))(places, places)
        h = self.linear(x)
        h *= 2
        h = (h @ h.mT).masked_fill_(~mask, float("-inf"))
        return (h.softmax(-1) + 0).mul_(self.linear.weight)


@pytest.mark.parametrize("needs", [False, True])
def test_as_eager(needs: bool) -> None:
    module, x = Masked(), torch.randn(8, 8)
    compiled = tatara.compile(module)
    for _ in range(3):
        with torch.set_grad_enabled(needs):
            found, expected = compiled(x), module(x)
        torch.testing.assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad == needs
        if needs:
            weight = module.linear.weight
            (a,), (b,) = (torch.autograd.grad(y.square().sum(), [weight]) for y in (found, expected))
            torch.testing.assert_close(a, b)
    assert tatara.stats()["fallbacks"] == 0
    with torch.no_grad():
        report = tatara.explain(Masked())(x)
    assert (len(report.graphs), len(report.breaks)) == (1, 0)


def test_gradients_of_a_level_without_gradients_outside() -> None:
    module = torch.nn.Linear(4, 4)

    def program(x: Any) -> Any:
        y = module(x)
        y.mul_(3)

        def inner(z: Any) -> Any:
            h = module(z) * y
            h = h.clone().mul_(2)
            return h.sum()

        return torch.func.grad(inner)(x), y

    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(3, 4)
        with torch.no_grad():
            for a, b in zip(compiled(x), program(x), strict=True):
                torch.testing.assert_close(a, b)
                assert not a.requires_grad
