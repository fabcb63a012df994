"""Derivatives and batches of inverses, Cholesky factors and triangular solves: values, strides, and how often the host's kernel runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

Of = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def symmetric(a: torch.Tensor) -> torch.Tensor:
    return (a + a.mT) / 2


FUNCTIONS: dict[str, Of] = {
    "inv": lambda a, b: torch.linalg.inv(a) @ b,
    "inverse": lambda a, b: torch.inverse(a) * b,
    "inverse method": lambda a, b: a.inverse().sin() * b,
    "inv_ex": lambda a, b: torch.linalg.inv_ex(a)[0] @ b,
    "cholesky": lambda a, b: torch.linalg.cholesky(symmetric(a)) @ b,
    "upper cholesky": lambda a, b: torch.linalg.cholesky(symmetric(a), upper=True) @ b,
    "cholesky_ex": lambda a, b: torch.linalg.cholesky_ex(symmetric(a))[0] @ b,
    "triangular, upper": lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
    "triangular, lower": lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    "triangular, right": lambda a, b: torch.linalg.solve_triangular(a, b, upper=False, left=False),
    "ones on the diagonal": lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, unitriangular=True),
    "solve": lambda a, b: torch.linalg.solve(a, b),
    "solve from the right": lambda a, b: torch.linalg.solve(a, b, left=False),
    "solve for vectors": lambda a, b: torch.linalg.solve(a, b[..., 0]),
    "solve for one vector": lambda a, b: torch.linalg.solve(a, b.reshape(-1)[:7]) * a[..., 0],
    "solve for a matrix that all share": lambda a, b: torch.linalg.solve(a, b.reshape(-1, 7)[:7, :3]),
    "logdet": lambda a, b: torch.logdet(a)[..., None, None] * b,
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(symmetric(a))),
    "eigvalsh": lambda a, b: torch.linalg.eigvalsh(symmetric(a))[..., None] * b,
}
MATRICES = ["inv", "inverse", "cholesky", "triangular, upper", "solve"]


def operands(*batch: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(*batch, 7, 7, dtype=torch.float64, generator=generator)
    b = torch.randn(*batch, 7, 7, dtype=torch.float64, generator=generator)
    return (a @ a.mT + 5 * torch.eye(7, dtype=torch.float64)).to(dtype), b.to(dtype)


def grads(function: Of, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    result = function(a, b)
    (result * torch.linspace(-1, 1, result.numel()).view(result.shape).to(a.dtype)).sum().abs().backward()
    return result.detach(), a.grad, b.grad


@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "three"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str, dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    function, (a, b) = FUNCTIONS[name], operands(*batch, dtype=dtype)
    compiled = tatara.compile(function)
    for _ in range(3):
        same(grads(compiled, a, b), grads(function, a, b))


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (1, 0)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches(name: str, dims: tuple[int | None, int | None]) -> None:
    a, b = operands(2)
    a = a if dims[0] == 0 else a.transpose(0, 1).contiguous()
    inputs = (a, b if dims[1] == 0 else b[0])
    function = torch.func.vmap(FUNCTIONS[name], in_dims=dims)
    compiled = tatara.compile(function)
    for _ in range(3):
        same(compiled(*inputs), function(*inputs))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents(name: str) -> None:
    a, b = operands()

    def push(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.func.jvp(FUNCTIONS[name], (a, b), (symmetric(b).contiguous(), b))

    compiled = tatara.compile(push)
    for _ in range(3):
        same(compiled(a, b), push(a, b))


@pytest.mark.parametrize("name", MATRICES)
def test_second_derivatives(name: str) -> None:
    a, b = operands()

    def curvature(a: torch.Tensor) -> torch.Tensor:
        a = a.requires_grad_()
        (g,) = torch.autograd.grad(FUNCTIONS[name](a, b).pow(2).sum(), a, create_graph=True)
        return torch.autograd.grad(g.abs().sum(), a)[0]

    compiled = tatara.compile(curvature)
    for _ in range(3):
        same(compiled(a.clone()), curvature(a.clone()))


@pytest.mark.parametrize("name", MATRICES)
def test_the_host_runs_each_once(name: str) -> None:
    """A step and a batch run as many of the host's kernels as the program has; no call goes through Python."""
    a, b = operands()

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (FUNCTIONS[name](a, b).sin() * 2 + b).exp()

    compiled, batched = tatara.compile(function), tatara.compile(torch.func.vmap(function))
    both = torch.stack([a, a + 0.1]), torch.stack([b, b])
    for _ in range(3):
        grads(compiled, a, b)
        batched(*both)
    with tatara.kernel_history() as history:
        grads(compiled, a, b)
        batched(*both)
    calls = [event.name for event in history.events if event.kind == "host_call"]
    assert calls
    assert not [call for call in calls if call.startswith("tatara_host:")]
    factored = [call for call in calls if "inv" in call or "cholesky" in call]
    assert len(factored) == (2 if name in ("inv", "inverse", "cholesky") else 0)


def test_a_singular_matrix_raises_as_in_eager() -> None:
    function = torch.func.vmap(torch.linalg.inv)
    compiled = tatara.compile(function)
    good = operands(2)[0]
    bad = torch.stack([good[0], torch.zeros(7, 7, dtype=good.dtype)])
    for _ in range(3):
        same(compiled(good), function(good))
    with pytest.raises(torch.linalg.LinAlgError) as theirs:
        function(bad)
    with pytest.raises(torch.linalg.LinAlgError) as ours:
        compiled(bad)
    assert str(ours.value) == str(theirs.value)
