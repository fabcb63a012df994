"""Random numbers written in place, and factories without a tensor among their arguments: eager's numbers, and its generator after."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

FILLS: dict[str, tuple[Any, ...]] = {
    "bernoulli_": (0.3,),
    "normal_": (1.0, 2.0),
    "uniform_": (-1, 2),
    "exponential_": (2.0,),
    "cauchy_": (),
    "log_normal_": (),
    "geometric_": (0.3,),
    "random_": (0, 7),
}


def _check(function: Any, native: bool = True) -> None:
    def outcome(run: Any) -> list[Any]:
        torch.manual_seed(3)
        seen: list[Any] = []
        for rows in (5, 5, 7):
            x = torch.randn(rows, 6)
            results = run(x)
            seen += [x, *results, torch.get_rng_state()]
        return seen

    want, got = outcome(function), outcome(tatara.compile(function))
    same(got, want, rtol=1e-6, atol=1e-6)
    assert not native or tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("name", list(FILLS))
def test_fills(name: str) -> None:
    def fill(t: Any) -> Any:
        return getattr(t, name)(*FILLS[name])

    _check(lambda x: (fill(torch.empty_like(x)) * 2, x.sin(), fill(x.new_empty(3, 4))))
    _check(lambda x: (fill(x).mul(2), torch.rand(2)))


@pytest.mark.parametrize("name", list(FILLS))
def test_fills_of_parts(name: str) -> None:
    def fill(t: Any) -> Any:
        return getattr(t, name)(*FILLS[name])

    _check(lambda x: (fill(x[:, 1:4]), x.cos()), native=False)
    _check(lambda x: (fill(torch.empty(6, 5).t()), fill(torch.empty(4, 1)[:, 0]), x.cos()), native=False)


def test_probabilities_of_their_own() -> None:
    _check(lambda x: (torch.empty_like(x).bernoulli_(x.sigmoid()), torch.rand(1)))


def test_normal_without_tensors() -> None:
    _check(
        lambda x: (torch.normal(0.0, 1.0, (3,)) + x[0, :3], torch.normal(x, x.abs()), torch.normal(0.0, x.abs())),
        native=False,
    )


def test_paths_that_are_dropped_in_a_whole_step() -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            kept = x.new_empty((len(x), 1)).bernoulli_(0.7)
            kept.div_(0.7)
            return x + self.linear(x).relu() * kept

    def train(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(Dropped(), Dropped())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = tatara.compile(step) if compiled else step
        losses = [run(torch.randn(4, 6)).detach() for _ in range(5)]
        return [*losses, *(p.detach() for p in model.parameters()), torch.get_rng_state()]

    for want, got in zip(train(False), train(True), strict=True):
        torch.testing.assert_close(got, want)
    assert (tatara.stats()["graphs"], tatara.stats()["breaks"], tatara.stats()["fallbacks"]) == (2, 0, 0)
