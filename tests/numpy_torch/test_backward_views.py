"""`wrap_numpy`: views that run backwards, which tensors do not have, and arrays by NumPy's constructor."""

from __future__ import annotations

import pytest
import torch

import numpy as np
import tatara


def constructed(a):
    x, y = np.ndarray((a.shape[0], 3), dtype=a.dtype), np.ndarray(shape=(3,))
    x[:] = a[:, :3]
    y[:] = a[0, :3]
    return x * 2, y + 1


def levinson(a):
    r = a[0]
    y = np.empty_like(r)
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k]))
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def part_of_one(a):
    part = a[::-1, ::-1][1:]
    twice = part * 2
    a += 1
    return twice, a[::-1][1:] * 3, np.flipud(a) - np.rot90(a)


def written_since(a):
    view = a[::-1]
    a[0] = 5.0
    return view * 1.0


def given_back(a):
    view = np.fliplr(a)
    a[0] = 5.0
    return view


def written_through(a):
    view = a[:, ::-1]
    view[0] = 3.0
    return a * 1.0


def a_buffers(a):
    return np.ndarray((2, 2), dtype=a.dtype, buffer=a) * 2


GRAPHS = [constructed, levinson, part_of_one]
REFUSED = [written_since, given_back, written_through, a_buffers]


@pytest.mark.parametrize("how", ["eager", "compiled", "arrays"])
@pytest.mark.parametrize("function", GRAPHS + REFUSED)
def test_values_are_numpys(function, how):
    wrapped = function if how == "arrays" else tatara.wrap_numpy(function)
    wrapped = wrapped if how == "eager" else tatara.compile(wrapped)
    rng = np.random.default_rng(0)
    for _ in range(3):
        theirs = rng.random((4, 4))
        mine = theirs.copy()
        result = wrapped(mine if how == "arrays" else torch.from_numpy(mine))
        expected = function(theirs)
        results = result if isinstance(result, tuple) else (result,)
        for one, other in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(np.asarray(one), other)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("function", GRAPHS)
def test_they_have_gradients(function):
    wrapped = tatara.wrap_numpy(function)
    x = torch.rand(4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: wrapped(x.clone()), (x,))


@pytest.mark.parametrize("function", REFUSED)
def test_where_a_copy_would_not_do_gradients_are_refused(function):
    x = torch.rand(4, 4, dtype=torch.float64, requires_grad=True)
    with pytest.raises(tatara.Unsupported):
        tatara.wrap_numpy(function)(x.clone())
