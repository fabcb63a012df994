"""Products of matrices, and the `linalg` extension."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tatara.array_api._torch import types
from tatara.array_api._torch.operands import as_type, axes_of, bits, one_axis, together
from tatara.array_api._torch.statistical import sum as sum_of


class EighResult(NamedTuple):
    eigenvalues: torch.Tensor
    eigenvectors: torch.Tensor


class EigResult(NamedTuple):
    eigenvalues: torch.Tensor
    eigenvectors: torch.Tensor


class QRResult(NamedTuple):
    Q: torch.Tensor
    R: torch.Tensor


class SlogdetResult(NamedTuple):
    sign: torch.Tensor
    logabsdet: torch.Tensor


class SVDResult(NamedTuple):
    U: torch.Tensor
    S: torch.Tensor
    Vh: torch.Tensor


def matmul(x1: torch.Tensor, x2: torch.Tensor, /) -> torch.Tensor:
    a, b = together(x1, x2)
    return as_type(_product(bits(a), bits(b)), a.dtype)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if types.is_floating(a.dtype) or a.device.type == "cpu":
        return torch.matmul(a, b)
    # GPUs have no products of integer matrices.
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-2 if b.ndim > 1 else -1]:
        raise ValueError(f"no product of arrays of the shapes {tuple(a.shape)} and {tuple(b.shape)}")
    left = a.unsqueeze(0) if a.ndim == 1 else a
    right = b.unsqueeze(1) if b.ndim == 1 else b
    result = torch.sum(left.unsqueeze(-1) * right.unsqueeze(-3), dim=-2, dtype=a.dtype)
    if a.ndim == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if b.ndim == 1 else result


def matrix_transpose(x: torch.Tensor, /) -> torch.Tensor:
    if x.ndim < 2:
        raise ValueError(f"a matrix is wanted, not an array of {x.ndim} dimensions")
    return torch.transpose(x, -2, -1)


def tensordot(
    x1: torch.Tensor, x2: torch.Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> torch.Tensor:
    """Sums over the last axes of one and the first of the other, or over pairs of axes."""
    a, b = together(x1, x2)
    if isinstance(axes, int):
        left = list(range(a.ndim - axes, a.ndim))
        right = list(range(axes))
    else:
        left = [one_axis(each, a.ndim) for each in axes[0]]
        right = [one_axis(each, b.ndim) for each in axes[1]]
    rest_left = [each for each in range(a.ndim) if each not in left]
    rest_right = [each for each in range(b.ndim) if each not in right]
    one = a.permute(rest_left + left)
    other = b.permute(right + rest_right)
    if [a.shape[each] for each in left] != [b.shape[each] for each in right]:
        raise ValueError(f"axes {left} of {tuple(a.shape)} and {right} of {tuple(b.shape)} have different sizes")
    shape = one.shape[: len(rest_left)] + other.shape[len(right) :]
    common = 1
    for each in left:
        common *= a.shape[each]
    rows, columns = 1, 1
    for each in rest_left:
        rows *= a.shape[each]
    for each in rest_right:
        columns *= b.shape[each]
    product = _product(bits(one.reshape(rows, common)), bits(other.reshape(common, columns)))
    return as_type(product.reshape(shape), a.dtype)


def vecdot(x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """Sums of products along an axis; the first operand conjugated."""
    a, b = together(x1, x2)
    if not -min(a.ndim, b.ndim) <= axis < 0:
        if axis < 0 or a.ndim != b.ndim:
            raise IndexError(f"axis {axis} is out of range: it counts from the end of both operands")
        axis = one_axis(axis, a.ndim) - a.ndim
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f"axis {axis} has {a.shape[axis]} elements in one operand and {b.shape[axis]} in the other")
    one = torch.conj(a) if types.is_complex(a.dtype) else bits(a)
    other = bits(b)
    return as_type(torch.sum(one * other, dim=axis, dtype=one.dtype), a.dtype)


# --- The extension.


def cholesky(x: torch.Tensor, /, *, upper: builtins.bool = False) -> torch.Tensor:
    return torch.linalg.cholesky(x, upper=upper)


def cross(x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    a, b = together(x1, x2)
    if a.ndim != b.ndim:
        if axis >= 0:
            raise ValueError("cross() counts its axis from the end where its operands have different dimensions")
        ndim = max(a.ndim, b.ndim)
        a, b = a[(None,) * (ndim - a.ndim)], b[(None,) * (ndim - b.ndim)]
    return as_type(torch.linalg.cross(bits(a), bits(b), dim=axis), a.dtype)


def det(x: torch.Tensor, /) -> torch.Tensor:
    return torch.linalg.det(x)


def diagonal(x: torch.Tensor, /, *, offset: int = 0) -> torch.Tensor:
    return torch.diagonal(x, offset=offset, dim1=-2, dim2=-1)


def eig(x: torch.Tensor, /) -> EigResult:
    values, vectors = torch.linalg.eig(x)
    return EigResult(values, vectors)


def eigvals(x: torch.Tensor, /) -> torch.Tensor:
    return torch.linalg.eigvals(x)


def eigh(x: torch.Tensor, /) -> EighResult:
    values, vectors = torch.linalg.eigh(x)
    return EighResult(values, vectors)


def eigvalsh(x: torch.Tensor, /) -> torch.Tensor:
    return torch.linalg.eigvalsh(x)


def inv(x: torch.Tensor, /) -> torch.Tensor:
    return torch.linalg.inv(x)


def matrix_norm(
    x: torch.Tensor, /, *, keepdims: builtins.bool = False, ord: int | float | str | None = "fro"
) -> torch.Tensor:
    return torch.linalg.matrix_norm(x, ord="fro" if ord is None else ord, keepdim=keepdims)


def matrix_power(x: torch.Tensor, n: int, /) -> torch.Tensor:
    return torch.linalg.matrix_power(x, n)


def matrix_rank(x: torch.Tensor, /, *, rtol: float | torch.Tensor | None = None) -> torch.Tensor:
    return torch.linalg.matrix_rank(x, rtol=rtol)


def outer(x1: torch.Tensor, x2: torch.Tensor, /) -> torch.Tensor:
    a, b = together(x1, x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError("outer() wants two one-dimensional arrays")
    return as_type(bits(a).unsqueeze(1) * bits(b).unsqueeze(0), a.dtype)


def pinv(x: torch.Tensor, /, *, rtol: float | torch.Tensor | None = None) -> torch.Tensor:
    return torch.linalg.pinv(x, rtol=rtol)


def qr(x: torch.Tensor, /, *, mode: str = "reduced") -> QRResult:
    if mode not in ("reduced", "complete"):
        raise ValueError(f"mode is 'reduced' or 'complete', not {mode!r}")
    orthogonal, triangular = torch.linalg.qr(x, mode=mode)
    return QRResult(orthogonal, triangular)


def slogdet(x: torch.Tensor, /) -> SlogdetResult:
    sign, logarithm = torch.linalg.slogdet(x)
    return SlogdetResult(sign, logarithm)


def solve(x1: torch.Tensor, x2: torch.Tensor, /) -> torch.Tensor:
    """The right side is one vector where it has one dimension; torch would see a batch of vectors in matrices too."""
    a, b = together(x1, x2)
    if b.ndim == 1:
        return torch.linalg.solve(a, b.unsqueeze(1)).squeeze(-1)
    if b.ndim == a.ndim - 1:
        b = b.unsqueeze(0)
    return torch.linalg.solve(a, b)


def svd(x: torch.Tensor, /, *, full_matrices: builtins.bool = True) -> SVDResult:
    left, values, right = torch.linalg.svd(x, full_matrices=full_matrices)
    return SVDResult(left, values, right)


def svdvals(x: torch.Tensor, /) -> torch.Tensor:
    return torch.linalg.svdvals(x)


def trace(x: torch.Tensor, /, *, offset: int = 0, dtype: torch.dtype | None = None) -> torch.Tensor:
    return sum_of(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(
    x: torch.Tensor,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: builtins.bool = False,
    ord: float = 2,
) -> torch.Tensor:
    axes = axes_of(x, axis)
    if not axes:
        return torch.linalg.vector_norm(x.unsqueeze(-1), ord=ord, dim=-1)
    return torch.linalg.vector_norm(x, ord=ord, dim=axes, keepdim=keepdims)
