"""Generators of random numbers that come with a call, another one in each. They go by device, and calls of torch's get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402


def _keyword(x: Any, g: Any, h: Any) -> Any:
    return x + torch.randn(x.shape, generator=g), torch.randint(9, (4,), generator=h), x * 2


def _in_place(x: Any, g: Any, h: Any) -> Any:
    return torch.empty(5).normal_(generator=g) * 2 + torch.zeros(5).uniform_(generator=h), x + 1


def _drawn(x: Any, g: Any, h: Any) -> Any:
    return torch.multinomial(x.abs() + 1, 3, True, generator=g), torch.bernoulli(x * 0 + 0.5, generator=h)


def _passed_on(x: Any, g: Any, h: Any) -> Any:
    def noise(like: Any, generator: Any = None) -> Any:
        if generator is None or generator.device.type != "cpu":
            raise ValueError(generator)
        return torch.rand(like.shape, generator=generator, dtype=like.dtype)

    return (x + noise(x, g) + noise(x, generator=h)).sum(), noise(x, g)


def _trained(x: Any, g: Any, h: Any) -> Any:
    w = torch.ones(x.shape[0], requires_grad=True)
    loss = (w * (x + torch.randn(x.shape, generator=g))).pow(2).sum() + (w * torch.rand(x.shape, generator=h)).sum()
    loss.backward()
    return loss.detach(), w.grad


def _conditional(x: Any, g: Any, h: Any) -> Any:
    y = x + torch.rand(x.shape, generator=g)
    if y.sum() > x.shape[0] * 0.5:
        y = y - torch.rand(x.shape, generator=h)
    return y


def _around_a_break(x: Any, g: Any, h: Any) -> Any:
    a = torch.rand(x.shape, generator=g)
    str(a.tolist())
    return a + torch.rand(x.shape, generator=g), x + torch.rand(x.shape, generator=h)


BODIES = [_keyword, _in_place, _drawn, _passed_on, _trained, _conditional, _around_a_break]


@pytest.mark.parametrize("sizes", [[4] * 6, [4, 5, 6, 4, 7, 5]], ids=["one size", "sizes"])
@pytest.mark.parametrize("kept", [False, True], ids=["anew", "some kept"])
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_as_eager(body: Callable[..., Any], kept: bool, sizes: list[int]) -> None:
    def calls(f: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        seen: list[Any] = []
        stays = torch.Generator().manual_seed(99)
        for i, n in enumerate(sizes):
            g = torch.Generator().manual_seed(i)
            h = g if i == 3 else stays if kept else torch.Generator().manual_seed(50 + i)
            out = f(torch.zeros(n), g, h)
            seen.append([*(out if isinstance(out, tuple) else (out,)), g.get_state(), h.get_state()])
        seen.append([torch.get_rng_state()])
        return seen

    for a, b in zip(calls(tatara.compile(body)), calls(body), strict=True):
        for s, t in zip(a, b, strict=True):
            torch.testing.assert_close(s, t, rtol=1e-6, atol=1e-6)


def test_compiles_twice() -> None:
    f = tatara.compile(_keyword)
    with counts() as count:
        for i in range(8):
            f(torch.zeros(4), torch.Generator().manual_seed(i), torch.Generator().manual_seed(i))
    # Once for those of the first call, once for any, and once more where two were one.
    assert count["graphs"] <= 2
    assert count["breaks"] == 0


def test_taken_back() -> None:
    """A run that is given up leaves the call's own generator as it was."""

    def f(x: Any, g: Any, limit: Any) -> Any:
        y = x + torch.rand(x.shape, generator=g)
        if (y > limit).any():
            return y * 2
        return torch.rand(x.shape, generator=g) - y

    limits = [2.0, 2.0, 2.0, 0.0, 2.0, 0.0, 0.0]

    def calls(f: Callable[..., Any]) -> list[Any]:
        made = [torch.Generator().manual_seed(i) for i in range(len(limits))]
        return [[f(torch.zeros(3), g, torch.tensor(b)), g.get_state()] for g, b in zip(made, limits, strict=True)]

    for a, b in zip(calls(tatara.compile(f)), calls(f), strict=True):
        assert all(torch.equal(s, t) for s, t in zip(a, b, strict=True))
