"""NumPy functions on tensors of a GPU: in kernels where they are captured, by NumPy on copies where they are not."""

from __future__ import annotations

import warnings

import pytest
import torch

import numpy as np
import tatara

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def heat(steps, a, b):
    for _ in range(steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


def scaled_product(alpha, c, a, b):
    c *= alpha
    c += np.outer(a, b) @ np.eye(c.shape[1])
    return c.sum(axis=0), np.zeros(3)


def substitution(matrix, x, b):
    for i in range(x.shape[0]):
        x[i] = (b[i] - matrix[i, :i] @ x[:i]) / matrix[i, i]
    return x


def branches(x):
    return (np.sqrt(x) if x.min() > 0 else np.abs(x)), x


RNG = np.random.default_rng(0)
LONG = 1500
PROGRAMS = {
    "heat": (heat, lambda: (8, RNG.random((50, 60)), RNG.random((50, 60))), False),
    "numbers beside": (
        scaled_product,
        lambda: (np.float64(1.5), RNG.random((5, 7)), RNG.random(5), RNG.random(7)),
        False,
    ),
    "a long loop": (
        substitution,
        lambda: (np.tril(RNG.random((LONG, LONG))) + LONG * np.eye(LONG), np.zeros(LONG), RNG.random(LONG)),
        True,
    ),
    "a branch": (branches, lambda: (RNG.standard_normal(9),), True),
}


def leaves(value):
    if isinstance(value, tuple | list):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None else [value]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_writes_are_numpys(name, compiled):
    function, make, by_numpy = PROGRAMS[name]
    wrapped = tatara.wrap_numpy(function)
    wrapped = tatara.compile(wrapped) if compiled else wrapped
    said = []
    for _ in range(3):
        given = make()
        tensors = [torch.from_numpy(each).cuda() if isinstance(each, np.ndarray) else each for each in given]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = leaves(wrapped(*tensors))
        said += [str(each.message) for each in caught]
        expected = leaves(function(*given))
        assert len(result) == len(expected)
        pairs = [*zip(result, expected, strict=True), *zip(tensors, given, strict=True)]
        for mine, theirs in pairs:
            if isinstance(mine, torch.Tensor):
                assert mine.is_cuda
                np.testing.assert_allclose(mine.cpu().numpy(), theirs, rtol=1e-9, atol=1e-12)
    assert any("runs by NumPy on the CPU" in each for each in said) == by_numpy


def test_where_gradients_are_wanted_copies_would_not_do():
    x = torch.rand(9, dtype=torch.float64, device="cuda", requires_grad=True)
    with pytest.raises(tatara.Unsupported, match="NumPy bool"):
        tatara.wrap_numpy(branches)(x)


def test_what_was_not_written_keeps_its_version():
    x = torch.rand(9, dtype=torch.float64, device="cuda")
    x[2] = float("nan")
    version = x._version
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tatara.wrap_numpy(branches)(x)
    assert x._version == version


def writes_then_raises(x):
    x[0] = 7.0
    if x[0] == 7.0:
        raise ValueError("as asked")


def test_what_was_written_before_an_error_stays():
    x = torch.zeros(3, dtype=torch.float64, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="as asked"):
            tatara.wrap_numpy(writes_then_raises)(x)
    assert x.tolist() == [7.0, 0.0, 0.0]


def test_copies_of_shared_memory_are_refused():
    x = torch.rand(9, dtype=torch.float64, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(tatara.Unsupported, match="share memory"):
            tatara.wrap_numpy(lambda a, b: branches(a) + branches(b))(x[:6], x[3:])


def host_calls(model, x):
    compiled = tatara.compile(model)
    for _ in range(3):
        result = compiled(x)
    torch.testing.assert_close(result, model(x))
    before = tatara.stats()
    compiled(x)
    after = tatara.stats()
    return after["host_calls"] - before["host_calls"], after["kernels_launched"] - before["kernels_launched"]


def test_a_linear_layer_is_one_call_of_the_host():
    with torch.no_grad():
        model, x = torch.nn.Linear(64, 48).cuda(), torch.rand(3, 5, 64, device="cuda")
        assert host_calls(model, x) == (1, 0)
        calls, kernels = host_calls(torch.nn.Sequential(model, torch.nn.ReLU()), x)
        assert (calls, kernels) == (1, 1)
