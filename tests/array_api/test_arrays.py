"""`tatara.array_api.arrays`: objects with the standard's operators around tensors."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

import numpy as np
import tatara
import tatara.array_api as xp
import tatara.array_api.arrays as ap
from tatara.array_api.arrays import Array

NAMES = "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift eq ne lt le gt ge matmul"


def numbers(dtype: torch.dtype) -> tuple[Array, np.ndarray[Any, Any]]:
    x = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]]).to(dtype)
    return Array(x), x.numpy()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint16, torch.uint64, torch.float32], ids=str)
@pytest.mark.parametrize("name", NAMES.split())
def test_operators_are_numpys_with_arrays_and_numbers_on_either_side(name: str, dtype: torch.dtype) -> None:
    if dtype is torch.float32 and name in ("and_", "or_", "xor", "lshift", "rshift"):
        with pytest.raises(Exception):
            getattr(operator, name)(numbers(dtype)[0], 1)
        return
    function = getattr(operator, name)
    one, theirs = numbers(dtype)
    other = Array(torch.tensor([2, 1, 3]).to(dtype))
    results = [(function(one, other), function(theirs, other.tensor.numpy()))]
    if name != "matmul":
        results += [(function(one, 2), function(theirs, 2)), (function(2, one), function(theirs.dtype.type(2), theirs))]
    for ours, expected in results:
        assert isinstance(ours, Array)
        found = ours.tensor.numpy()
        if name == "truediv":
            expected = expected.astype(np.float32)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["iadd", "isub", "imul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"]
)
@pytest.mark.parametrize("dtype", [torch.int16, torch.uint32], ids=str)
def test_operators_in_place_write_to_the_array_and_its_views(name: str, dtype: torch.dtype) -> None:
    one, theirs = numbers(dtype)
    theirs = theirs.copy()
    row = one[0, ...]
    same = getattr(operator, name)(one, 2)
    expected = getattr(operator, name)(theirs, 2)
    assert same is one
    np.testing.assert_array_equal(one.tensor.numpy(), expected)
    np.testing.assert_array_equal(row.tensor.numpy(), expected[0])


def test_operators_in_place_keep_type_and_shape() -> None:
    x = ap.ones(3, dtype=ap.int8)
    with pytest.raises(TypeError):
        x += ap.ones(3)
    with pytest.raises(ValueError):
        x += ap.ones((2, 3), dtype=ap.int8)
    with pytest.raises(TypeError):
        x + "1"
    with pytest.raises(TypeError):
        hash(x)


KEYS: list[Any] = [
    0, -1, slice(None, None, -1), slice(3, 0, -2), (slice(None), slice(None, None, -2)), (..., slice(None, None, -1)), (None, slice(None, None, -1)),
    (slice(None, None, -1), None, 1), (slice(0, 0, -1),), (0, slice(None, None, -1), slice(3, None, -1)), ..., (), (slice(-1, -100, -3), ..., 0),
    (slice(1, 3), slice(None), slice(None, None, -1)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint16], ids=str)
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_slices_may_go_backwards(key: Any, dtype: torch.dtype) -> None:
    values = torch.arange(60).reshape(3, 4, 5).to(dtype)
    ours, theirs = Array(values), values.numpy().copy()
    np.testing.assert_array_equal(ours[key].tensor.numpy(), theirs[key])
    values = values.clone()
    ours = Array(values)
    number = np.arange(theirs[key].size).reshape(theirs[key].shape).astype(theirs.dtype)
    ours[key] = Array(torch.from_numpy(number))
    theirs[key] = number
    np.testing.assert_array_equal(values.numpy(), theirs)
    ours[key] = 7
    theirs[key] = 7
    np.testing.assert_array_equal(values.numpy(), theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint64], ids=str)
def test_masks_and_integer_arrays_are_keys(dtype: torch.dtype) -> None:
    values = torch.arange(12).reshape(3, 4).to(dtype)
    theirs = values.numpy().copy()
    ours = Array(values.clone())
    mask = ours > 5
    np.testing.assert_array_equal(ours[mask].tensor.numpy(), theirs[theirs > 5])
    places = ap.asarray([0, -1], dtype=ap.int8)
    np.testing.assert_array_equal(ours[places, ::-1].tensor.numpy(), theirs[[0, -1], ::-1])
    ours[mask] = 3
    theirs[theirs > 5] = 3
    np.testing.assert_array_equal(ours.tensor.numpy(), theirs)


def test_a_mask_without_elements_chooses_none() -> None:
    x = ap.ones((2, 3))
    assert x[ap.zeros(0, dtype=ap.bool)].shape == (0, 3) and x[ap.zeros((2, 0), dtype=ap.bool)].shape == (0,)
    assert x[..., ap.zeros(0, dtype=ap.bool)].shape == (2, 0)
    with pytest.raises(IndexError):
        x[ap.zeros((3, 0), dtype=ap.bool)]
    with pytest.raises(IndexError):
        ap.asarray(1)[ap.zeros(0, dtype=ap.bool)]


def test_numbers_come_out_of_arrays_of_one_element() -> None:
    assert int(ap.asarray(2**64 - 1, dtype=ap.uint64)) == 2**64 - 1
    assert float(ap.asarray(2.5)) == 2.5 and complex(ap.asarray(1j)) == 1j and bool(ap.asarray(True))
    assert [1, 2, 3][ap.asarray(1)] == 2
    with pytest.raises(TypeError):
        operator.index(ap.asarray(1.0))


def test_attributes_are_the_standards() -> None:
    x = ap.ones((2, 3))
    assert (x.shape, x.size, x.ndim, x.dtype, x.device) == ((2, 3), 6, 2, ap.float32, torch.device("cpu"))
    assert x.T.shape == x.mT.shape == (3, 2) and len(x) == 2 and [each.shape for each in x] == [(3,), (3,)]
    with pytest.raises(ValueError):
        ap.ones((2, 3, 4)).T
    assert x.__array_namespace__() is ap and x.__array_namespace__(api_version="2022.12") is ap
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="2030.12")
    assert x.to_device("cpu").device == x.device and repr(ap.asarray([1, 2])) == "Array([1, 2])"


def test_dlpack_shares_memory_both_ways() -> None:
    x = ap.ones(3)
    array = np.from_dlpack(x)
    assert array.ctypes.data == x.tensor.data_ptr() == np.asarray(x).ctypes.data
    assert ap.from_dlpack(np.ones(3)).dtype is ap.float64


def test_functions_give_arrays_and_named_tuples_of_arrays() -> None:
    x = ap.asarray([[2.0, 0.0], [0.0, 3.0]])
    assert isinstance(ap.concat([x, x]), Array) and isinstance(ap.where(x > 1, x, 0.0), Array)
    result = ap.linalg.eigh(x)
    assert isinstance(result.eigenvalues, Array) and type(result).__name__ == "EighResult"
    assert all(isinstance(each, Array) for each in ap.meshgrid(x[0, :], x[1, :]))
    assert isinstance(xp.add(x.tensor, 1), torch.Tensor)


def test_a_program_of_arrays_is_one_graph_with_gradients(fresh: None) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        a = Array(x)
        b = (a[::-1, ...] - ap.mean(a, axis=0)) ** 2 % 3.0
        c = ap.sum(ap.where(b > 1, b, 2 * b), axis=-1)
        return (c // 1 + c).tensor

    x = torch.randn(5, 4, requires_grad=True)
    expected = program(x)
    (wanted,) = torch.autograd.grad(expected.sum(), x)
    report = tatara.explain(program)(x)
    assert len(report.graphs) == 1 and not report.breaks
    result = tatara.compile(program)(x)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], wanted)


def test_arrays_go_into_compiled_code_and_out_of_it(fresh: None) -> None:
    def program(a: Array, b: Array) -> tuple[Array, Array]:
        return a * b + 1, ap.max(a, axis=0)

    a, b = ap.asarray([[1.0, 2.0], [3.0, 4.0]]), ap.asarray([[5.0, 6.0], [7.0, 8.0]])
    report = tatara.explain(program)(a, b)
    assert len(report.graphs) == 1 and not report.breaks
    compiled = tatara.compile(program)
    for _ in range(2):
        for ours, theirs in zip(compiled(a, b), program(a, b), strict=True):
            assert type(ours) is Array
            torch.testing.assert_close(ours.tensor, theirs.tensor)
