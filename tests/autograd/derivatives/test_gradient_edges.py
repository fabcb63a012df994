"""Gradients at the edges of the numbers, and which gradients under create_graph have a history, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tatara

EDGES = [float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 0.0, 2.0, -2.0]
AT_EDGES = {
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    "huber, wide": lambda x: F.huber_loss(x, torch.zeros_like(x), delta=2.0, reduction="none"),
    "smooth l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    "l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), beta=0.0, reduction="none"),
    "amax": lambda x: x.amax(),
    "amin": lambda x: x.amin(),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "aminmax": lambda x: torch.stack(list(torch.aminmax(x))),
    "logsumexp": lambda x: x.logsumexp(0),
    "logsumexp of nothing": lambda x: torch.stack([x[1], x[1]]).logsumexp(0),
    "logsumexp with inf": lambda x: torch.stack([x[0], x[1], x[3]]).logsumexp(0),
    "logsumexp with -inf": lambda x: torch.stack([x[4], x[1], x[3]]).logsumexp(0),
    "logsumexp with nan": lambda x: torch.stack([x[2], x[1], x[3]]).logsumexp(0),
}


@pytest.mark.parametrize("name", AT_EDGES)
@pytest.mark.parametrize("finite", [False, True])
def test_gradients_at_edges(name: str, finite: bool) -> None:
    function = AT_EDGES[name]
    numbers = torch.tensor(EDGES, dtype=torch.float64)
    if finite:
        numbers = torch.where(numbers.isfinite(), numbers, 0.5)

    def gradient(of: Callable[[Any], Any]) -> torch.Tensor:
        x = numbers.clone().requires_grad_()
        return torch.autograd.grad(of(x).sum(), x)[0]

    compiled = tatara.compile(function)
    for _ in range(2):
        torch.testing.assert_close(gradient(compiled), gradient(function), equal_nan=True)


HISTORIES = {
    "conv": (lambda x, w, b: F.conv1d(x, w, b), [(2, 3, 8), (4, 3, 3), (4,)]),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), [(3, 5), (5,), (5,)]),
    "batch norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [(4, 5), (5,), (5,)]),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 4, 2), (4,), (4,)]),
    "bilinear": (lambda x, y, w, b: F.bilinear(x, y, w, b), [(2, 3), (2, 4), (5, 3, 4), (5,)]),
    "prelu": (lambda x, w: F.prelu(x, w), [(4,), (1,)]),
    "nll": (lambda x: F.nll_loss(x, torch.tensor([0, 2])), [(2, 3)]),
    "pad": (lambda x: F.pad(x, (1, 2), "reflect"), [(2, 3, 5)]),
    "cumprod of one": (lambda x: x.cumprod(0), [(1,)]),
    "determinant of one": (lambda x: torch.linalg.det(x), [(1, 1)]),
    "no power": (lambda x: torch.linalg.matrix_power(x, 0), [(3, 3)]),
    "solve": (lambda x: torch.linalg.solve_triangular(torch.eye(3), x, upper=True), [(3, 2)]),
    "count": (lambda x: torch.linalg.vector_norm(x, 0), [(3,)]),
}


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("first_alone", [False, True])
def test_histories_of_first_gradients(name: str, first_alone: bool) -> None:
    function, shapes = HISTORIES[name]
    torch.manual_seed(0)
    values = [torch.randn(shape) for shape in shapes]

    def first(of: Callable[..., Any]) -> list[Any]:
        leaves = [v.clone().requires_grad_(i == 0 or not first_alone) for i, v in enumerate(values)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return list(torch.autograd.grad(of(*leaves).sum(), wanted, create_graph=True, allow_unused=True))

    compiled = tatara.compile(function)
    for _ in range(2):
        for ours, theirs in zip(first(compiled), first(function), strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert ours.requires_grad == theirs.requires_grad
                torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("eps", [None, 0.1])
def test_second_derivatives_of_logit_are_numbers(eps: float | None) -> None:
    compiled = tatara.compile(lambda x: torch.logit(x, eps))
    x = torch.tensor([0.02, 0.3, 0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(compiled, (x,))


def _solve_pair(columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    matrix = torch.randn(4, 4, dtype=torch.float64) + 4 * torch.eye(4, dtype=torch.float64)
    return matrix, torch.randn(4, columns, dtype=torch.float64)


LINEAR = {
    "solve": lambda a, b: torch.linalg.solve(a, b),
    "solve_ex": lambda a, b: torch.linalg.solve_ex(a, b)[0],
    "tensorsolve": lambda a, b: torch.linalg.tensorsolve(a, b[:, 0]),
    "triangular": lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
    "old triangular": lambda a, b: torch.triangular_solve(b, a)[0],
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, a),
    "lu_solve": lambda a, b: torch.linalg.lu_solve(a, torch.arange(1, 5, dtype=torch.int32), b),
    "ormqr": lambda a, b: torch.ormqr(a, a[0], b),
    "ormqr without reflectors": lambda a, b: torch.ormqr(a[:, :0], a[0, :0], b),
    "vdot": lambda a, b: torch.vdot(a[0], b[:, 0]),
    "stft": lambda a, b: torch.stft(a.reshape(-1), 4, window=b[:, 0], return_complex=True).abs(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("alone", [0, 1, None])
@pytest.mark.parametrize("name", LINEAR)
def test_histories_where_an_operator_is_linear(name: str, alone: int | None) -> None:
    def gradients(function: Callable[..., Any]) -> list[Any]:
        operands = _solve_pair(3)
        for i, operand in enumerate(operands):
            operand.requires_grad_(alone in (None, i))
        out = function(*operands)
        wanted = [o for o in operands if o.requires_grad]
        weights = torch.linspace(1, 2, out.numel(), dtype=out.dtype).reshape(out.shape)
        return list(torch.autograd.grad(out, wanted, weights, create_graph=True, allow_unused=True))

    compiled = tatara.compile(LINEAR[name])
    expected = gradients(LINEAR[name])
    for _ in range(2):
        found = gradients(compiled)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            assert ours.requires_grad == theirs.requires_grad
            torch.testing.assert_close(ours, theirs)


def test_index_fill_with_an_index_given_twice() -> None:
    index = torch.tensor([0, 2, 0])
    run = lambda x, v: x.index_fill(1, index, v)  # noqa: E731
    compiled = tatara.compile(run)
    for function in (run, compiled, compiled):
        x, v = torch.ones(2, 3, requires_grad=True), torch.tensor(3.0, requires_grad=True)
        grads = torch.autograd.grad(function(x, v), [x, v], torch.arange(6.0).reshape(2, 3))
        torch.testing.assert_close(grads[1], torch.tensor(0.0 + 2 + 3 + 5))
        torch.testing.assert_close(grads[0], torch.tensor([[0.0, 1, 0], [0, 4, 0]]))


def test_permutations_of_lu_unpack_have_no_history() -> None:
    factors, pivots = torch.linalg.lu_factor(_solve_pair(1)[0])
    factors.requires_grad_()
    compiled = tatara.compile(lambda lu: torch.lu_unpack(lu, pivots))
    for _ in range(2):
        assert [part.requires_grad for part in compiled(factors)] == [False, True, True]
