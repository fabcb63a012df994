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


def _spans(padding: Any, width: int, span: int, scale: float) -> Any:
    """Spans of a mask, as SpecAugment draws them: how many, and where."""
    extra = np.random.rand(1).item()

    def count_of(length: int) -> int:
        return max(int(scale * length / span + extra), 1)

    lengths = padding.sum(1).tolist() if isinstance(padding, Tensor) else padding
    mask = np.zeros((len(lengths), width), dtype=bool)
    places = []
    for length in lengths:
        count = count_of(length)
        drawn = np.random.choice(np.arange(length - span + 1), count, replace=False)
        places.append(np.concatenate([drawn, np.full(3 - count, drawn[0])]))
    if len(places) > 3:
        return mask  # where loops end may differ
    indices = (np.array(places)[:, :, None] + np.arange(span)).reshape(len(lengths), -1)
    if indices.max() > width - 1:
        indices[indices > width - 1] = width - 1
    np.put_along_axis(mask, indices, True, -1)
    return mask


def _resampled(padding: Any, width: int, span: int, scale: float) -> Any:
    """A loop that goes on until what is drawn will do."""
    for _ in range(40):
        drawn = np.random.randint(0, 2, (len(padding), width))
        counts = drawn.sum(1) * scale
        if counts.min() > span / 2 and np.sort(drawn[0])[width // 2] == 1:
            return drawn.astype(bool)
    return np.ones((len(padding), width), dtype=bool)


@pytest.mark.parametrize("draw", [_spans, _resampled])
@pytest.mark.parametrize("given", ["tensor", "numbers"])
def test_a_mask_that_numpy_draws(draw: Callable[..., Any], given: str) -> None:
    """What NumPy does with random numbers runs as it stands; what is before and behind it is compiled once."""
    layer, vector = nn.Linear(12, 12), nn.Parameter(torch.ones(12))

    def masked(hidden: Tensor, padding: Tensor) -> Tensor:
        mask = draw(padding if given == "tensor" else [10, 12], 12, 2, 0.35)
        hidden[torch.tensor(mask)] = vector
        return hidden

    def program(x: Tensor, padding: Tensor) -> Tensor:
        hidden = masked(layer(x).tanh() * 2, padding)
        return ((hidden.exp() + 1).log() * x).sum()

    compiled = tatara.compile(program)
    padding = torch.ones(2, 12, dtype=torch.long)
    padding[0, 10:] = 0
    losses: list[Tensor] = []

    def step() -> None:
        x, gradients = torch.randn(2, 12, 12), []
        state = np.random.get_state()
        for function in (program, compiled):
            np.random.set_state(state)
            layer.zero_grad()
            vector.grad = None
            loss = function(x, padding)
            loss.backward()
            losses.append(loss)
            gradients.append([layer.weight.grad, vector.grad, torch.tensor(np.random.rand())])
        torch.testing.assert_close(losses[-1], losses[-2])
        torch.testing.assert_close(*gradients)

    if draw is _spans:
        settles(step, learning=40)  # three spans are drawn in one step of ten
    else:  # a turn of the loop is as rare as it is drawn
        for _ in range(30):
            step()
    with tatara.kernel_history() as history:
        step()
    assert len(history.launches) >= 3
    assert not [each for each in report_of(compiled).breaks if "recompile_limit" in each.reason]


def test_much_work_of_numpy_is_worth_a_graph_each_time() -> None:
    """What runs for real behind a draw is what costs less than a trace."""

    def program(x: Any) -> Any:
        scale = float(np.random.rand(1)[0])
        return np.exp(np.tanh(x * scale + 1) * 2)

    compiled, x = tatara.compile(program), np.linspace(-1, 1, 2_000_000, dtype=np.float32)
    for _ in range(6):
        state = np.random.get_state()
        expected = program(x)
        np.random.set_state(state)
        before = tatara.stats()["kernels_launched"]
        np.testing.assert_allclose(compiled(x), expected, rtol=1e-5)
    assert tatara.stats()["kernels_launched"] > before


def test_a_way_that_leaves_what_runs_for_real() -> None:
    """A rare branch does much behind what is not worth a graph."""
    layer = nn.Linear(8, 8)

    def program(x: Tensor, rare: list[int]) -> Tensor:
        drawn = np.random.rand(2)
        if drawn.max() < 2 and not rare:
            return x + float(np.round(drawn * 10).sum())
        for _ in range(3):
            x = layer(x).tanh() * 2
        return x

    compiled = tatara.compile(program)
    for turn in range(12):
        rare, x = [1] if turn > 6 else [], torch.randn(3, 8)
        state = np.random.get_state()
        expected = program(x, rare)
        np.random.set_state(state)
        with tatara.kernel_history() as history:
            torch.testing.assert_close(compiled(x, rare), expected)
    assert len(history.launches) >= 3
