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
