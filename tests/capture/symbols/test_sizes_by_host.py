"""Operators whose results' sizes only the host knows: one compilation serves all sizes, where its answers fit an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same
from tatara.report._report import report_of

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
SIZES = ((9, 5), (13, 6), (17, 11), (4, 15), (30, 7))


def spd(x: Tensor) -> Tensor:
    """A positive definite matrix of as many rows."""
    return x @ x.mT + 40 * torch.eye(x.shape[0])


def on_matrices(name: str) -> Callable[[Tensor], Any]:
    function = torch.linalg
    return lambda x: getattr(function, name)(spd(x))


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    **{
        name: on_matrices(name)
        for name in ("cholesky", "inv", "det", "slogdet", "eigvalsh", "matrix_exp", "matrix_rank")
    },
    "solve": lambda x: torch.linalg.solve(spd(x), x),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(spd(x).tril(), x, upper=False),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(torch.linalg.cholesky(spd(x))),
    "lu_factor": lambda x: torch.linalg.lu_factor(x),
    "svdvals": torch.linalg.svdvals,
    "qr_sizes": lambda x: [abs(part) for part in torch.linalg.qr(x)],
    "pinv": torch.linalg.pinv,
    "cond": torch.linalg.cond,
    **{f"fft.{n}": getattr(torch.fft, n) for n in ("fft", "ifft", "fft2", "fftn", "hfft", "fftshift")},
    "fft.rfft by zeros": lambda x: torch.fft.rfft(x, 16),
    "fft.irfft": lambda x: torch.fft.irfft(x.to(torch.complex64)),
    "special.bessel_j0": torch.special.bessel_j0,
    "special.hermite": lambda x: torch.special.hermite_polynomial_h(x, 3),
    "polygamma": lambda x: torch.polygamma(1, x.abs() + 1),
    "igamma": lambda x: torch.igamma(x.abs() + 1, x.abs()),
    "cdist": lambda x: torch.cdist(x, x.flip(0) + 1),
    "bilinear": lambda x: torch.nn.functional.bilinear(x, x + 1, torch.ones(2, x.shape[1], x.shape[1])),
    "quantile": lambda x: torch.nanquantile(x, 0.3, dim=1),
    "searchsorted": lambda x: torch.searchsorted(x.sort(1).values, x),
    "bucketize": lambda x: torch.bucketize(x, torch.linspace(-1, 1, 7)),
    "histc": lambda x: torch.histc(x, 6, -1.0, 1.0),
    "vander": lambda x: torch.linalg.vander(x[:, 0], N=4),
    "roll": lambda x: torch.roll(x, (1, 2), (0, 1)),
    "transposed": lambda x: torch.linalg.solve(spd(x), x).mT.relu(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_compilation_for_all_sizes(name: str) -> None:
    function = FUNCTIONS[name]

    def program(x: Tensor) -> Any:
        result = function(x * 0.5)
        last = result[-1] if isinstance(result, tuple | list) else result
        return result, abs(last)

    compiled = tatara.compile(program)
    for sizes in SIZES:
        x = torch.randn(sizes)
        same(compiled(x), program(x), rtol=2e-3, atol=2e-3)
    report = report_of(compiled)
    assert len(report.graphs) == 2  # a size is a symbol from the second on
    assert not report.breaks


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_that_run_in_the_host_take_any_length(kind: str, batch_first: bool) -> None:
    layer = getattr(torch.nn, kind)(6, 5, 2, batch_first=batch_first, bidirectional=True)

    def program(x: Tensor) -> Any:
        y, state = layer(x)
        return y.tanh(), state

    compiled = tatara.compile(program)
    with torch.no_grad():
        for first, second in SIZES:
            x = torch.randn(first, second, 6)
            same(compiled(x), program(x))
    assert len(report_of(compiled).graphs) == 2


library = torch.library.Library("tatara_sizes", "FRAGMENT")
library.define("odd_above(Tensor x) -> Tensor")


def odd_above(x: Tensor) -> Tensor:
    """Halves what is longer than a hundred, of which nobody asks while it is compiled."""
    return x[: len(x) // 2].clone() if len(x) > 100 else x + 1


library.impl("odd_above", odd_above, "CPU")
library.impl("odd_above", odd_above, "Meta")


def test_sizes_that_fit_no_expression_are_found_when_it_runs() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.ops.tatara_sizes.odd_above(x * 2) * 3

    compiled = tatara.compile(program)
    for size in (5, 7, 20, 300, 8, 120, 101):
        x = torch.randn(size)
        same(compiled(x), program(x))


@pytest.mark.parametrize("n", ["a size", "sizes", "integers", "a tuple"])
def test_the_old_constructor_takes_a_size_for_a_size(n: str) -> None:
    def program(x: Tensor, n: str = n) -> Tensor:
        size = {"a size": x.shape, "sizes": torch.Size((len(x), 2)), "integers": len(x), "a tuple": (len(x),)}[n]
        return x.new(size).fill_(3) + 1

    compiled = tatara.compile(program)
    for size in (2, 3, 5, 4):
        x = torch.randn(size)
        same(compiled(x), program(x))


@pytest.mark.parametrize("name", ["Exponential", "Weibull", "Pareto", "Laplace", "Cauchy", "Gumbel", "LogNormal"])
def test_distributions_draw_as_many_as_asked_for(name: str) -> None:
    numbers = (2.0,) if name == "Exponential" else (1.0, 2.0)

    def program(n: int) -> tuple[Tensor, Tensor]:
        drawn = getattr(torch.distributions, name)(*numbers)
        sample = drawn.sample((n,))
        return sample, drawn.log_prob(sample)

    compiled = tatara.compile(program)
    for seed, n in enumerate((3, 3, 4, 2, 5)):
        torch.manual_seed(seed)
        expected, after = program(n), torch.get_rng_state()
        torch.manual_seed(seed)
        same(compiled(n), expected)
        assert torch.equal(torch.get_rng_state(), after)
