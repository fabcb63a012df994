"""NumPy's calls against eager NumPy: ufuncs by element type, reductions, indexing, shapes, joins, creation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from util import check, defined

import numpy as np

RNG = np.random.default_rng(3)
DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]

UNARY = (
    "negative positive absolute sign rint floor ceil trunc sqrt square reciprocal exp exp2 expm1 log log2 log10 log1p sin cos "
    "tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh isnan isinf isfinite signbit deg2rad rad2deg invert "
    "logical_not conjugate cbrt fabs"
).split()
BINARY = (
    "add subtract multiply divide floor_divide remainder fmod power maximum minimum fmax fmin arctan2 hypot copysign "
    "nextafter logaddexp logaddexp2 heaviside bitwise_and bitwise_or bitwise_xor left_shift right_shift equal not_equal less "
    "less_equal greater greater_equal logical_and logical_or logical_xor gcd float_power"
).split()


def sample(dtype: str, shape: tuple[int, ...] = (4, 5), low: float = 0.1, high: float = 0.9) -> np.ndarray:
    """Values for which most functions are defined."""
    t = np.dtype(dtype)
    if t.kind == "b":
        return RNG.random(shape) < 0.5
    if t.kind in "iu":
        return RNG.integers(1, 7, shape).astype(t)
    if t.kind == "c":
        return (RNG.uniform(low, high, shape) + 1j * RNG.uniform(low, high, shape)).astype(t)
    return RNG.uniform(low, high, shape).astype(t)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    ufunc = getattr(np, name)
    for dtype in DTYPES:
        x = sample(dtype, low=1.1, high=1.9) if name == "arccosh" else sample(dtype)
        if defined(ufunc, x):
            check(lambda a: ufunc(a), x, graphs=1, calls=2)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    ufunc = getattr(np, name)
    for i, dtype in enumerate(DTYPES):
        x, y = sample(dtype), sample(dtype)
        if defined(ufunc, x, y):
            check(lambda a, b: ufunc(a, b), x, y, graphs=1, calls=2)
        other = sample(DTYPES[(i + 3) % len(DTYPES)], (5,))
        if defined(ufunc, x, other):
            check(lambda a, b: ufunc(a, b), x, other, graphs=1, calls=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2, 0.5, True, 1.5j, np.float32(0.1), np.int8(3)], ids=repr)
def test_numbers_are_weak(dtype: str, number: Any) -> None:
    x = sample(dtype)
    for function in (lambda a: a + number, lambda a: number * a, lambda a: a / number, lambda a: a > number):
        if defined(function, x):
            check(function, x, calls=2)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e300, -1e-300, 0.5, -2.5, 3.5])


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_special_values(name: str) -> None:
    ufunc = getattr(np, name)
    for t in (np.float32, np.float64):
        with np.errstate(all="ignore"):
            x = SPECIAL.astype(t)
        y = np.roll(x, 5)
        args = (x,) if name in UNARY else (x, y)
        if defined(ufunc, *args):
            check(lambda *a: ufunc(*a), *args, calls=2)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "mean": np.mean,
    "std": np.std,
    "var": np.var,
    "max": np.max,
    "min": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "ptp": np.ptp,
    "any": lambda a, axis=0, **k: np.any(a, axis=axis, **k),
    "all": lambda a, axis=0, **k: np.all(a, axis=axis, **k),
    "count_nonzero": lambda a, axis=0: np.count_nonzero(a, axis=axis),
    "median": np.median,
    "nansum": np.nansum,
    "add.reduce": np.add.reduce,
    "maximum.reduce": np.maximum.reduce,
}


@pytest.mark.parametrize("name", list(REDUCTIONS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduction(name: str, dtype: str) -> None:
    function = REDUCTIONS[name]
    x = sample(dtype, (3, 4, 5))
    for options in ({}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)}):
        if defined(lambda a, o=options: function(a, **o), x):
            check(lambda a, o=options: function(a, **o), x, calls=2, breaks=None)


def test_reduction_options() -> None:
    x = sample("float32", (3, 4, 5))
    check(lambda a: a.sum(dtype=np.float64), x)
    check(lambda a: a.sum(axis=0, dtype="int64"), sample("int32", (3, 4)))
    check(lambda a: a.std(ddof=1, axis=1), x)
    check(lambda a: np.sum(a, where=a > 0.5), x)
    check(lambda a: np.sum(a, initial=3.0), x)
    check(lambda a: np.max(a, axis=0, initial=9.0), x)
    check(lambda a: np.mean(np.asfortranarray(a), axis=2), x)
    check(lambda a: a.sum(axis=1), np.asfortranarray(x))
    check(lambda a: a.max(axis=(0, 1)), x.transpose(2, 0, 1))
    check(lambda a: a.sum(axis=0), np.zeros((0, 3)))


INDICES = [
    "a[0]",
    "a[-1]",
    "a[1:3]",
    "a[::2, 1]",
    "a[..., 2]",
    "a[None, :, 1:]",
    "a[:, ::-1]",
    "a[2, 3, 1]",
    "a[()]",
    "a[...]",
    "a[:]",
    "a[idx]",
    "a[:, idx]",
    "a[idx, :, idx]",
    "a[0, :, idx]",
    "a[[0, 2]]",
    "a[idx[:, None], idx]",
    "a[5:1]",
    "a[-3:-1, ..., :2]",
    "a.T[1:]",
    "a[np.array(1)]",
    "a[1][2][3]",
    "np.take(a, idx, axis=1)",
]


@pytest.mark.parametrize("text", INDICES)
def test_index(text: str) -> None:
    function = eval(f"lambda a, idx: {text}", {"np": np})
    for dtype in ("float64", "int16"):
        check(function, sample(dtype, (4, 5, 6)), np.array([0, 3, 1, -1]), calls=2)
    plus = eval(f"lambda a, idx: {text} * 2 + 1", {"np": np})
    check(plus, sample("float32", (4, 5, 6)), np.array([0, 3, 1, -1]), calls=2)


WRITES = [
    "a[0] = 1",
    "a[1:3] = b[1:3]",
    "a[:, 1] += 2",
    "a[..., 0] = a[..., 1]",
    "a[1:] = a[:-1]",
    "a[a > 0.5] = 0",
    "a[idx] = 7",
    "a[idx] += 1",
    "a += b; a *= 2",
    "a -= a.mean()",
    "np.add(a, b, out=a)",
    "np.exp(a, out=b)",
    "a.fill(3)",
    "a.sort(axis=0)",
    "a[:, ::-1] = a",
    "v = a[1:]; v *= 2; a[0] = v[0]",
    "v = a.T; v += 1; a[0] = 0; b[...] = v.T",
    "a[1, 2] = a[0, 0] + 1",
    "np.copyto(a, b)",
    "a.T[0] = 5",
    "b[:] = np.where(a > 0.5, a, -a)",
    "a.reshape(-1)[3] = 9",
]


@pytest.mark.parametrize("text", WRITES)
def test_write(text: str) -> None:
    space: dict[str, Any] = {"np": np}
    exec(f"def f(a, b, idx):\n    {text}\n    return a * 2, b + a", space)
    for dtype in ("float64", "float32"):
        check(
            space["f"],
            sample(dtype, (4, 4)),
            sample(dtype, (4,)) * np.ones((4, 4), dtype),
            np.array([0, 2]),
            breaks=None,
        )


def test_write_to_shared_memory() -> None:
    import tatara

    def f(a, b):
        a += 1
        return b * 2

    compiled = tatara.compile(f)
    for _ in range(3):
        x, y = np.arange(6.0), np.arange(6.0)
        np.testing.assert_array_equal(f(x[1:], x[:-1]), compiled(y[1:], y[:-1]))
        np.testing.assert_array_equal(x, y)


def test_read_only() -> None:
    import tatara

    def f(a):
        a += 1
        return a

    compiled = tatara.compile(f)
    compiled(np.zeros(3))
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            compiled(fixed)


SHAPES = [
    "a.reshape(6, 20)",
    "a.reshape(2, -1, 3)",
    "np.reshape(a, (20, 6))",
    "a.T.reshape(-1)",
    "a.ravel()",
    "a.T.ravel()",
    "a.flatten()",
    "a.transpose(1, 2, 0)",
    "a.transpose()",
    "np.transpose(a, (0, 2, 1))",
    "a.swapaxes(0, 2)",
    "np.moveaxis(a, 0, -1)",
    "np.expand_dims(a, 1)",
    "a[:1].squeeze()",
    "np.squeeze(a[:, :1], axis=1)",
    "np.broadcast_to(a[0], (3, 5, 6))",
    "np.flip(a, 1)",
    "np.roll(a, 2, axis=1)",
    "np.concatenate([a, a * 2], axis=1)",
    "np.concatenate((a, a), axis=None)",
    "np.stack([a, a + 1])",
    "np.stack([a, a], axis=-1)",
    "np.vstack([a[0], a[1]])",
    "np.hstack([a[0], a[1]])",
    "np.split(a, 2)",
    "np.where(a > 0.5, a, 0)",
    "np.where(a > 0.5, 1, 0.5)",
    "np.clip(a, 0.2, 0.8)",
    "a.clip(min=0.5)",
    "np.clip(a, a[0], None)",
    "a.astype(np.float32)",
    "a.astype('int64')",
    "a.astype(bool)",
    "np.float32(a[0, 0, 0])",
    "a.copy()",
    "a.T.copy()",
    "np.copy(a.T)",
    "a.round()",
    "np.round(a, 2)",
    "np.zeros_like(a)",
    "np.ones_like(a, dtype=np.int8)",
    "np.full_like(a.T, 3)",
    "np.zeros(3) + a[0, 0, :3]",
    "np.ones((2, 3))",
    "np.full((2, 2), 7)",
    "np.arange(6) + a",
    "np.arange(0, 1, 0.25)",
    "np.linspace(0, 1, 6) * a",
    "np.eye(6) @ a[0].T",
    "np.array([a[0, 0], a[1, 1]])",
    "np.asarray(a)",
    "np.tril(a[0])",
    "np.diff(a, axis=1)",
    "np.dot(a[0], a[1].T)",
    "a[0] @ a[1].T + 1",
    "np.einsum('ijk,ijk->i', a, a)",
    "np.tensordot(a, a, axes=([1, 2], [1, 2]))",
    "np.outer(a[0, 0], a[0, 1])",
    "np.linalg.norm(a)",
    "np.linalg.norm(a[0], axis=1)",
    "np.linalg.solve(a[0, :, :5] + np.eye(5), a[0, :, 0])",
    "np.fft.fft(a)",
    "np.sort(a, axis=1)",
    "np.argsort(a[0], axis=-1)",
    "np.cross(a[..., :3], a[..., 3:])",
    "np.meshgrid(a[0, 0], a[0, :, 0])",
    "np.maximum(a, 0.5).sum()",
    "np.isclose(a, a)",
    "np.nan_to_num(a)",
    "np.gradient(a[0, 0])",
    "np.interp(a, np.arange(5.0), np.arange(5.0))",
    "np.exp(1j * a).real",
    "(a + 1j * a).imag * 2",
    "abs(a - 0.5)",
    "divmod(a, 0.3)",
    "a ** 2 + a ** 0.5 + a ** -1 + a ** 3",
    "2 ** a",
    "-a + +a",
    "(a > 0.5) & (a < 0.7) | ~(a > 0.2)",
    "a.any(axis=1)",
    "sum([a[0], a[1]])",
    "[row * 2 for row in a]",
    "[x + y for x, y in zip(a, a[::-1])]",
    "np.pad(a[0], 1)",
    "np.vectorize(lambda v: v * 2)(a[0])",
    "len(a) * a",
    "a * a.shape[0] + a.size",
    "np.median(a)",
    "np.trace(a[0])",
    "np.unique(a > 0.5)",
    "np.nonzero(a > 0.5)",
    "a[a > 0.5]",
    "a.tolist()",
    "a.mean().item()",
    "str(a[0, 0, 0])",
    "a[np.argmax(a[:, 0, 0])]",
    "(lambda x: x[0] + x[1])(a)",
    "{'x': a * 2, 'y': (a + 1, None)}",
    "np.add.accumulate(a)",
    "np.multiply.outer(a[0, 0], a[0, 1])",
    "np.convolve(a[0, 0], a[0, 1], mode='same')",
    "np.random.default_rng(0).normal(size=3) + a[0, 0, :3]",
    "np.ascontiguousarray(a.T)",
    "np.asfortranarray(a) * 2",
    "a.view(np.int64) + 1",
    "np.sinc(a)",
    "np.average(a, axis=0)",
    "np.atleast_2d(a[0, 0])",
    "np.tile(a[0], 2)",
    "np.repeat(a[0], 2, axis=0)",
    "np.hypot(a, 2) - np.arctan2(a, a + 1)",
]


@pytest.mark.parametrize("text", SHAPES)
def test_call(text: str) -> None:
    function = eval(f"lambda a: {text}", {"np": np})
    check(function, sample("float64", (4, 5, 6)), breaks=None)
