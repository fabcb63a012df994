"""What is another one in each call (a text, a module made by the program) does not compile anew in each call."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import numpy as np
import tatara
from tatara.report._report import report_of

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


def settles(step: Callable[[], None], learning: int = 6, calls: int = 6) -> None:
    """Behind the first calls nothing is traced, broken or compiled any more."""
    for _ in range(learning):
        step()
    before = tatara.stats()
    for _ in range(calls):
        step()
    after = tatara.stats()
    for name in ("graphs", "breaks", "recompiles", "fallbacks"):
        assert after[name] == before[name], name


SAYS: dict[str, Callable[[Tensor, Any], None]] = {
    "format": lambda loss, out: print(f"loss {loss.item():.3f}", file=out),
    "percent": lambda loss, out: print("loss %.3f" % float(loss), file=out),
    "concatenated": lambda loss, out: print("loss " + str(loss.item()), "and", loss.item() * 2, file=out),
    "listed": lambda loss, out: print([f"{each.item():.1f}" for each in loss.view(1)], file=out),
    "inside": lambda loss, out: [print(f"{each.item() * 2:.1f}", file=out) for each in loss.view(1)] and None,
    "write": lambda loss, out: out.write(f"{loss.item()}\n"),
}


@pytest.mark.parametrize("says", SAYS)
def test_a_loss_is_printed(says: str) -> None:
    """What comes behind the print is compiled as before it."""
    layer, out = nn.Linear(4, 4), io.StringIO()
    with torch.no_grad():  # whole numbers, whose sums are exact in any order
        layer.weight.copy_(torch.randint(-3, 4, (4, 4)))
        layer.bias.zero_()

    def program(x: Tensor) -> Tensor:
        y = layer(x).relu()
        SAYS[says](y.detach().sum(), out)
        return (y.exp() + 1).log().sum(1) * 2

    compiled = tatara.compile(program)

    def step() -> None:
        x = torch.randint(-5, 6, (3, 4)).float()
        expected, text = program(x), out.getvalue()
        out.seek(0)
        out.truncate()
        torch.testing.assert_close(compiled(x), expected)
        assert text == out.getvalue() != ""
        out.seek(0)
        out.truncate()

    settles(step)
    with tatara.kernel_history() as history:
        step()
    assert len(history.launches) >= 2


def test_a_number_that_a_function_draws() -> None:
    """As mixup does: the graph breaks in the called function, whose result is unpacked."""
    layer = nn.Linear(4, 4)

    def mix(x: Tensor) -> tuple[Tensor, float, int]:
        share = random.random()
        return share * x + (1 - share) * x.flip(0), share, random.randrange(3, 90)

    def program(x: Tensor) -> Tensor:
        mixed, share, count = mix(x)
        loss = layer(mixed).sum()
        return share * loss + (1 - share) * loss.square() + count

    compiled = tatara.compile(program)

    def step() -> None:
        x, state = torch.randn(6, 4), random.getstate()
        expected = program(x)
        random.setstate(state)
        torch.testing.assert_close(compiled(x), expected)

    settles(step)


class Loss(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        torch._dynamo.graph_break()  # any break inside of it
        return ((x - y) ** 2).mean() * self.scale


MODULES: dict[str, Callable[[], nn.Module]] = {
    "smooth": lambda: nn.SmoothL1Loss(beta=0.5),
    "own": lambda: Loss(2.0),
    "norm": lambda: nn.LayerNorm(4, elementwise_affine=False),
    "activation": lambda: nn.LeakyReLU(0.2),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_of_each_call(kind: str) -> None:
    """Given by the caller, so that no trace makes it."""
    layer = nn.Linear(4, 4)

    def program(x: Tensor, module: nn.Module) -> Tensor:
        y = layer(x)
        y = module(y, x) if kind in ("smooth", "own") else module(y)
        return y.sum().sin()

    compiled = tatara.compile(program)

    def step() -> None:
        x = torch.randn(3, 4)
        layer.zero_grad()
        compiled(x, MODULES[kind]()).backward()
        found = layer.weight.grad
        layer.zero_grad()
        program(x, MODULES[kind]()).backward()
        torch.testing.assert_close(found, layer.weight.grad)

    settles(step)


def test_modules_that_differ_are_told_apart() -> None:
    def program(x: Tensor, module: nn.Module) -> Tensor:
        return module(x) * 2

    compiled = tatara.compile(program)
    for _ in range(2):
        for module in (
            nn.LeakyReLU(0.1),
            nn.LeakyReLU(0.1),
            nn.LeakyReLU(0.5),
            nn.ELU(0.5),
            nn.Dropout(0.0).eval(),
            nn.Threshold(0.1, 3.0),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 4, bias=False),
            nn.Sequential(nn.ReLU()),
            nn.Sequential(nn.ReLU()),
        ):
            x = torch.randn(3, 4)
            torch.testing.assert_close(compiled(x, module), program(x, module))
            hooked = nn.LeakyReLU(0.1)
            hooked.register_forward_hook(lambda module, given, result: result + 1)
            torch.testing.assert_close(compiled(x, hooked), program(x, hooked))


def test_a_loss_behind_the_limit() -> None:
    """A function that runs in eager by its limit calls a new module in each call: its forward is compiled once."""
    w = torch.randn(4, 3, requires_grad=True)

    def program(x: Tensor, y: Tensor, seed: str) -> Tensor:
        scale = float(len(seed)) + random.random() * 0
        return nn.CrossEntropyLoss()(x @ w, y) * scale

    compiled = tatara.compile(program, options={"recompile_limit": 2})
    number = iter(range(1000))

    def step() -> None:
        x, y, seed = torch.randn(6, 4), torch.randint(0, 3, (6,)), str(next(number))
        torch.testing.assert_close(compiled(x, y, seed), program(x, y, seed))

    with pytest.warns(RuntimeWarning, match="recompile_limit"):
        settles(step, learning=10)


def test_our_own_code_is_never_a_program() -> None:
    """The derivative of a host's operator runs code of this package in backward(), between two graphs."""
    layer = nn.EmbeddingBag(50, 8, mode="sum")

    def program(index: Tensor, offsets: Tensor) -> float:
        loss = (layer(index, offsets).sum(1) ** 2).mean()
        layer.zero_grad()
        loss.backward()
        return loss.item()

    compiled = tatara.compile(program)

    def step() -> None:
        given = torch.randint(0, 50, (18,)), torch.arange(0, 18, 3)
        assert compiled(*given) == pytest.approx(program(*given))

    settles(step)


def test_numpys_own_code_is_never_a_program() -> None:
    """What NumPy's functions in Python do behind a break of their own is theirs."""
    layer = nn.Linear(8, 8)

    def program(x: Tensor, values: Any) -> Tensor:
        spread = float(np.percentile(values, 30) + np.histogram(values, 4)[0].max())
        return (layer(x) * spread).relu().sum(1)

    compiled = tatara.compile(program)
    for _ in range(4):
        x, values = torch.randn(3, 8), np.random.RandomState(1).rand(20)
        torch.testing.assert_close(compiled(x, values), program(x, values))
    folder = np.__file__.rsplit("/", 1)[0]
    graphs = report_of(compiled).graphs
    assert graphs and not [each for each in graphs if folder in each.text]
