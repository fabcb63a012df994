"""What the tests of small matrices share: operators, operands of several kinds, and how exact a result has to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tatara

Tensor = torch.Tensor
linalg = torch.linalg


def positive(a: Tensor) -> Tensor:
    return a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


ONE: dict[str, Callable[[Tensor], Any]] = {
    "inv": linalg.inv,
    "inverse": torch.inverse,
    "inv_ex": linalg.inv_ex,
    "det": linalg.det,
    "slogdet": linalg.slogdet,
    "logdet": torch.logdet,
    "cholesky": lambda a: linalg.cholesky(positive(a)),
    "upper cholesky": lambda a: linalg.cholesky(positive(a), upper=True),
    "cholesky_ex": lambda a: linalg.cholesky_ex(positive(a)),
    "cholesky_inverse": torch.cholesky_inverse,
    "upper cholesky_inverse": lambda a: torch.cholesky_inverse(a, upper=True),
    "lu_factor": linalg.lu_factor,
    "lu_factor_ex": linalg.lu_factor_ex,
}
TWO: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "solve": linalg.solve,
    "solve_ex": linalg.solve_ex,
    "solve from the right": lambda a, b: linalg.solve(a, b.mT, left=False),
    "solve for vectors": lambda a, b: linalg.solve(a, b[..., 0]),
    "solve for a matrix that all share": lambda a, b: linalg.solve(a, b.reshape(-1, *b.shape[-2:])[0]),
    "triangular": lambda a, b: linalg.solve_triangular(a, b, upper=False),
    "upper triangular": lambda a, b: linalg.solve_triangular(a, b, upper=True, unitriangular=True),
    "triangular from the right": lambda a, b: linalg.solve_triangular(a, b.mT, upper=True, left=False),
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, a),
    "upper cholesky_solve": lambda a, b: torch.cholesky_solve(b, a, upper=True),
}
RAISE = ["inv", "inverse", "cholesky", "upper cholesky", "cholesky_inverse", "upper cholesky_inverse", "lu_factor"]
RAISE += ["solve", "solve from the right", "solve for vectors", "solve for a matrix that all share"]
OPERATORS = {**ONE, **TWO}
KINDS = ["random", "scaled rows", "nearly singular", "permuted", "integers", "transposed", "part of another"]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def matrices(kind: str, n: int, batch: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    a = torch.randn(*batch, n, n, dtype=dtype)
    if kind == "scaled rows":
        return a * torch.randn(*batch, n, 1).mul(5).exp()
    if kind == "nearly singular":
        u, s, v = linalg.svd(a)
        return (u * torch.cat([s[..., :-1], s[..., -1:] * 1e-4], -1).unsqueeze(-2).to(dtype)) @ v
    if kind == "permuted":
        return torch.eye(n, dtype=dtype)[torch.randperm(n)].expand(*batch, n, n).contiguous()
    if kind == "integers":
        return torch.randint(-2, 3, (*batch, n, n)).to(dtype) + 8 * torch.eye(n, dtype=dtype)
    if kind == "part of another":
        return torch.randn(*batch, n + 1, n + 2, dtype=dtype)[..., :n, 1 : n + 1]
    return a.mT if kind == "transposed" else a


def operands(name: str, kind: str, n: int, batch: tuple[int, ...], dtype: torch.dtype, rights: int) -> list[Tensor]:
    a = matrices(kind, n, batch, dtype)
    return [a] if name in ONE else [a, torch.randn(*batch, n, rights, dtype=dtype)]


def _errors(found: Tensor, exact: Tensor, batch: int, least: float) -> Tensor:
    """The largest error of each matrix, beside its largest element."""
    size = exact.abs().flatten(batch).amax(-1) if exact.dim() > batch else exact.abs()
    error = (found.to(exact.dtype) - exact).abs()
    return (error.flatten(batch).amax(-1) if exact.dim() > batch else error) / size.clamp_min(least)


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def check(name: str, compiled: Any, args: list[Tensor], batch: int, device: str = "cpu") -> None:
    """Against eager, and against the same in float64: an error is at most twice that of any of eager's, or what a small change of
    the matrix's elements would make.
    """
    function, wide = OPERATORS[name], torch.complex128 if args[0].is_complex() else torch.float64
    mine = [arg.to(device) for arg in args]
    theirs, ours = as_tuple(function(*mine)), as_tuple(compiled(*mine))
    exact = as_tuple(function(*(arg.to(wide) for arg in args)))
    epsilon = torch.finfo(args[0].dtype).eps
    matrix = positive(args[0]) if name in ("cholesky", "upper cholesky", "cholesky_ex") else args[0]
    change = 4 * epsilon * linalg.cond(matrix.to(wide)).nan_to_num(1e30, 1e30).clamp_min(2)
    for expected, got, best in zip(theirs, ours, exact, strict=True):
        assert (got.dtype, got.shape, got.device) == (expected.dtype, expected.shape, expected.device)
        assert got.stride() == expected.stride()
        if not (got.is_floating_point() or got.is_complex()):
            assert torch.equal(got, expected)
            continue
        assert torch.equal(got.isfinite(), expected.isfinite())
        here = expected.isfinite().cpu() & best.isfinite()
        reference = torch.where(here, best, 0)
        error, allowed = (
            _errors(torch.where(here, x.cpu(), 0), reference, batch, 1 if "logdet" in name else 1e-300)
            for x in (got, expected)
        )
        most = torch.maximum(2 * allowed.max(), change * (args[0].shape[-1] if name in TWO else 1))
        assert bool((error <= most).all()), (name, (error / most).max(), allowed.max() / epsilon)


def compiled(name: str) -> Any:
    return tatara.compile(OPERATORS[name])
