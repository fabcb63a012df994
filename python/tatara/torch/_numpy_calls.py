"""NumPy's functions on tensors: those that the core has no rule for (numpy_rules.h), in words of torch.

Each function takes the arguments of NumPy's. What it returns is cast to the element type that NumPy chose (`fitted`). An argument
that a function does not take is refused where the program is made, since Python says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

import numpy as np
from tatara._errors import InternalError, Unsupported

# By NumPy's name: the function, and whether operands are to be cast to the type of the result first, as NumPy's products do.
CALLS: dict[str, tuple[Callable[..., Any], bool]] = {}


class Fit(NamedTuple):
    """What NumPy gave for a call."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def fitted(result: Any, wanted: Sequence[Fit]) -> list[torch.Tensor]:
    """The results as NumPy has them."""
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    if len(results) != len(wanted):
        raise InternalError(f"{len(results)} results where NumPy has {len(wanted)}")
    for tensor, fit in zip(results, wanted, strict=True):
        if tuple(tensor.shape) != fit.shape:
            raise InternalError(f"a result of shape {tuple(tensor.shape)} where NumPy's is {fit.shape}")
    return [tensor.to(fit.dtype) for tensor, fit in zip(results, wanted, strict=True)]


def _means(*names: str, promotes: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            CALLS[name] = (function, promotes)
        return function

    return note


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    return tuple(a % rank for a in (axis if isinstance(axis, tuple) else (axis,)))


def _tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    # Python's floats have 64 bits, whatever torch's default is.
    dtype = {float: torch.float64, complex: torch.complex128}.get(type(value))
    return torch.as_tensor(value, dtype=dtype, device=like.device)


def _first(*values: Any) -> torch.Tensor:
    """A tensor among the arguments."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, tuple | list):
            found = _first(*value)
            if isinstance(found, torch.Tensor):
                return found
    return None


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    like = _first(values)
    return [_tensor(value, like) for value in values]


# ---- Products --------------------------------------------------------------------------------------------------------


@_means("matmul", promotes=True)
def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.matmul(a, b)


@_means("dot", promotes=True)
def _dot(a: Any, b: Any) -> torch.Tensor:
    a, b = _tensors((a, b))
    if a.dim() == 0 or b.dim() == 0:
        return a * b
    if b.dim() <= 2:
        return torch.matmul(a, b)
    return torch.tensordot(a, b, dims=([a.dim() - 1], [b.dim() - 2]))


@_means("inner", promotes=True)
def _inner(a: Any, b: Any) -> torch.Tensor:
    a, b = _tensors((a, b))
    return a * b if a.dim() == 0 or b.dim() == 0 else torch.tensordot(a, b, dims=([-1], [-1]))


@_means("vdot", "linalg.vecdot", promotes=True)
def _vdot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.reshape(-1).conj() * b.reshape(-1)).sum() if a.dim() < 2 else (a.conj() * b).sum(-1)


@_means("outer", "linalg.outer", promotes=True)
def _outer(a: Any, b: Any) -> torch.Tensor:
    a, b = _tensors((a, b))
    return a.reshape(-1, 1) * b.reshape(1, -1)


@_means("tensordot", promotes=True)
def _tensordot(a: torch.Tensor, b: torch.Tensor, axes: Any = 2) -> torch.Tensor:
    if isinstance(axes, int):
        return torch.tensordot(a, b, dims=axes)
    of_a, of_b = ([each] if isinstance(each, int) else list(each) for each in axes)
    return torch.tensordot(a, b, dims=(of_a, of_b))


@_means("einsum", promotes=True)
def _einsum(subscripts: str, *operands: torch.Tensor, optimize: Any = False) -> torch.Tensor:
    return torch.einsum(subscripts, *operands)


@_means("kron", promotes=True)
def _kron(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.kron(a, b)


@_means("cross", promotes=True)
def _cross(a: torch.Tensor, b: torch.Tensor, axis: int = -1) -> torch.Tensor:
    return torch.linalg.cross(*torch.broadcast_tensors(a, b), dim=axis)


@_means("convolve", promotes=True)
def _convolve(a: torch.Tensor, v: torch.Tensor, mode: str = "full") -> torch.Tensor:
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    full = torch.nn.functional.conv1d(a[None, None], v.flip(0)[None, None], padding=v.shape[0] - 1)[0, 0]
    n, m = a.shape[0], v.shape[0]
    if mode == "full":
        return full
    return full[(m - 1) // 2 : (m - 1) // 2 + n] if mode == "same" else full[m - 1 : n]


@_means("trace")
def _trace(a: torch.Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> torch.Tensor:
    return torch.diagonal(a, offset, axis1, axis2).sum(-1)


# ---- Linear algebra --------------------------------------------------------------------------------------------------


@_means("linalg.norm", promotes=True)
def _norm(x: torch.Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    if axis is None and ord is None:
        whole = torch.sqrt((x * x.conj()).real.sum() if x.is_complex() else (x * x).sum())
        return whole.reshape((1,) * x.dim()) if keepdims else whole
    dims = _axes(axis, x.dim())
    if len(dims) == 1:
        return torch.linalg.vector_norm(x, 2 if ord is None else ord, dim=dims, keepdim=keepdims)
    return torch.linalg.matrix_norm(x, "fro" if ord is None else ord, dim=dims, keepdim=keepdims)


@_means("linalg.inv", promotes=True)
def _inv(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(a)


@_means("linalg.pinv", promotes=True)
def _pinv(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.pinv(a)


@_means("linalg.det", promotes=True)
def _det(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.det(a)


@_means("linalg.slogdet", promotes=True)
def _slogdet(a: torch.Tensor) -> Any:
    return tuple(torch.linalg.slogdet(a))


@_means("linalg.solve", promotes=True)
def _solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(a, b)


@_means("linalg.cholesky", promotes=True)
def _cholesky(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.cholesky(a)


@_means("linalg.eigh", promotes=True)
def _eigh(a: torch.Tensor, UPLO: str = "L") -> Any:  # noqa: N803 - NumPy's name
    return tuple(torch.linalg.eigh(a, UPLO))


@_means("linalg.eigvalsh", promotes=True)
def _eigvalsh(a: torch.Tensor, UPLO: str = "L") -> torch.Tensor:  # noqa: N803
    return torch.linalg.eigvalsh(a, UPLO)


@_means("linalg.svd", promotes=True)
def _svd(a: torch.Tensor, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return tuple(torch.linalg.svd(a, full_matrices)) if compute_uv else torch.linalg.svdvals(a)


@_means("linalg.svdvals", promotes=True)
def _svdvals(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.svdvals(x)


@_means("linalg.qr", promotes=True)
def _qr(a: torch.Tensor, mode: str = "reduced") -> Any:
    made = torch.linalg.qr(a, mode)
    return made.R if mode == "r" else tuple(made)


@_means("linalg.matrix_power", promotes=True)
def _matrix_power(a: torch.Tensor, n: int) -> torch.Tensor:
    return torch.linalg.matrix_power(a, n)


@_means("linalg.multi_dot", promotes=True)
def _multi_dot(arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.linalg.multi_dot(list(arrays))


# ---- Order -----------------------------------------------------------------------------------------------------------


@_means("sort")
def _sort(a: torch.Tensor, axis: int | None = -1, kind: Any = None) -> torch.Tensor:
    return torch.sort(a.reshape(-1)).values if axis is None else torch.sort(a, dim=axis, stable=True).values


@_means("argsort")
def _argsort(a: torch.Tensor, axis: int | None = -1, kind: Any = None, stable: Any = None) -> torch.Tensor:
    return torch.argsort(a.reshape(-1), stable=True) if axis is None else torch.argsort(a, dim=axis, stable=True)


@_means("searchsorted")
def _searchsorted(a: torch.Tensor, v: Any, side: str = "left") -> torch.Tensor:
    return torch.searchsorted(a.contiguous(), _tensor(v, a), side=side)


@_means("median")
def _median(a: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    return _quantile(a, 0.5, axis, keepdims=keepdims)


@_means("quantile")
def _quantile(
    a: torch.Tensor, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> torch.Tensor:
    wide = a if a.is_floating_point() else a.double()
    if isinstance(axis, tuple):
        raise Unsupported("quantiles over several axes")
    return torch.quantile(wide, _tensor(q, wide).to(wide.dtype), dim=axis, keepdim=keepdims, interpolation=method)


@_means("percentile")
def _percentile(
    a: torch.Tensor, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> torch.Tensor:
    return _quantile(a, _tensor(q, a).double() / 100.0, axis, method, keepdims)


# ---- Arrangement -----------------------------------------------------------------------------------------------------


@_means("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
def _array(object: Any, dtype: Any = None, copy: Any = None, order: Any = None) -> torch.Tensor:
    if isinstance(object, torch.Tensor):
        return object.clone()
    like = _first(object)

    def made(item: Any) -> torch.Tensor:
        if isinstance(item, tuple | list):
            parts = [made(each) for each in item]
            wide = parts[0].dtype
            for part in parts:
                wide = torch.promote_types(wide, part.dtype)
            return torch.stack([part.to(wide) for part in parts])
        return (
            item
            if isinstance(item, torch.Tensor)
            else torch.as_tensor(item, device=like.device, dtype=like.dtype if type(item) in (int, float) else None)
        )

    return made(object)


@_means("copy")
def _copy(a: torch.Tensor, order: str = "K") -> torch.Tensor:
    return a.clone()


@_means("astype")
def _astype(a: torch.Tensor, dtype: Any, copy: bool = True) -> torch.Tensor:
    return a.real if a.is_complex() and np.dtype(dtype).kind != "c" else a


@_means("reshape", "ravel", "squeeze", "expand_dims", "flatten")
def _reshape(a: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    raise Unsupported("an order of elements other than C's")


@_means("flip")
def _flip(m: torch.Tensor, axis: Any = None) -> torch.Tensor:
    return torch.flip(m, _axes(axis, m.dim()))


@_means("fliplr")
def _fliplr(m: torch.Tensor) -> torch.Tensor:
    return torch.flip(m, [1])


@_means("flipud")
def _flipud(m: torch.Tensor) -> torch.Tensor:
    return torch.flip(m, [0])


@_means("rot90")
def _rot90(m: torch.Tensor, k: int = 1, axes: Sequence[int] = (0, 1)) -> torch.Tensor:
    return torch.rot90(m, k, list(axes))


@_means("roll")
def _roll(a: torch.Tensor, shift: Any, axis: Any = None) -> torch.Tensor:
    return torch.roll(a, shift, axis) if axis is not None else torch.roll(a, shift)


@_means("tile")
def _tile(A: torch.Tensor, reps: Any) -> torch.Tensor:  # noqa: N803
    return torch.tile(A, (reps,) if isinstance(reps, int) else tuple(reps))


@_means("repeat")
def _repeat(a: torch.Tensor, repeats: int, axis: int | None = None) -> torch.Tensor:
    return torch.repeat_interleave(a, repeats, dim=axis)


@_means("moveaxis")
def _moveaxis(a: torch.Tensor, source: Any, destination: Any) -> torch.Tensor:
    return torch.movedim(a, source, destination)


@_means("matrix_transpose", "mT")
def _matrix_transpose(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.mT


@_means("broadcast_to")
def _broadcast_to(array: Any, shape: Any) -> torch.Tensor:
    return array.broadcast_to((shape,) if isinstance(shape, int) else tuple(shape))


@_means("atleast_1d")
def _atleast_1d(*arys: torch.Tensor) -> Any:
    made = [torch.atleast_1d(each) for each in arys]
    return made[0] if len(made) == 1 else made


@_means("atleast_2d")
def _atleast_2d(*arys: torch.Tensor) -> Any:
    made = [torch.atleast_2d(each) for each in arys]
    return made[0] if len(made) == 1 else made


@_means("vstack", promotes=True)
def _vstack(tup: Sequence[Any]) -> torch.Tensor:
    return torch.vstack(_tensors(tup))


@_means("hstack", promotes=True)
def _hstack(tup: Sequence[Any]) -> torch.Tensor:
    return torch.hstack(_tensors(tup))


@_means("dstack", promotes=True)
def _dstack(tup: Sequence[Any]) -> torch.Tensor:
    return torch.dstack(_tensors(tup))


@_means("column_stack", promotes=True)
def _column_stack(tup: Sequence[Any]) -> torch.Tensor:
    return torch.cat([each if each.dim() > 1 else each.reshape(-1, 1) for each in _tensors(tup)], 1)


@_means("stack", promotes=True)
def _stack(arrays: Any, axis: int = 0) -> torch.Tensor:
    return torch.stack(_tensors(arrays), axis)


@_means("concatenate", "concat", promotes=True)
def _concatenate(arrays: Any, axis: int | None = 0) -> torch.Tensor:
    items = _tensors(arrays)
    return torch.cat([each.reshape(-1) for each in items]) if axis is None else torch.cat(items, axis)


@_means("split", "array_split")
def _split(ary: torch.Tensor, indices_or_sections: Any, axis: int = 0) -> Any:
    sections = indices_or_sections
    return torch.tensor_split(ary, sections if isinstance(sections, int) else list(sections), dim=axis)


@_means("unstack")
def _unstack(x: torch.Tensor, axis: int = 0) -> Any:
    return torch.unbind(x, axis)


@_means("diagonal")
def _diagonal(a: torch.Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> torch.Tensor:
    return torch.diagonal(a, offset, axis1, axis2)


@_means("diag")
def _diag(v: torch.Tensor, k: int = 0) -> torch.Tensor:
    return torch.diag(v, k)


@_means("diagflat")
def _diagflat(v: torch.Tensor, k: int = 0) -> torch.Tensor:
    return torch.diagflat(v, k)


@_means("tril")
def _tril(m: torch.Tensor, k: int = 0) -> torch.Tensor:
    return torch.tril(m, k)


@_means("triu")
def _triu(m: torch.Tensor, k: int = 0) -> torch.Tensor:
    return torch.triu(m, k)


@_means("meshgrid")
def _meshgrid(*xi: Any, indexing: str = "xy", copy: bool = True, sparse: bool = False) -> Any:
    if sparse:
        raise Unsupported("sparse meshes")
    return torch.meshgrid(*_tensors(xi), indexing=indexing)


def _widths(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    """Of each dimension, before and behind."""
    given = list(pad_width) if isinstance(pad_width, tuple | list) else [pad_width]
    if not any(isinstance(each, tuple | list) for each in given):
        return [(int(given[0]), int(given[-1]))] * rank
    pairs = [(int(each[0]), int(each[-1])) for each in given]
    return pairs * rank if len(pairs) == 1 else pairs


def _mirrored(place: int, size: int, mode: str) -> int:
    """The element that stands at a place outside of an array."""
    if mode == "edge":
        return min(max(place, 0), size - 1)
    if mode == "wrap" or size == 1:
        return place % size
    period = 2 * size - 2 if mode == "reflect" else 2 * size
    place %= period
    return place if place < size else (period if mode == "reflect" else period - 1) - place


@_means("pad")
def _pad(array: torch.Tensor, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> torch.Tensor:
    widths = _widths(pad_width, array.dim())
    if mode == "constant" and not isinstance(constant_values, tuple | list | torch.Tensor):
        flat = [width for pair in reversed(widths) for width in pair]
        return torch.nn.functional.pad(array, flat, value=constant_values)
    if mode not in ("edge", "wrap", "reflect", "symmetric"):
        raise Unsupported(f"np.pad with mode {mode!r} and these values")
    made = array
    for dim, (before, behind) in enumerate(widths):
        size = array.shape[dim]
        places = [_mirrored(place, size, mode) for place in range(-before, size + behind)]
        made = torch.index_select(made, dim, torch.tensor(places, device=array.device))
    return made


@_means("take")
def _take(a: torch.Tensor, indices: Any, axis: int | None = None) -> torch.Tensor:
    places = _tensor(indices, a).long()
    if axis is None:
        return a.reshape(-1)[places]
    return torch.movedim(
        torch.movedim(a, axis, 0)[places],
        tuple(range(places.dim())),
        tuple(axis % a.dim() + k for k in range(places.dim())),
    )


@_means("take_along_axis")
def _take_along_axis(arr: torch.Tensor, indices: torch.Tensor, axis: int = -1) -> torch.Tensor:
    return torch.take_along_dim(arr, indices.long(), axis)


# ---- a[key] ----------------------------------------------------------------------------------------------------------


def _turned(x: torch.Tensor, key: Any) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """The tensor and a key without slices that run backwards."""
    items = list(key) if isinstance(key, tuple) else [key]
    given = sum(1 for item in items if item is not None and item is not Ellipsis)
    dim = 0
    for place, item in enumerate(items):
        if item is Ellipsis:
            dim += x.dim() - given
        elif isinstance(item, slice) and item.step is not None and item.step < 0:
            start, _, step = item.indices(x.shape[dim])
            count = len(range(*item.indices(x.shape[dim])))
            x = torch.flip(x, [dim])
            first = x.shape[dim] - 1 - start
            items[place] = slice(first, first + (count - 1) * -step + 1 if count else first, -step)
            dim += 1
        elif item is not None:
            dim += item.dim() if isinstance(item, torch.Tensor) and item.dtype == torch.bool else 1
    return x, tuple(
        item.long() if isinstance(item, torch.Tensor) and item.dtype != torch.bool else item for item in items
    )


@_means("getitem")
def _getitem(x: torch.Tensor, key: Any) -> torch.Tensor:
    turned, places = _turned(x, key)
    return turned[places]


def _places(x: torch.Tensor, key: Any) -> torch.Tensor:
    """Which elements a key names, by their numbers."""
    numbers = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    turned, places = _turned(numbers, key)
    return turned[places]


@_means("setitem")
def _setitem(x: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    given = _tensor(value, x).to(x.dtype)
    if isinstance(key, torch.Tensor) and key.dtype == torch.bool and key.shape == x.shape and given.dim() == 0:
        return torch.where(key, given, x)
    places = _places(x, key)
    flat = x.reshape(-1)
    values = given.broadcast_to(places.shape).reshape(-1)
    return torch.index_put(flat, (places.reshape(-1),), values).reshape(x.shape)


@_means("add.at")
def _add_at(x: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    places = _places(x, key)
    values = _tensor(value, x).to(x.dtype).broadcast_to(places.shape).reshape(-1)
    return torch.index_put(x.reshape(-1), (places.reshape(-1),), values, accumulate=True).reshape(x.shape)


@_means("subtract.at")
def _subtract_at(x: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    return _add_at(x, key, -_tensor(value, x))


@_means("fill")
def _fill(x: torch.Tensor, value: Any) -> torch.Tensor:
    return _tensor(value, x).to(x.dtype).expand(x.shape)


@_means("fill_diagonal")
def _fill_diagonal(a: torch.Tensor, val: Any) -> torch.Tensor:
    eye = torch.eye(a.shape[0], a.shape[1], dtype=torch.bool, device=a.device)
    return torch.where(eye, _tensor(val, a).to(a.dtype), a)


# ---- Sums, differences, elements -------------------------------------------------------------------------------------


@_means("diff")
def _diff(a: torch.Tensor, n: int = 1, axis: int = -1) -> torch.Tensor:
    return torch.diff(a, n, axis)


@_means("gradient")
def _gradient(f: torch.Tensor, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    dims = _axes(axis, f.dim())
    steps = varargs or (1.0,)
    steps = steps * len(dims) if len(steps) == 1 else steps
    spacing = [step if isinstance(step, torch.Tensor) else float(step) for step in steps]
    if any(isinstance(step, torch.Tensor) and step.dim() > 0 for step in spacing):
        raise Unsupported("gradients over uneven steps")
    wide = f if f.is_floating_point() or f.is_complex() else f.double()
    made = [
        torch.gradient(wide, dim=dim, edge_order=edge_order)[0] / step for dim, step in zip(dims, spacing, strict=True)
    ]
    return made[0] if len(made) == 1 else made


@_means("trapezoid")
def _trapezoid(y: torch.Tensor, x: Any = None, dx: Any = 1.0, axis: int = -1) -> torch.Tensor:
    return torch.trapezoid(y, dx=dx, dim=axis) if x is None else torch.trapezoid(y, _tensor(x, y), dim=axis)


@_means("average")
def _average(a: torch.Tensor, axis: Any = None, weights: Any = None, keepdims: bool = False) -> torch.Tensor:
    wide = a if a.is_floating_point() or a.is_complex() else a.double()
    dims = _axes(axis, a.dim())
    if weights is None:
        return wide.mean(dims, keepdim=keepdims)
    w = _tensor(weights, a).to(wide.dtype)
    if w.shape != a.shape:
        w = w.reshape([w.shape[0] if d == dims[0] else 1 for d in range(a.dim())]).broadcast_to(a.shape)
    return (wide * w).sum(dims, keepdim=keepdims) / w.sum(dims, keepdim=keepdims)


@_means("ptp")
def _ptp(a: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    dims = _axes(axis, a.dim())
    return torch.amax(a, dims, keepdim=keepdims) - torch.amin(a, dims, keepdim=keepdims)


@_means("count_nonzero")
def _count_nonzero(a: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    return (a != 0).sum(_axes(axis, a.dim()), keepdim=keepdims)


@_means("nansum")
def _nansum(a: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    return torch.nansum(a, _axes(axis, a.dim()), keepdim=keepdims)


@_means("nanmean")
def _nanmean(a: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    return torch.nanmean(a, _axes(axis, a.dim()), keepdim=keepdims)


@_means("prod", "multiply.reduce")
def _prod(a: torch.Tensor, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    made = a
    for dim in sorted(_axes(axis, a.dim()), reverse=True):
        made = torch.prod(made, dim, keepdim=keepdims)
    return made


@_means("sum", "add.reduce")
def _sum(
    a: torch.Tensor, axis: Any = None, keepdims: bool = False, where: Any = None, initial: Any = None
) -> torch.Tensor:
    if where is not None:
        a = torch.where(where, a, torch.zeros_like(a))
    made = a.sum(_axes(axis, a.dim()), keepdim=keepdims) if a.dim() else a.clone()
    return made if initial is None else made + initial


@_means("mean")
def _mean(a: torch.Tensor, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> torch.Tensor:
    wide = a if a.is_floating_point() or a.is_complex() else a.double()
    return wide.mean(_axes(axis, a.dim()), keepdim=keepdims) if a.dim() else wide.clone()


@_means("var")
def _var(
    a: torch.Tensor, axis: Any = None, ddof: Any = 0, keepdims: bool = False, correction: Any = None
) -> torch.Tensor:
    wide = a if a.is_floating_point() or a.is_complex() else a.double()
    return torch.var(
        wide, _axes(axis, a.dim()), correction=ddof if correction is None else correction, keepdim=keepdims
    )


@_means("std")
def _std(
    a: torch.Tensor, axis: Any = None, ddof: Any = 0, keepdims: bool = False, correction: Any = None
) -> torch.Tensor:
    return torch.sqrt(_var(a, axis, ddof, keepdims, correction))


@_means("cov")
def _cov(m: torch.Tensor, rowvar: bool = True, bias: bool = False, ddof: Any = None) -> torch.Tensor:
    rows = (m if rowvar or m.dim() < 2 else m.T).reshape(
        -1 if m.dim() > 1 else 1, m.shape[-1 if rowvar or m.dim() < 2 else 0]
    )
    wide = rows if rows.is_floating_point() or rows.is_complex() else rows.double()
    off = wide - wide.mean(1, keepdim=True)
    made = off @ off.conj().T / (wide.shape[1] - ((0 if bias else 1) if ddof is None else ddof))
    return made if m.dim() > 1 else made.reshape(())


@_means("corrcoef")
def _corrcoef(x: torch.Tensor, rowvar: bool = True) -> torch.Tensor:
    made = _cov(x, rowvar)
    if made.dim() == 0:
        return made / made
    spread = torch.sqrt(torch.diagonal(made).real if made.is_complex() else torch.diagonal(made))
    return made / spread[:, None] / spread[None, :]


@_means("interp")
def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> torch.Tensor:
    x, xp, fp = (each.double() for each in _tensors((x, xp, fp)))
    if xp.shape[0] < 2:
        raise Unsupported("interpolation between fewer than two points")
    at = torch.clamp(torch.searchsorted(xp, x.detach().contiguous(), right=True) - 1, 0, xp.shape[0] - 2)
    slope = (fp[at + 1] - fp[at]) / (xp[at + 1] - xp[at])
    inside = slope * (x - xp[at]) + fp[at]
    made = torch.where(x < xp[0], _tensor(fp[0] if left is None else left, fp), inside)
    return torch.where(x > xp[-1], _tensor(fp[-1] if right is None else right, fp), made)


@_means("polyval")
def _polyval(p: Any, x: Any) -> torch.Tensor:
    p, x = _tensors((p, x))
    made = torch.zeros_like(x)
    for k in range(p.shape[0]):
        made = made * x + p[k]
    return made


@_means("nan_to_num")
def _nan_to_num(
    x: torch.Tensor, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> torch.Tensor:
    return torch.nan_to_num(x, nan, posinf, neginf)


@_means("isclose")
def _isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> torch.Tensor:
    a, b = torch.broadcast_tensors(*_tensors((a, b)))
    wide = torch.promote_types(a.dtype, b.dtype)
    return torch.isclose(a.to(wide), b.to(wide), rtol, atol, equal_nan)


@_means("round", "around")
def _round(a: torch.Tensor, decimals: int = 0) -> torch.Tensor:
    return torch.round(a, decimals=decimals) if a.is_floating_point() or decimals else a.clone()


@_means("sinc")
def _sinc(x: torch.Tensor) -> torch.Tensor:
    return torch.sinc(x)


@_means("angle")
def _angle(z: torch.Tensor, deg: bool = False) -> torch.Tensor:
    return torch.rad2deg(torch.angle(z)) if deg else torch.angle(z)


@_means("real")
def _real(val: torch.Tensor, *_: Any) -> torch.Tensor:
    return val.real if val.is_complex() else val.clone()


@_means("imag")
def _imag(val: torch.Tensor, *_: Any) -> torch.Tensor:
    return val.imag if val.is_complex() else torch.zeros_like(val)


@_means("logaddexp", promotes=True)
def _logaddexp(a: Any, b: Any) -> torch.Tensor:
    return torch.logaddexp(*_tensors((a, b)))


@_means("logaddexp2", promotes=True)
def _logaddexp2(a: Any, b: Any) -> torch.Tensor:
    return torch.logaddexp2(*_tensors((a, b)))


@_means("cbrt")
def _cbrt(x: torch.Tensor) -> torch.Tensor:
    wide = x if x.is_floating_point() else x.double()
    return torch.sign(wide) * torch.abs(wide) ** (1.0 / 3.0)


@_means("modf")
def _modf(x: torch.Tensor) -> Any:
    whole = torch.trunc(x)
    return x - whole, whole


@_means("divmod")
def _divmod(a: Any, b: Any) -> Any:
    a, b = _tensors((a, b))
    return torch.floor_divide(a, b), torch.remainder(a, b)


@_means("add.outer", promotes=True)
def _add_outer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.reshape(a.shape + (1,) * b.dim()) + b


@_means("subtract.outer", promotes=True)
def _subtract_outer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.reshape(a.shape + (1,) * b.dim()) - b


@_means("multiply.outer", promotes=True)
def _multiply_outer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.reshape(a.shape + (1,) * b.dim()) * b


# ---- Spectra ---------------------------------------------------------------------------------------------------------


def _spectrum(name: str) -> None:
    function = getattr(torch.fft, name)

    def of_one(a: torch.Tensor, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return function(a, n=n, dim=axis, norm=norm)

    def of_all(a: torch.Tensor, s: Any = None, axes: Any = None, norm: Any = None) -> Any:
        if axes is None and name.endswith("2"):
            axes = (-2, -1)
        return function(a, s=s, dim=axes, norm=norm)

    def shifted(x: torch.Tensor, axes: Any = None) -> Any:
        return function(x, dim=axes)

    called = shifted if name.endswith("shift") else of_all if name[-1] in "2n" else of_one
    CALLS[f"fft.{name}"] = (called, False)


for _name in (
    "fft",
    "ifft",
    "rfft",
    "irfft",
    "hfft",
    "ihfft",
    "fft2",
    "ifft2",
    "rfft2",
    "irfft2",
    "fftn",
    "ifftn",
    "rfftn",
):
    _spectrum(_name)
for _name in ("irfftn", "fftshift", "ifftshift"):
    _spectrum(_name)
