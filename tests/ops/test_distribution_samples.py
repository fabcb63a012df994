"""Samples of torch.distributions that torch draws by kernels of its own: eager's numbers, state and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402

D = torch.distributions


def _dirichlet(a: Any, b: Any) -> Any:
    d = D.Dirichlet(a)
    x = d.rsample()
    return x, d.log_prob(x)


def _beta(a: Any, b: Any) -> Any:
    return D.Beta(a, b).rsample(), D.Beta(b, a).sample()


def _gamma(a: Any, b: Any) -> Any:
    return D.Gamma(a, b).rsample((2,)), D.Chi2(a).rsample()


def _student(a: Any, b: Any) -> Any:
    return D.StudentT(a, b, 0.5).rsample(), D.InverseGamma(a + 1, b).rsample()


def _strided(a: Any, b: Any) -> Any:
    return torch._standard_gamma(a.t()), torch._sample_dirichlet(b.t().detach())


FORMS = [_dirichlet, _beta, _gamma, _student, _strided]
ONCE = [_dirichlet, _beta]  # whose backward is marked with once_differentiable, which breaks the graph


def _outcome(f: Callable[..., Any], dtype: Any, seed: int) -> list[Any]:
    g = torch.Generator().manual_seed(seed)
    a, b = ((torch.rand(3, 4, generator=g, dtype=dtype) + 0.5).requires_grad_() for _ in range(2))
    torch.manual_seed(seed)
    parts = f(a, b)
    wanted = [p.sin().sum() for p in parts if p.requires_grad]
    return [*parts, *torch.autograd.grad(sum(wanted), (a, b), allow_unused=True), torch.get_rng_state()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_as_eager(form: Callable[..., Any], dtype: Any) -> None:
    with counts() as count:
        compiled = tatara.compile(form)
        for seed in range(3):
            for a, b in zip(_outcome(compiled, dtype, seed), _outcome(form, dtype, seed), strict=True):
                assert (a is None) == (b is None)
                if b is None:
                    continue
                assert (a.dtype, a.stride(), a.requires_grad) == (b.dtype, b.stride(), b.requires_grad)
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert count["breaks"] == 0 or form in ONCE


@pytest.mark.parametrize("make", [D.Dirichlet, lambda a: D.Beta(a, a), lambda a: D.Gamma(a, a)])
def test_without_gradients(make: Callable[[Any], Any]) -> None:
    def f(a: Any) -> Any:
        return make(a).sample((2,)) * 2

    compiled = tatara.compile(f)
    with counts() as count:
        for seed in range(3):
            torch.manual_seed(seed)
            ours = compiled(torch.ones(3, 2) + seed), torch.get_rng_state()
            torch.manual_seed(seed)
            theirs = f(torch.ones(3, 2) + seed), torch.get_rng_state()
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert count["breaks"] == 0
    assert count["graphs"] == 1


def test_a_whole_step() -> None:
    def step(a: Any, b: Any) -> Any:
        x = torch._standard_gamma(a.exp()) / 2.0
        loss = (x * b).sum() + D.kl_divergence(D.Gamma(a.exp(), 2.0), D.Gamma(torch.ones_like(a), 1.0)).mean()
        return torch.autograd.grad(loss, a)[0]

    compiled = tatara.compile(step)
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    with counts() as count:
        for seed in range(3):
            torch.manual_seed(seed)
            ours = compiled(a, b)
            torch.manual_seed(seed)
            torch.testing.assert_close(ours, step(a, b), rtol=1e-4, atol=1e-5)
    assert count["breaks"] == 0
    assert count["graphs"] <= 2  # what kl_divergence has found out is kept
