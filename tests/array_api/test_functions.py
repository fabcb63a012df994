"""Each function of `tatara.array_api` beside NumPy's, and compiled beside eager."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import rows
import torch
from rows import Row

import numpy as np
import tatara
import tatara.array_api as xp
import tatara.array_api.numpy as nx
from tatara.array_api import _names

# The standard leaves open which zero is larger, and which of two stands for both: NumPy's sort decides that by the processor.
SIGNS_OPEN = ("maximum", "minimum", "clip", "unique_all", "unique_counts", "unique_inverse", "unique_values")

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def as_numpys(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, torch.dtype):
        return np.dtype(str(value).removeprefix("torch."))
    return type(value)([as_numpys(each) for each in value]) if type(value) in (tuple, list) else value


def parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def assert_same_numbers(ours: Any, theirs: Any, signs: bool = True) -> None:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if ours.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, theirs)
        return
    single = ours.dtype.itemsize // (2 if ours.dtype.kind == "c" else 1) == 4
    np.testing.assert_allclose(ours, theirs, rtol=3e-5 if single else 1e-10, atol=1e-5 if single else 1e-12)
    if signs and ours.dtype.kind == "f":
        zeros = (ours == 0) & (theirs == 0)
        np.testing.assert_array_equal(np.signbit(ours)[zeros], np.signbit(theirs)[zeros])


def called(row: Row, function: Any, convert: Any = lambda value: value) -> Any:
    options = {name: convert(rows.given(value)) for name, value in row.options.items()}
    return function(*[convert(rows.given(each)) for each in row.args], **options)


def default_types(value: Any) -> Any:
    """NumPy's defaults are double precision, torch's single."""
    value = np.asarray(value)
    return value.astype({"f": np.float32, "c": np.complex64}.get(value.dtype.kind, value.dtype))


@pytest.mark.parametrize("row", rows.ALL, ids=lambda row: row.title)
def test_a_function_gives_what_numpy_gives(row: Row) -> None:
    ours = called(row, row.function(xp))
    theirs = called(row, row.function(nx), as_numpys)
    makes = row.name in _names.CREATION and not any(isinstance(each, rows.Of) for each in row.args)
    follows_default = makes or row.name.endswith("freq") or (row.name in ("mean", "divide") and "i" in row.args)
    assert len(parts(ours)) == len(parts(theirs))
    for one, other in zip(parts(ours), parts(theirs), strict=True):
        assert isinstance(one, torch.Tensor)
        if row.name == "unique_values":  # in any order
            other = np.sort(other)
        expected = default_types(other) if follows_default and "dtype" not in row.options else other
        assert_same_numbers(one, expected, signs=row.name not in SIGNS_OPEN)


@pytest.mark.parametrize("row", rows.ALL, ids=lambda row: row.title)
def test_a_compiled_function_gives_what_the_eager_one_gives(row: Row, fresh: None) -> None:
    function = row.function(xp)
    args = [rows.given(each) for each in row.args]
    options = {name: rows.given(value) for name, value in row.options.items()}

    def program(*args: Any) -> Any:
        return function(*args, **options)

    report = tatara.explain(program)(*args)
    sized_by_values = row in rows.SIZED_BY_VALUES
    assert [each.reason for each in report.breaks] == []
    assert len(report.graphs) <= (3 if sized_by_values else 1)
    compiled = tatara.compile(program)
    expected = program(*args)
    for _ in range(2):
        result = compiled(*args)
        assert type(result) is type(expected)
        for ours, theirs in zip(parts(result), parts(expected), strict=True):
            assert_same_numbers(ours, theirs, signs=row.name not in SIGNS_OPEN)


@pytest.mark.parametrize("row", rows.ONE_GRAPH, ids=lambda row: row.title)
def test_results_are_on_the_device_of_the_operands(row: Row) -> None:
    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to("meta")
        return type(value)([moved(each) for each in value]) if type(value) in (tuple, list) else value

    # A device of its own: whatever a function makes elsewhere is an error.
    creates = row.name in _names.CREATION + ("fftfreq", "rfftfreq") and not any(
        isinstance(each, rows.Of) for each in row.args
    )
    row = row._replace(options={**row.options, "device": "meta"}) if creates else row
    expected = called(row, row.function(xp), lambda value: "cpu" if value == "meta" else value)
    result = called(row, row.function(xp), moved)
    for one, other in zip(parts(result), parts(expected), strict=True):
        assert (one.device.type, one.dtype, one.shape) == ("meta", other.dtype, other.shape)


def test_the_rows_have_every_function() -> None:
    named = {row.name for row in rows.ALL if not row.extension}
    wanted = {
        *_names.CREATION,
        *_names.ELEMENTWISE,
        *_names.STATISTICAL,
        *_names.MANIPULATION,
        *_names.SEARCHING,
        *_names.LINEAR,
    }
    assert wanted - named == {"empty", "empty_like", "from_dlpack", "broadcast_shapes"}
    # Signs of vectors, and their order, are free: these have tests of their own.
    assert {*_names.LINALG} - {row.name for row in rows.ALL if row.extension == "linalg"} == {
        "eig",
        "eigh",
        "eigvals",
        "qr",
        "svd",
    }
    assert {*_names.FFT} <= {row.name for row in rows.ALL if row.extension == "fft"}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    "name", rows._FLOAT_UNARY.split() + "acos acosh asin atanh log log1p log2 log10 sqrt sign square abs".split()
)
def test_special_values_of_complex_functions_are_those_of_numpy_one_by_one_and_together(
    name: str, dtype: torch.dtype
) -> None:
    if name == "reciprocal":
        pytest.skip("the standard leaves its zeros and infinities open")
    values = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1000.0, -1000.0, float("inf"), float("-inf"), float("nan")]
    x = torch.tensor([complex(real, imag) for real in values for imag in values], dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(getattr(nx, name)(x.numpy()))
    function = getattr(xp, name)
    together = function(x)
    alone = torch.stack([function(each) for each in x])
    for result in (together, alone):
        assert_same_parts(result.numpy(), expected, x)


def assert_same_parts(ours: Any, theirs: Any, x: torch.Tensor) -> None:
    pairs = [(ours.real, theirs.real), (ours.imag, theirs.imag)] if np.iscomplexobj(theirs) else [(ours, theirs)]
    for one, other in pairs:
        same = np.isclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
        signs = (
            (np.signbit(one) == np.signbit(other))
            | np.isnan(one)
            | ~np.isfinite(x.numpy().real)
            | ~np.isfinite(x.numpy().imag)
        )
        assert np.all(same & signs), [(x[i], ours[i], theirs[i]) for i in np.flatnonzero(~(same & signs))]


def test_decompositions_put_together_are_the_matrix(fresh: None) -> None:
    m, square = rows.operand("m"), rows.operand("sq")
    for run in (lambda function: function, tatara.compile):
        result = run(lambda x: xp.linalg.eigh(x))(m)
        torch.testing.assert_close(
            result.eigenvectors @ torch.diag_embed(result.eigenvalues) @ result.eigenvectors.mT, m
        )
        result = run(lambda x: xp.linalg.eig(x))(square)
        whole = square.to(torch.complex128)
        torch.testing.assert_close(whole @ result.eigenvectors, result.eigenvectors * result.eigenvalues.unsqueeze(-2))
        torch.testing.assert_close(run(lambda x: xp.linalg.eigvals(x))(square).sum(-1).real, xp.linalg.trace(square))
        result = run(lambda x: xp.linalg.qr(x))(square)
        torch.testing.assert_close(result.Q @ result.R, square)
        result = run(lambda x: xp.linalg.svd(x))(square)
        torch.testing.assert_close(result.U @ torch.diag_embed(result.S) @ result.Vh, square)


def test_functions_of_shapes_and_types() -> None:
    assert xp.broadcast_shapes((3, 1), (4,)) == (3, 4)
    assert xp.empty((2, 3)).shape == (2, 3) and xp.empty_like(xp.zeros(2, dtype=xp.uint8)).dtype is xp.uint8
    assert xp.result_type(xp.uint8, xp.int8) is xp.int16
    assert xp.result_type(xp.float32, xp.asarray(1.0, dtype=xp.float64)) is xp.float64
    assert xp.result_type(xp.ones(2), 1j) is xp.complex64 and xp.result_type(xp.zeros(1, dtype=xp.int8), 300) is xp.int8
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(xp.int64, xp.int32)
    assert (
        xp.isdtype(xp.uint16, "integral")
        and xp.isdtype(xp.bool, ("bool", xp.int8))
        and not xp.isdtype(xp.bool, "numeric")
    )
    assert xp.finfo(xp.complex64).dtype is xp.float32 and xp.iinfo(xp.uint64).max == 2**64 - 1
    info = xp.__array_namespace_info__()
    assert set(info.dtypes()) == set(_names.DATA_TYPES) and torch.device("cpu") in info.devices()
    assert info.default_dtypes()["real floating"] is xp.float32


def test_an_array_without_dimensions_promotes_like_any_other() -> None:
    # torch alone lets it follow the other operand.
    assert xp.add(xp.ones(3), xp.asarray(1.0, dtype=xp.float64)).dtype is xp.float64
    assert tatara.compile(xp.add)(xp.ones(3), xp.asarray(1.0, dtype=xp.float64)).dtype is xp.float64


def test_numpy_arrays_give_numpy_arrays() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert type(xp.sum(x, axis=0)) is np.ndarray
    assert type(xp.concat([x, x])) is np.ndarray
    assert xp.astype(x, xp.int32).dtype == np.int32
    assert type(xp.linalg.svd(x).S) is np.ndarray
    assert type(xp.asarray(x)) is torch.Tensor


def test_numpy_arrays_are_compiled_as_well(fresh: None) -> None:
    def program(x: Any) -> Any:
        return xp.sum((x - xp.mean(x, axis=0)) / xp.std(x, axis=0) + xp.remainder(x, 2), axis=-1)

    x = np.random.default_rng(0).standard_normal((5, 3))
    report = tatara.explain(program)(x)
    assert len(report.graphs) == 1 and not report.breaks
    np.testing.assert_allclose(tatara.compile(program)(x), program(x), rtol=1e-12)
    torch.testing.assert_close(torch.from_numpy(program(x)), program(torch.from_numpy(x)))


def test_compiled_linspace_has_the_bits_of_the_eager_one_with_and_without_its_end(fresh: None) -> None:
    compiled = tatara.compile(xp.linspace)
    for start, stop, num in (
        (0.1, 0.7, 335),
        (195560095088640.0, -5.197410791849984e16, 335),
        (-3.0, 1e-3, 50),
        (0.1, 0.7, 335),
    ):
        whole = xp.linspace(start, stop, num + 1)
        assert whole[0] == torch.tensor(start) and whole[-1] == torch.tensor(stop)
        assert torch.equal(compiled(start, stop, num + 1), whole)
        assert torch.equal(compiled(start, stop, num, endpoint=False), whole[:-1])


def test_asarray_shares_memory_where_it_may() -> None:
    x = torch.ones(3, requires_grad=True)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True).requires_grad and xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    array = np.ones(3)
    assert xp.asarray(array).data_ptr() == array.ctypes.data == xp.from_dlpack(array).data_ptr()
    assert xp.astype(x, xp.float32, copy=False) is x


BAD = {
    "add(i, v64)": (lambda: xp.add(xp.ones(1, dtype=xp.int64), xp.ones(1, dtype=xp.uint64)), TypeError),
    "add(x, None)": (lambda: xp.add(xp.ones(1), None), TypeError),
    "add(x, list)": (lambda: xp.add(xp.ones(1), [1]), TypeError),
    "sin(i)": (lambda: xp.sin(xp.arange(3)), TypeError),
    "asarray(copy=False)": (lambda: xp.asarray([1], copy=False), ValueError),
    "asarray(dtype, copy=False)": (lambda: xp.asarray(xp.ones(1), dtype=xp.int8, copy=False), ValueError),
    "squeeze": (lambda: xp.squeeze(xp.ones((2, 1)), 0), ValueError),
    "squeeze axis": (lambda: xp.squeeze(xp.ones((2, 1)), 5), IndexError),
    "sum axis": (lambda: xp.sum(xp.ones((2, 1)), axis=2), IndexError),
    "reshape": (lambda: xp.reshape(xp.ones((2, 3)).T, (6,), copy=False), ValueError),
    "nonzero": (lambda: xp.nonzero(xp.asarray(1)), ValueError),
    "take": (lambda: xp.take(xp.ones((2, 2)), xp.arange(2)), ValueError),
    "cumulative_sum": (lambda: xp.cumulative_sum(xp.ones((2, 2))), ValueError),
    "broadcast_shapes": (lambda: xp.broadcast_shapes((2,), (3,)), ValueError),
    "concat": (lambda: xp.concat([xp.ones(0), xp.ones((2, 2))]), ValueError),
    "max of nothing": (lambda: xp.max(xp.ones(0)), (IndexError, RuntimeError)),
    "isdtype": (lambda: xp.isdtype(xp.int8, "whole"), ValueError),
    "iinfo": (lambda: xp.iinfo(xp.float32), TypeError),
    "vecdot": (lambda: xp.vecdot(xp.ones(3), xp.ones(1)), ValueError),
    "outer": (lambda: xp.linalg.outer(xp.ones((2, 2)), xp.ones(2)), ValueError),
    "tensordot": (lambda: xp.tensordot(xp.ones((2, 3)), xp.ones((2, 3)), axes=1), ValueError),
    "fftfreq": (lambda: xp.fft.fftfreq(4, dtype=xp.int64), ValueError),
    "searchsorted": (lambda: xp.searchsorted(xp.ones(3), 1.0, side="middle"), ValueError),
    "qr": (lambda: xp.linalg.qr(xp.ones((2, 2)), mode="raw"), ValueError),
    "expand_dims": (lambda: xp.expand_dims(xp.ones(2), (0, 0)), ValueError),
    "no such name": (lambda: xp.hstack, AttributeError),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_error(name: str, fresh: None) -> None:
    program, kind = BAD[name]
    with pytest.raises(kind) as eager:
        program()
    with pytest.raises(kind) as compiled:
        tatara.compile(program)()
    assert str(compiled.value) == str(eager.value)


def test_signatures_are_the_standards() -> None:
    assert str(inspect.signature(xp.sum)).split(" ->")[0].count("*") == 1
    with pytest.raises(TypeError):
        xp.sum(xp.ones(2), 0)
    with pytest.raises(TypeError):
        xp.add(x1=xp.ones(2), x2=1)
