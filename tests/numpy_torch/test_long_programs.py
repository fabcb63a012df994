"""`wrap_numpy` of functions whose calls no graph holds, or that take what few functions take."""

from __future__ import annotations

import warnings

import pytest
import torch

import numpy as np
import tatara

TURNS = 1500  # of some calls each: more than a graph may have


def trace_of_tanh(a):
    total = 0.0
    for i in range(a.shape[0]):
        total += np.tanh(a[i, i])
    return a + total


def forward_substitution(matrix, x, b):
    for i in range(x.shape[0]):
        x[i] = (b[i] - matrix[i, :i] @ x[:i]) / matrix[i, i]


def in_a_helper(a):
    out = np.zeros(a.shape[0])
    for i in range(a.shape[0]):
        out[i] = np.sqrt(a[i, 0]) * np.tanh(a[i, 1])
    return np.sum(out) + helper(a)


def helper(a):
    total = 0.0
    for row in a:
        total += row[0] * row[1]
    return total


def arguments(function):
    rng = np.random.default_rng(0)
    matrix = np.tril(rng.random((TURNS, TURNS))) + np.eye(TURNS) * TURNS
    if function is forward_substitution:
        return matrix, np.zeros(TURNS), rng.random(TURNS)
    return (matrix,)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("function", [trace_of_tanh, forward_substitution, in_a_helper])
def test_a_loop_too_long_for_a_graph_is_computed_from_the_tensors(function, compiled):
    wrapped = tatara.wrap_numpy(function)
    wrapped = tatara.compile(wrapped) if compiled else wrapped
    for _ in range(4):
        given = arguments(function)
        tensors = [torch.from_numpy(each.copy()) for each in given]
        result, expected = wrapped(*tensors), function(*given)
        for tensor, array in zip(tensors, given, strict=True):
            np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-12)
        if expected is not None:
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12)


def test_gradients_through_such_a_loop_are_refused_with_the_line():
    x = torch.rand(TURNS, TURNS, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        with pytest.raises(tatara.Unsupported, match=r"too many operations.*test_long_programs.py"):
            tatara.wrap_numpy(trace_of_tanh)(x)


def test_what_cannot_be_captured_is_not_captured_again_in_each_call():
    def branches(a):
        return a * 2 if a.sum() > 0 else a - 1

    wrapped = tatara.wrap_numpy(branches)
    x = torch.rand(8, dtype=torch.float64)
    for _ in range(4):
        wrapped(x), wrapped(-x)
    before = tatara.stats()
    for _ in range(5):
        assert torch.equal(wrapped(x), x * 2)
        assert torch.equal(wrapped(-x), -x - 1)
    after = tatara.stats()
    assert after["breaks"] == before["breaks"] and after["graphs"] == before["graphs"]


def test_a_report_says_why_numpy_runs():
    wrapped = tatara.wrap_numpy(trace_of_tanh)
    x = torch.from_numpy(arguments(trace_of_tanh)[0])
    report = tatara.explain(lambda x: wrapped(x * 2) + 1)(x)
    (why,) = [each.reason for each in report.breaks]
    assert why.startswith("wrap_numpy: trace_of_tanh runs by NumPy: a loop of too many operations in all (")
    assert "test_long_programs.py" in why


def twelve(a, b, c, d, e, f, g, h, i, j, k, l):  # noqa: E741
    return (a @ b) @ c + d * e - f + g / (1 + h * h) + i * j, (k - l).sum(), np.outer(d, l)


@pytest.mark.parametrize("compiled", [False, True])
def test_operands_keep_their_order_however_many_there_are(compiled):
    rng = np.random.default_rng(1)
    given = [rng.random((5, 6)), rng.random((6, 5)), *(rng.random(5) for _ in range(10))]
    wrapped = tatara.wrap_numpy(twelve)
    wrapped = tatara.compile(wrapped) if compiled else wrapped
    for _ in range(3):
        for mine, theirs in zip(wrapped(*map(torch.from_numpy, given)), twelve(*given), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
@pytest.mark.parametrize("compiled", [False, True])
def test_wide_unsigned_tensors_are_numpys(dtype, compiled):
    def function(x, y):
        return x + y, x > y, x.astype(np.float64) * 2, x[1:], np.sum(x)

    wrapped = tatara.wrap_numpy(function)
    wrapped = tatara.compile(wrapped) if compiled else wrapped
    x, y = torch.tensor([1, 2, 3]).to(dtype), torch.tensor([3, 2, 1]).to(dtype)
    for _ in range(3):
        for mine, theirs in zip(wrapped(x, y), function(x.numpy(), y.numpy()), strict=True):
            assert mine.numpy().dtype == np.asarray(theirs).dtype
            np.testing.assert_array_equal(mine.numpy(), theirs)


def add_into(a, b, c):
    a += b * c
    b -= a
    return a.sum()


def test_arguments_that_share_memory_are_asked_about_in_compiled_code():
    """One graph while they lie apart; where they share memory NumPy's own order of reads and writes."""
    wrapped = tatara.compile(tatara.wrap_numpy(add_into))
    base = np.arange(12.0)
    for _ in range(3):
        given = [base[:4].copy(), base[4:8].copy(), base[8:].copy()]
        tensors = [torch.from_numpy(each.copy()) for each in given]
        assert wrapped(*tensors).item() == add_into(*given)
        for tensor, array in zip(tensors, given, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array)
    report = tatara.explain(wrapped)(*[torch.from_numpy(each) for each in given])
    assert not report.breaks and len(report.graphs) >= 1
    for places in ((0, 1, 2), (0, 2, 2), (0, 4, 6)):
        mine, theirs = torch.from_numpy(base.copy()), base.copy()
        result = wrapped(*[mine[place : place + 4] for place in places])
        assert result.item() == add_into(*[theirs[place : place + 4] for place in places])
        np.testing.assert_array_equal(mine.numpy(), theirs)


def test_tensors_that_a_graph_makes_are_apart():
    def program(x, y):
        a, b = x * 1.0, y + 0.0
        return tatara.wrap_numpy(add_into)(a, b, y), a, b

    compiled = tatara.compile(program)
    x, y = torch.rand(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    for _ in range(3):
        a, b = x.numpy().copy(), y.numpy().copy()
        total, mine, other = compiled(x, y)
        assert total.item() == pytest.approx(add_into(a, b, y.numpy()))
        np.testing.assert_allclose(mine.numpy(), a)
        np.testing.assert_allclose(other.numpy(), b)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x, y)
