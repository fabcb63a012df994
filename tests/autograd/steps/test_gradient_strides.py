"""How gradients lie in memory: as the engine leaves them in `.grad`, also in dimensions of one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("fresh")

X = torch.linspace(-2, 2, 24).reshape(4, 6)
ROWS = X.reshape(2, 2, 6)


def _penalty(layer: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The gradient by the input is part of the loss."""

    def loss(w: Any) -> Any:
        x = X.clone().requires_grad_()
        out = layer(x.tanh(), w)
        (found,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return F.softplus(-out).mean() + found.square().sum(1).mean()

    return loss


LOSSES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "linear": (lambda w: F.linear(X, w).sin().sum(), (1, 6)),
    "linear of one column": (lambda w: F.linear(X[:, :1], w).sin().sum(), (3, 1)),
    "linear of rows": (lambda w: F.linear(ROWS, w).sin().sum(), (1, 6)),
    "matmul": (lambda w: (X @ w).sin().sum(), (6, 1)),
    "broadcast": (lambda w: (X * w).sin().sum(), (1, 6)),
    "transposed": (lambda w: (w.t() * 2).sin().sum(), (1, 6)),
    "permuted": (lambda w: (w.permute(2, 0, 1) * 2).sin().sum(), (4, 1, 6)),
    "used twice": (lambda w: (w.t() * 2).sin().sum() + w.square().sum(), (1, 6)),
    "mean": (lambda w: w.mean(0).sum(), (1, 6)),
    "convolution": (lambda w: F.conv1d(ROWS, w).sin().sum(), (1, 2, 3)),
    "column": (lambda w: w[:, 0].sin().sum(), (6, 1)),
    "penalty": (_penalty(F.linear), (3, 6)),
    "penalty of a matmul": (_penalty(torch.matmul), (6, 1)),
}


def _leaf(shape: tuple[int, ...]) -> Any:
    size = torch.Size(shape).numel()
    return torch.nn.Parameter(torch.linspace(-1, 1, size).reshape(shape))


def _compare(loss: Any, leaf: Callable[[], Any], accumulates: bool) -> None:
    theirs, ours = leaf(), leaf()

    def step(w: Any) -> Any:
        if not accumulates:
            return torch.autograd.grad(loss(w), w)[0]
        w.grad = None
        loss(w).backward()
        return None

    compiled = tatara.compile(lambda: step(ours))
    for _ in range(4):
        with counts() as grown:
            seen = compiled()
        expected = step(theirs)
        if accumulates:
            seen, expected = ours.grad, theirs.grad
        assert seen.stride() == expected.stride()
        torch.testing.assert_close(seen, expected)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_strides_are_those_of_eager(name: str, accumulates: bool) -> None:
    loss, shape = LOSSES[name]
    _compare(loss, lambda: _leaf(shape), accumulates)


@pytest.mark.parametrize(
    "leaf",
    [
        lambda: torch.linspace(-1, 1, 24).reshape(6, 4).t().requires_grad_(),
        lambda: torch.linspace(-1, 1, 48).reshape(12, 4).t()[:, ::2].requires_grad_(),
        lambda: torch.linspace(-1, 1, 6).expand(4, 6).requires_grad_(),
        lambda: torch.linspace(-1, 1, 12)[None, ::2].requires_grad_(),
    ],
    ids=["transposed", "with gaps", "expanded", "a row with gaps"],
)
@pytest.mark.parametrize(
    "loss", [lambda w: (w * X).sin().sum(), lambda w: (w.t() * 2).sin().sum()], ids=["as it is", "turned"]
)
def test_leaves_that_are_not_contiguous(leaf: Any, loss: Any) -> None:
    _compare(loss, leaf, True)


def test_sizes_that_vary() -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (x.t() * 2).sin().sum().backward()
        return x.grad

    compiled = tatara.compile(step)
    for size in (3, 4, 5, 6):
        for x in (torch.linspace(-1, 1, size)[None], torch.linspace(-1, 1, size)[:, None]):
            with counts() as grown:
                seen = compiled(x)
            expected = step(x)
            assert seen.stride() == expected.stride()
            torch.testing.assert_close(seen, expected)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)
