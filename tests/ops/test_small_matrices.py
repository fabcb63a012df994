"""Linear algebra of small matrices, which kernels do for a batch: values, errors and layouts as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same
from small_matrices import DTYPES, KINDS, ONE, OPERATORS, RAISE, as_tuple, check, compiled, matrices, operands, positive

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor
linalg = torch.linalg
SIDES = [1, 2, 3, 4, 6]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", SIDES)
@pytest.mark.parametrize("name", OPERATORS)
def test_as_eager(name: str, n: int, dtype: torch.dtype) -> None:
    for batch in ((), (40,), (3, 5)):
        tatara.reset()
        function = compiled(name)
        for kind in KINDS:
            args = operands(name, kind, n, batch, dtype, 2)
            if name == "cholesky_inverse" and not torch.diagonal(args[0], dim1=-2, dim2=-1).abs().all():
                continue
            if "cholesky_inverse" in name and kind == "permuted":
                continue  # zeros on the diagonal
            for _ in range(2):  # the first call of a layout runs in eager
                check(name, function, args, len(batch))


@pytest.mark.parametrize("rights", [1, 3, 5, 20])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name not in ONE])
def test_right_sides(name: str, rights: int) -> None:
    for n in (2, 3, 6):
        tatara.reset()
        function = compiled(name)
        for _ in range(2):
            check(name, function, operands(name, "random", n, (11,), torch.float32, rights), 1)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("name", OPERATORS)
def test_no_call_of_the_host(name: str, n: int) -> None:
    args = operands(name, "integers", n, (300,), torch.float32, 1)
    report = tatara.explain(OPERATORS[name])(*args)
    assert not report.host_calls
    assert any("small_" in kernel.name for kernel in report.kernels)
    assert all("vector" in kernel.loops for kernel in report.kernels)


def _with(n: int, dtype: torch.dtype, value: float, row: int, column: int) -> Tensor:
    a = matrices("random", n, (9,), dtype)
    a[4, row, column] = value
    return a


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", OPERATORS)
def test_infinities(name: str, value: float) -> None:
    for n in (1, 2, 3, 4):
        tatara.reset()
        function = compiled(name)
        for row, column in ((0, 0), (n - 1, 0), (0, n - 1), (n - 1, n - 1)):
            args = [_with(n, torch.float32, value, row, column)]
            args += [] if name in ONE else [torch.randn(9, n, 2)]
            found = []
            for each in (OPERATORS[name], function):
                try:
                    found.append(as_tuple(each(*args)))
                except RuntimeError as error:
                    found.append(str(error))
            if isinstance(found[0], str):
                assert found[0] == found[1]
                continue
            most = max(float(x.nan_to_num(0, 0, 0).abs().max()) for x in found[0])
            same(found[1], found[0], rtol=2e-2, atol=1e-2 * most, equal_nan=True)


def _singular(kind: str, n: int, dtype: torch.dtype) -> Tensor:
    a = matrices("random", n, (20,), dtype)
    if kind == "zero":
        a[3] = 0
    elif kind == "equal rows":
        a[5], a[6] = 1, 2
    elif kind == "last column":
        a[7, :, -1] = 0
    return a


@pytest.mark.parametrize("kind", ["zero", "equal rows", "last column"])
@pytest.mark.parametrize("name", OPERATORS)
def test_singular_matrices(name: str, kind: str) -> None:
    """The error, or which pivot it was, is eager's; what was written before is too."""
    raised = 0
    for n in (2, 3, 4):
        for dtype in (torch.float32, torch.float64):
            tatara.reset()

            def function(log: Tensor, *args: Tensor) -> Any:
                log.add_(1)
                result = OPERATORS[name](*args)
                log.mul_(3)
                return result

            whole = tatara.compile(function)
            good = operands(name, "integers", n, (20,), dtype, 2)
            bad = [_singular(kind, n, dtype), *good[1:]]
            if "cholesky" in name:
                bad[0] = bad[0] * 0 - 1 if "inverse" not in name else torch.triu(bad[0], 1) + torch.tril(bad[0], -1)
            logs = torch.zeros(3), torch.zeros(3)
            same(whole(logs[0], *good), function(logs[1], *good), rtol=1e-3, atol=1e-3)
            messages, results = [], []
            for log, each in zip(logs, (whole, function), strict=True):
                try:
                    results.append(as_tuple(each(log, *bad)))
                except RuntimeError as error:
                    messages.append(f"{type(error)} {error}")
            assert len(set(messages)) <= 1 and len(messages) != 1
            raised += len(messages)
            for ours, theirs in zip(*results, strict=True) if results else ():
                assert ours.dtype == theirs.dtype and torch.equal(ours.isfinite(), theirs.isfinite())
                if not ours.is_floating_point():
                    assert torch.equal(ours, theirs)
            same(logs[0], logs[1])
            same(whole(logs[0], *good), function(logs[1], *good), rtol=1e-3, atol=1e-3)
    assert raised == 0 or name in RAISE


def test_a_factor_that_fails_keeps_the_rest() -> None:
    for n in (2, 3, 4):
        a = positive(matrices("random", n, (12,), torch.float64))
        a[4, 1, 1], a[6, 0, 0], a[7, -1, -1] = -1, float("nan"), 0
        for upper in (False, True):
            tatara.reset()
            function = tatara.compile(lambda a, upper=upper: linalg.cholesky_ex(a, upper=upper))
            function(a)
            same(function(a), linalg.cholesky_ex(a, upper=upper), equal_nan=True)


def test_pivots_of_equal_elements() -> None:
    for dtype in DTYPES:
        tatara.reset()
        function = tatara.compile(linalg.lu_factor_ex)
        for n in (2, 3, 4, 6):
            a = torch.randint(-1, 2, (200, n, n)).to(dtype)
            if a.is_complex():
                a = a + 1j * torch.randint(-1, 2, (200, n, n))
            same(function(a)[1:], linalg.lu_factor_ex(a)[1:])


def test_errors_of_operands() -> None:
    for function, args in [
        (linalg.inv, (torch.ones(2, 3, dtype=torch.int64),)),
        (linalg.inv, (torch.randn(4, 2, 3),)),
        (linalg.det, (torch.randn(3),)),
        (linalg.det, (torch.randn(3, 3).half(),)),
        (linalg.solve, (torch.randn(3, 3), torch.randn(2, 3, 3).double())),
        (linalg.lu_factor, (torch.ones(2, 2, dtype=torch.int64),)),
    ]:
        with pytest.raises(RuntimeError) as theirs:
            function(*args)
        with pytest.raises(RuntimeError) as ours:
            tatara.compile(function)(*args)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("exponent", [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 13])
def test_powers(exponent: int) -> None:
    for n in (1, 2, 3, 5, 7):
        for batch in ((), (30,)):
            tatara.reset()
            function = tatara.compile(lambda a: linalg.matrix_power(a, exponent))  # noqa: B023
            for kind in ("integers", "transposed"):
                a = matrices(kind, n, batch, torch.float64) * 0.3
                for _ in range(2):
                    same(
                        function(a),
                        linalg.matrix_power(a, exponent),
                        rtol=1e-6,
                        atol=1e-9 / 0.1 ** abs(min(exponent, 0)),
                    )
    assert (
        abs(exponent) < 2
        or not tatara.explain(lambda a: linalg.matrix_power(a, exponent))(torch.eye(3)[None]).host_calls
    )


def test_powers_of_integers() -> None:
    function = tatara.compile(lambda a: (linalg.matrix_power(a, 3), torch.matrix_power(a, 0)))
    for dtype in (torch.int64, torch.int32, torch.float16):
        a = torch.randint(-3, 4, (5, 3, 3)).to(dtype)
        for _ in range(2):
            same(function(a), (linalg.matrix_power(a, 3), torch.matrix_power(a, 0)))


def test_without_elements() -> None:
    for function, sizes, dtype in [
        (torch.cholesky, (0, 3), torch.float32),
        (torch.cholesky, (0, 3, 3), torch.float64),
        (linalg.cholesky, (0, 3, 3), torch.float32),
        (linalg.inv, (2, 0, 0), torch.float32),
        (linalg.det, (2, 0, 0), torch.float16),
        (linalg.lu_factor, (0, 2, 2), torch.float32),
    ]:
        tatara.reset()
        a = torch.empty(sizes, dtype=dtype)
        compiled_function = tatara.compile(function)
        for _ in range(2):
            same(compiled_function(a), function(a))


DIFFERENTIABLE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "inv": lambda a, b: linalg.inv(a) @ b,
    "det": lambda a, b: linalg.det(a)[..., None, None] * b,
    "det method": lambda a, b: (a @ b).det(),
    "slogdet": lambda a, b: linalg.slogdet(a)[1].sin() * linalg.slogdet(a)[0],
    "logdet": lambda a, b: torch.logdet(positive(a)) + torch.logdet(positive(b) @ b @ b),
    "cholesky": lambda a, b: linalg.cholesky(positive(a)) @ b,
    "solve": lambda a, b: linalg.solve(a, b),
    "solve for vectors": lambda a, b: linalg.solve(a, b[..., 0]),
    "solve from the right": lambda a, b: linalg.solve(a, b, left=False),
    "triangular": lambda a, b: linalg.solve_triangular(a, b, upper=True),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, linalg.cholesky(positive(a))),
}


def pair(n: int, *batch: int) -> tuple[Tensor, Tensor]:
    eye = torch.eye(n, dtype=torch.float64)
    return tuple(torch.randn(*batch, n, n, dtype=torch.float64) + 3 * eye for _ in range(2))  # type: ignore[return-value]


def gradients(function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> list[Tensor | None]:
    leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    function(*leaves).sin().sum().backward()
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name: str, n: int) -> None:
    function = DIFFERENTIABLE[name]
    step = tatara.compile(function)
    for batch in ((), (17,)):
        a, b = pair(n, *batch)
        for _ in range(2):
            same(gradients(step, a, b), gradients(function, a, b), rtol=1e-7, atol=1e-9)

    def push(a: Tensor, b: Tensor) -> Any:
        return torch.func.jvp(function, (a, b), (b + b.mT, a))

    def curvature(a: Tensor, b: Tensor) -> Tensor:
        a = a.detach().requires_grad_()
        (g,) = torch.autograd.grad(function(a, b).sin().sum(), a, create_graph=True)
        return torch.autograd.grad(g.cos().sum(), a)[0]

    a, b = pair(n, 7)
    same(tatara.compile(push)(a, b), push(a, b), rtol=1e-7, atol=1e-9)
    for dims in ((0, 0), (0, None), (None, 0)):
        batched = torch.func.vmap(function, in_dims=dims)
        a, b = pair(n, 7)
        args = (a if dims[0] == 0 else a[0], b if dims[1] == 0 else b[0])
        same(tatara.compile(batched)(*args), batched(*args), rtol=1e-7, atol=1e-9)
    a, b = pair(n, 5)
    same(tatara.compile(curvature)(a, b), curvature(a, b), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n", [2, 3])
def test_gradients_of_singular_determinants(n: int) -> None:
    a = torch.randn(6, n, n, dtype=torch.float64)
    a[2, 0] = a[2, 1]
    a[4] = 0
    found = [gradients(f, a, a)[0] for f in (lambda a, b: linalg.det(a), tatara.compile(lambda a, b: linalg.det(a)))]
    same(found[1], found[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["inv", "det", "solve", "cholesky", "slogdet", "lu_factor", "triangular"])
def test_lengths_that_vary(name: str) -> None:
    function = compiled(name)
    for length in (9, 30, 4, 1, 100, 0, 17):
        args = operands(name, "integers", 3, (length,), torch.float64, 2)
        same(function(*args), OPERATORS[name](*args), rtol=1e-9, atol=1e-9)


def filtered(x: Tensor, p: Tensor, z: Tensor, f: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A Kalman filter, and what it makes of the likelihood."""
    likelihood = torch.zeros(x.shape[0], dtype=x.dtype)
    for _ in range(4):
        x, p = f @ x, f @ p @ f.mT + 0.1 * torch.eye(4, dtype=x.dtype)
        s = h @ p @ h.mT + torch.eye(2, dtype=x.dtype)
        gain, off = p @ h.mT @ linalg.inv(s), z - h @ x
        likelihood = likelihood - 0.5 * (off.mT @ linalg.solve(s, off)).sum((-1, -2)) - 0.5 * torch.logdet(s)
        x, p = x + gain @ off, p - gain @ h @ p
    return x, p, likelihood


def density(x: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    off = x - mean
    solved = linalg.solve(covariance, off.unsqueeze(-1)).squeeze(-1)
    return (-0.5 * (off * solved).sum(-1) - 0.5 * torch.logdet(covariance)).exp()


def test_programs() -> None:
    x, p, z = torch.randn(50, 4, 1), positive(torch.randn(50, 4, 4)), torch.randn(50, 2, 1)
    f, h = torch.eye(4) + 0.1 * torch.randn(4, 4), torch.randn(2, 4)
    args = [each.double() for each in (x, p, z, f, h)]
    same(tatara.compile(filtered)(*args), filtered(*args), rtol=1e-8, atol=1e-8)
    args = [torch.randn(60, 3), torch.randn(60, 3), positive(torch.randn(60, 3, 3))]
    same(tatara.compile(density)(*args), density(*args), rtol=1e-4, atol=1e-5)
    assert not tatara.explain(density)(*args).host_calls


def test_what_reads_a_matrix_as_it_is_made() -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        inverse = linalg.inv(a + 0.5)
        return (
            inverse * 2,
            inverse.mT + b,
            inverse.sum(-1),
            inverse.diagonal(dim1=-2, dim2=-1),
            inverse[..., 0, 1].exp(),
        )

    a, b = torch.randn(33, 3, 3, dtype=torch.float64), torch.randn(33, 3, 3, dtype=torch.float64)
    same(tatara.compile(function)(a, b), function(a, b), rtol=1e-8, atol=1e-8)


def test_into_an_operand() -> None:
    def function(a: Tensor) -> Tensor:
        a.copy_(linalg.inv(a))
        return a * 2

    a = torch.randn(40, 3, 3, dtype=torch.float64)
    mine, theirs = a.clone(), a.clone()
    same(tatara.compile(function)(mine), function(theirs), rtol=1e-8, atol=1e-8)
    same(mine, theirs, rtol=1e-8, atol=1e-8)
