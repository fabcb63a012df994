"""Gradients through the namespace: against finite differences, and compiled against eager."""

from __future__ import annotations

import pytest
import rows
import torch
from rows import Row

import tatara
import tatara.array_api as xp

FLOATS = ("f", "f2", "frow", "d", "pos", "unit", "one", "up", "m", "sq", "tall", "v3", "w3", "c", "z")

# Constant between jumps, or of no use here.
WITHOUT = {
    *("floor", "ceil", "trunc", "round", "sign", "signbit", "isfinite", "isinf", "isnan", "floor_divide", "nextafter"),
    *(
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
    ),
    *("all", "any", "count_nonzero", "argmax", "argmin", "argsort", "searchsorted", "isin", "nonzero", "matrix_rank"),
    *("zeros_like", "ones_like", "full_like"),
}


def differentiable(row: Row) -> bool:
    letters = [each for each in row.args if isinstance(each, rows.Of)]
    return (
        bool(letters) and all(each in FLOATS for each in letters) and row.name not in WITHOUT and row.name != "astype"
    )


ROWS = [row for row in rows.ONE_GRAPH if differentiable(row)]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64).requires_grad_()


def real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_gradients_are_those_of_finite_differences(row: Row) -> None:
    if any(option is not None and isinstance(option, torch.dtype) for option in row.options.values()):
        pytest.skip("another type")
    if row.name in ("log", "log2", "log10", "log1p", "sqrt", "acosh", "asin", "acos", "atanh") and "f" in row.args:
        pytest.skip("not defined everywhere")
    function = row.function(xp)
    options = {name: rows.given(value) for name, value in row.options.items()}
    args = [rows.given(each) for each in row.args]
    tensors = [doubled(each) for each in args if isinstance(each, torch.Tensor)]

    def program(*given: torch.Tensor) -> list[torch.Tensor]:
        rest = iter(given)
        result = function(*[next(rest) if isinstance(each, torch.Tensor) else each for each in args], **options)
        return [real(each) for each in (result if isinstance(result, tuple) else (result,)) if each.requires_grad]

    if row.name in ("cholesky", "eigvalsh"):
        pytest.skip("reads one triangle only")
    assert torch.autograd.gradcheck(program, tensors, eps=1e-7, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("row", [row for row in ROWS if row.name != "imag"], ids=lambda row: row.title)
def test_compiled_gradients_are_the_eager_ones(row: Row, fresh: None) -> None:
    function = row.function(xp)
    options = {name: rows.given(value) for name, value in row.options.items()}
    args = [rows.given(each) for each in row.args]
    args = [each.requires_grad_() if isinstance(each, torch.Tensor) else each for each in args]
    tensors = [each for each in args if isinstance(each, torch.Tensor)]

    def program(*given: object) -> list[torch.Tensor]:
        result = function(*given, **options)
        return [real(each) for each in (result if isinstance(result, tuple) else (result,))]

    def gradients(run: object) -> list[torch.Tensor | None]:
        outputs = [each for each in run(*args) if each.requires_grad]
        return (
            list(torch.autograd.grad([each.sum() for each in outputs], tensors, allow_unused=True)) if outputs else []
        )

    expected, ours = gradients(program), gradients(tatara.compile(program))
    assert len(ours) == len(expected)
    for one, other in zip(ours, expected, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-5, equal_nan=True)


def test_asarray_and_astype_keep_gradients() -> None:
    x = torch.ones(3, requires_grad=True)
    for result in (xp.asarray(x, copy=True), xp.asarray(x, dtype=xp.float64), xp.astype(x, xp.float64), xp.clip(x)):
        assert result.requires_grad
