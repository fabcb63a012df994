"""Several backward passes in one step: what a pass has used up is what had saved something, and only in its own history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def _detached(model: Any, x: Any) -> Any:
    """The discriminator's pass reads a detached value, the generator's goes through it."""
    fake = model[0](x)
    first = F.softplus(model[2](fake.detach())).mean()
    first.backward()
    second = F.softplus(-model[2](fake)).mean()
    second.backward()
    return first, second, fake


def _from_a_constant(model: Any, x: Any) -> Any:
    hidden = model[0](x)
    hidden.sum().backward()
    with torch.no_grad():
        doubled = hidden * 2
    return model[2](hidden.detach()), model[2](doubled), doubled


def _from_a_leaf(model: Any, x: Any) -> Any:
    leaf = (x * 2).requires_grad_()
    first = model(leaf).sum()
    first.backward()
    second = model(leaf).square().sum()
    second.backward()
    return first, second, leaf


def _nothing_saved(model: Any, x: Any) -> Any:
    shifted = model[2].weight + 1
    shifted.sum().backward()
    loss = (shifted - 2).mean()
    loss.backward()
    return loss, shifted


def _views(model: Any, x: Any) -> Any:
    turned = torch.cat([model[2].weight.t(), model[2].weight.t()])
    turned.sum().backward()
    loss = (turned @ turned.t()).mean()
    loss.backward()
    return loss, turned


def _saved_by_a_product(model: Any, x: Any) -> Any:
    scaled = model[2].weight * 2
    scaled.sum().backward()
    return scaled + 1, scaled.detach() * model[2].weight


def _again(model: Any, x: Any) -> Any:
    hidden = model[0](x)
    hidden.sum().backward()
    loss = (hidden * 3).sum()
    loss.backward()
    return loss


def _outcome(step: Callable[[Any], Any], model: Any) -> list[Any]:
    seen: list[Any] = []
    for seed in range(4):
        torch.manual_seed(seed)
        try:
            results = step(torch.randn(3, 5))
        except RuntimeError as error:
            seen.append(str(error))
            continue
        for result in results:
            seen.append((result.requires_grad, result.is_leaf, result._is_view(), result._base is None))
            seen.append(result.detach().clone())
            if result.requires_grad:
                try:
                    result.sum().backward(retain_graph=True)
                except RuntimeError as error:
                    seen.append(str(error))
    return [*seen, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize(
    "function",
    [_detached, _from_a_constant, _from_a_leaf, _nothing_saved, _views, _saved_by_a_product, _again],
    ids=lambda f: f.__name__.strip("_"),
)
def test_as_in_eager(function: Any) -> None:
    def outcome(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 2))

        def step(x: Any) -> Any:
            return function(model, x)

        return _outcome(tatara.compile(step) if compiled else step, model)

    for want, got in zip(outcome(False), outcome(True), strict=True):
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(got, want)
        else:
            assert got == want
    if function is not _again:
        assert tatara.stats()["breaks"] == 0


def test_two_players_in_one_step() -> None:
    def train(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        maker, judge = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5)), nn.Linear(5, 1)
        of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())

        def step(real: Any) -> Any:
            fake = maker(torch.randn(len(real), 3))
            of_judge.zero_grad()
            (F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()).backward()
            of_judge.step()
            of_maker.zero_grad()
            loss = F.softplus(-judge(fake)).mean()
            loss.backward()
            of_maker.step()
            return loss, fake

        run = tatara.compile(step) if compiled else step
        losses = [run(torch.randn(4, 5))[0].detach() for _ in range(5)]
        return [*losses, *maker.parameters(), *judge.parameters()]

    for want, got in zip(train(False), train(True), strict=True):
        torch.testing.assert_close(got, want)
    assert (tatara.stats()["graphs"], tatara.stats()["breaks"]) == (2, 0)
