"""NumPy's functions on tensors by tatara.wrap_numpy: values and types as NumPy's, gradients as finite differences, batches as loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import numpy as np

torch = pytest.importorskip("torch")

import tatara  # noqa: E402

RNG = np.random.default_rng(0)


def away(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers between 0.3 and 1.7, all different, so that nothing is at a corner."""
    size = int(np.prod(shape))
    return (RNG.permutation(np.linspace(0.3, 1.7, size)) if size else np.zeros(0)).reshape(shape)


def square(n: int = 3) -> np.ndarray[Any, Any]:
    return away(n, n) + n * np.eye(n)


def positive(n: int = 3) -> np.ndarray[Any, Any]:
    made = away(n, n)
    return made @ made.T + n * np.eye(n)


class Row(NamedTuple):
    function: Callable[..., Any]
    operands: tuple[Any, ...]
    smooth: bool = True  # has a gradient to compare


V, W, M, N = away(5), away(5) + 0.07, away(3, 4), away(3, 4) + 0.03
I = np.array([2, 0, 1])  # noqa: E741
UNARY = """sin cos tan arcsinh arctan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt square reciprocal negative
    positive absolute fabs cbrt deg2rad rad2deg sinc conjugate""".split()
FLAT = "floor ceil trunc rint sign isnan isfinite isinf signbit logical_not".split()
BINARY = """add subtract multiply divide power arctan2 hypot maximum minimum fmax fmin logaddexp logaddexp2
    float_power copysign""".split()
FLAT_BINARY = """floor_divide equal not_equal less less_equal greater greater_equal logical_and logical_or
    logical_xor heaviside""".split()
REDUCTIONS = "sum prod mean var std max min amax amin ptp median nansum nanmean".split()

TABLE: dict[str, Row] = {}
for name in UNARY:
    TABLE[name] = Row(getattr(np, name), (V,))
for name in FLAT:
    TABLE[name] = Row(getattr(np, name), (V,), False)
for name in BINARY:
    TABLE[name] = Row(getattr(np, name), (V, W))
    TABLE[f"{name}, rows"] = Row(lambda x, y, f=getattr(np, name): f(x, y), (M, away(4) + 0.011))
for name in FLAT_BINARY:
    TABLE[name] = Row(getattr(np, name), (V, W), False)
TABLE["remainder"] = Row(np.remainder, (V, W))
TABLE["fmod"] = Row(np.fmod, (V, W))
for name in REDUCTIONS:
    f = getattr(np, name)
    TABLE[name] = Row(f, (M,))
    TABLE[f"{name}, axis"] = Row(lambda x, f=f: f(x, axis=1), (M,))
    TABLE[f"{name}, kept"] = Row(lambda x, f=f: f(x, axis=0, keepdims=True), (M,))
for name in ("any", "all", "argmax", "argmin", "count_nonzero", "argsort"):
    TABLE[name] = Row(lambda x, f=getattr(np, name): f(x, axis=1), (M,), False)

TABLE |= {
    "matmul": Row(np.matmul, (M, away(4, 2))),
    "@ of vectors": Row(lambda x, y: x @ y, (V, W)),
    "dot": Row(np.dot, (M, away(4))),
    "dot of many": Row(np.dot, (away(2, 3), away(2, 3, 2))),
    "inner": Row(np.inner, (M, N)),
    "vdot": Row(np.vdot, (V, W)),
    "outer": Row(np.outer, (V, W)),
    "tensordot": Row(lambda x, y: np.tensordot(x, y, axes=([0, 1], [1, 0])), (M, away(4, 3, 2))),
    "einsum": Row(lambda x, y: np.einsum("ij,kj->ik", x, y), (M, N)),
    "kron": Row(np.kron, (away(2, 2), M)),
    "cross": Row(np.cross, (away(2, 3), away(2, 3))),
    "convolve": Row(np.convolve, (V, away(3))),
    "convolve, same": Row(lambda x, y: np.convolve(x, y, "same"), (V, away(3))),
    "convolve, valid": Row(lambda x, y: np.convolve(x, y, "valid"), (V, away(2))),
    "trace": Row(np.trace, (M,)),
    "norm": Row(np.linalg.norm, (M,)),
    "norm, axis": Row(lambda x: np.linalg.norm(x, axis=1), (M,)),
    "norm, one": Row(lambda x: np.linalg.norm(x, 1, axis=0), (M,)),
    "norm, largest": Row(lambda x: np.linalg.norm(x, np.inf, axis=0), (M,)),
    "inv": Row(np.linalg.inv, (square(),)),
    "pinv": Row(np.linalg.pinv, (M,)),
    "det": Row(np.linalg.det, (square(),)),
    "slogdet": Row(lambda x: np.linalg.slogdet(x)[1], (square(),)),
    "solve": Row(np.linalg.solve, (square(), away(3, 2))),
    "solve, a vector": Row(np.linalg.solve, (square(), away(3))),
    "cholesky": Row(lambda x: np.linalg.cholesky(x @ x.T), (square(),)),
    "eigvalsh": Row(lambda x: np.linalg.eigvalsh(x + x.T), (square(),)),
    "eigh": Row(lambda x: np.linalg.eigh(x + x.T)[0], (square(),)),
    "svd": Row(lambda x: np.linalg.svd(x, compute_uv=False), (M,)),
    "qr": Row(lambda x: np.abs(np.linalg.qr(x)[1]), (square(),)),
    "matrix_power": Row(lambda x: np.linalg.matrix_power(x, 3), (square(),)),
    "multi_dot": Row(lambda x, y: np.linalg.multi_dot([x, y, x]), (square(), square())),
    "sort": Row(np.sort, (M,)),
    "sort, axis": Row(lambda x: np.sort(x, axis=0), (M,)),
    "quantile": Row(lambda x: np.quantile(x, 0.3, axis=1), (M,)),
    "percentile": Row(lambda x: np.percentile(x, 20, axis=0), (M,)),
    "searchsorted": Row(lambda x, y: np.searchsorted(np.sort(x), y), (V, W), False),
    "array of numbers": Row(lambda x: np.array([x[0], x[1] * 2, 3.0]), (V,)),
    "array of rows": Row(lambda x: np.array([[x[0], x[1]], [x[2] * x[3], 0.0]]), (V,)),
    "copy": Row(np.copy, (M,)),
    "astype": Row(lambda x: x.astype(np.float32).astype(np.float64), (M,), False),
    "reshape": Row(lambda x: x.reshape(2, 6), (M,)),
    "reshape, by columns": Row(lambda x: x.T.reshape(2, -1), (M,)),
    "ravel": Row(np.ravel, (M,)),
    "flatten": Row(lambda x: x.T.flatten(), (M,)),
    "transpose": Row(lambda x: np.transpose(x, (1, 0)) * 2, (M,)),
    "swapaxes": Row(lambda x: np.swapaxes(x, 0, 1), (M,)),
    "moveaxis": Row(lambda x: np.moveaxis(x, 0, -1), (M,)),
    "squeeze": Row(lambda x: np.squeeze(x[:, None]), (V,)),
    "expand_dims": Row(lambda x: np.expand_dims(x, 1), (V,)),
    "flip": Row(np.flip, (M,)),
    "flip, axis": Row(lambda x: np.flip(x, 1), (M,)),
    "fliplr": Row(np.fliplr, (M,)),
    "flipud": Row(np.flipud, (M,)),
    "rot90": Row(np.rot90, (M,)),
    "roll": Row(lambda x: np.roll(x, 2), (M,)),
    "roll, axis": Row(lambda x: np.roll(x, 1, axis=0), (M,)),
    "tile": Row(lambda x: np.tile(x, (2, 3)), (M,)),
    "broadcast_to": Row(lambda x: np.broadcast_to(x, (2, 5)) * 1.0, (V,)),
    "atleast_2d": Row(np.atleast_2d, (V,)),
    "vstack": Row(lambda x, y: np.vstack([x, y]), (V, W)),
    "hstack": Row(lambda x, y: np.hstack((x, y)), (V, W)),
    "dstack": Row(lambda x, y: np.dstack([x, y]), (M, N)),
    "column_stack": Row(lambda x, y: np.column_stack([x, y]), (V, W)),
    "stack": Row(lambda x, y: np.stack([x, y], axis=1), (V, W)),
    "concatenate": Row(lambda x, y: np.concatenate([x, y], axis=1), (M, N)),
    "concatenate, flat": Row(lambda x, y: np.concatenate([x, y], axis=None), (M, V)),
    "split": Row(lambda x: np.split(x, 2, axis=1)[1], (M,)),
    "array_split": Row(lambda x: np.array_split(x, 3)[0], (V,)),
    "diagonal": Row(np.diagonal, (M,)),
    "diag": Row(np.diag, (V,)),
    "diag of a matrix": Row(np.diag, (M,)),
    "diagflat": Row(np.diagflat, (V,)),
    "tril": Row(np.tril, (M,)),
    "triu": Row(lambda x: np.triu(x, 1), (M,)),
    "meshgrid": Row(lambda x, y: np.meshgrid(x, y)[0] * np.meshgrid(x, y)[1], (V, away(3))),
    "pad": Row(lambda x: np.pad(x, 1), (M,)),
    "pad, edges": Row(lambda x: np.pad(x, ((1, 2), (0, 1)), mode="edge"), (M,)),
    "pad, mirrored": Row(lambda x: np.pad(x, 2, mode="reflect"), (M,)),
    "take": Row(lambda x: np.take(x, I), (V,)),
    "take, axis": Row(lambda x: np.take(x, I, axis=1), (M,)),
    "take_along_axis": Row(lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1), (M,)),
    "a[i]": Row(lambda x: x[1], (M,)),
    "a[-1, 2]": Row(lambda x: x[-1, 2] * 2.0, (M,)),
    "a[::-1]": Row(lambda x: x[::-1], (M,)),
    "a[:, 3:0:-2]": Row(lambda x: x[:, 3:0:-2], (M,)),
    "a[..., None]": Row(lambda x: x[..., None], (M,)),
    "a[array]": Row(lambda x: x[I], (M,)),
    "a[1, array]": Row(lambda x: x[1, I], (M,)),
    "where": Row(lambda x, y: np.where(x > y, x, y * 2), (V, W)),
    "clip": Row(lambda x: np.clip(x, 0.5, 1.2), (V,)),
    "cumsum": Row(np.cumsum, (V,)),
    "cumprod": Row(lambda x: np.cumprod(x, axis=1), (M,)),
    "diff": Row(np.diff, (M,)),
    "diff, twice": Row(lambda x: np.diff(x, 2, axis=0), (M,)),
    "gradient": Row(lambda x: np.gradient(x, 0.5), (V,)),
    "gradient, axis": Row(lambda x: np.gradient(x, axis=1), (M,)),
    "trapezoid": Row(lambda y, x: np.trapezoid(y, np.cumsum(x)), (V, W)),
    "trapezoid, even": Row(lambda y: np.trapezoid(y, dx=0.1), (M,)),
    "average": Row(lambda x, w: np.average(x, weights=w), (V, W)),
    "cov": Row(np.cov, (M,)),
    "corrcoef": Row(np.corrcoef, (M,)),
    "interp": Row(lambda x, y: np.interp(x, np.linspace(0.0, 2.0, 5), y), (away(7) + 0.013, V)),
    "polyval": Row(lambda p, x: np.polyval(p, x), (away(3), V)),
    "nan_to_num": Row(np.nan_to_num, (V,)),
    "round": Row(lambda x: np.round(x, 1), (V,), False),
    "add.reduce": Row(np.add.reduce, (M,)),
    "add.outer": Row(np.add.outer, (V, away(2))),
    "multiply.outer": Row(np.multiply.outer, (V, away(2))),
    "fft": Row(lambda x: np.abs(np.fft.fft(x)), (V,)),
    "rfft": Row(lambda x: np.fft.rfft(x).real, (V,)),
    "irfft": Row(lambda x: np.fft.irfft(np.fft.rfft(x) * 2.0, n=5), (V,)),
    "fft2": Row(lambda x: np.abs(np.fft.fft2(x)), (M,)),
    "fftshift": Row(np.fft.fftshift, (V,)),
    "linspace of constants": Row(lambda x: x * np.linspace(0.0, 1.0, 5), (V,)),
    "windows": Row(lambda x: x * np.hanning(5), (V,)),
}


def seen(value: Any) -> list[np.ndarray[Any, Any]]:
    parts = value if isinstance(value, tuple | list) else [value]
    return [
        part.detach().resolve_conj().numpy() if isinstance(part, torch.Tensor) else np.asarray(part) for part in parts
    ]


def tensors(row: Row) -> list[Any]:
    return [torch.from_numpy(operand.copy()) for operand in row.operands]


def assert_same(result: Any, expected: Any) -> None:
    for got, want in zip(seen(result), seen(expected), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def weighed(function: Callable[..., Any], *operands: Any) -> float:
    """A number in which each element of the result counts otherwise."""
    result = np.asarray(function(*operands), dtype=np.float64)
    return float((result * np.cos(np.arange(result.size)).reshape(result.shape)).sum())


@pytest.mark.parametrize("name", TABLE)
def test_a_function_gives_what_numpy_gives(name: str) -> None:
    row = TABLE[name]
    assert_same(tatara.wrap_numpy(row.function)(*tensors(row)), row.function(*row.operands))


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.smooth])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    row = TABLE[name]
    given = [tensor.requires_grad_() for tensor in tensors(row)]
    result = tatara.wrap_numpy(row.function)(*given)
    weights = torch.cos(torch.arange(result.numel(), dtype=torch.float64)).reshape(result.shape)
    (result * weights).sum().backward()
    step = 1e-6
    for k, tensor in enumerate(given):
        assert tensor.grad is not None or tensor.shape == ()
        expected = np.zeros(row.operands[k].shape)
        for place in np.ndindex(expected.shape):
            moved = []
            for sign in (step, -step):
                operands = [operand.copy() for operand in row.operands]
                operands[k][place] += sign
                moved.append(weighed(row.function, *operands))
            expected[place] = (moved[0] - moved[1]) / (2 * step)
        np.testing.assert_allclose(tensor.grad.numpy(), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", TABLE)
def test_a_batch_is_a_loop(name: str) -> None:
    row = TABLE[name]
    batches = [torch.from_numpy(np.stack([operand, operand * 1.25, operand * 0.75])) for operand in row.operands]
    result = torch.func.vmap(tatara.wrap_numpy(row.function))(*batches)
    expected = [row.function(*[batch[k].numpy() for batch in batches]) for k in range(3)]
    assert_same(result, np.stack([np.asarray(each) for each in expected]))


@pytest.mark.parametrize("name", TABLE)
def test_in_compiled_code_it_is_part_of_the_graph(name: str) -> None:
    row = TABLE[name]
    wrapped = tatara.wrap_numpy(row.function)

    def program(*given: Any) -> Any:
        result = wrapped(*[tensor + 0.0 for tensor in given])
        return result * 2 if isinstance(result, torch.Tensor) else result

    compiled = tatara.compile(program)
    expected = program(*tensors(row))
    before = tatara.stats()
    for _ in range(2):
        assert_same(compiled(*tensors(row)), expected)
    assert tatara.stats()["breaks"] == before["breaks"]
