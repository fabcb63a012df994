"""tatara.grad and its kin on NumPy functions and arrays."""

from __future__ import annotations

from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def differences(function: Any, x: np.ndarray[Any, Any], step: float = 1e-6) -> np.ndarray[Any, Any]:
    moved = [(function(x + step * unit) - function(x - step * unit)) / (2 * step) for unit in np.eye(x.size)]
    return np.stack(moved, axis=-1)


X = np.array([0.3, 0.8, 1.1, 0.5])


def test_gradients_of_functions_of_arrays_are_arrays() -> None:
    gradient = tatara.grad(rosenbrock)(X)
    assert type(gradient) is np.ndarray and gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, differences(rosenbrock, X), rtol=1e-6)
    value, again = tatara.value_and_grad(rosenbrock)(X)
    assert type(value) is np.float64
    np.testing.assert_allclose(value, rosenbrock(X))
    np.testing.assert_array_equal(again, gradient)


def test_gradients_by_several_arguments_and_of_python_numbers() -> None:
    def energy(x: Any, k: Any, name: str = "") -> Any:
        return np.sum(k * x**2) / 2

    by_x, by_k = tatara.grad(energy, argnums=(0, 1))(X, 3.0, name="spring")
    np.testing.assert_allclose(by_x, 3.0 * X)
    np.testing.assert_allclose(by_k, np.sum(X**2) / 2)
    np.testing.assert_allclose(tatara.grad(lambda x: x**3 + np.sin(x))(2.0), 12 + np.cos(2.0))


def test_what_comes_beside_the_value_is_handed_on() -> None:
    gradient, parts = tatara.grad(lambda x: (np.sum(x**2), {"twice": x * 2}), has_aux=True)(X)
    np.testing.assert_allclose(gradient, 2 * X)
    np.testing.assert_allclose(parts["twice"], 2 * X)


def test_jacobians_and_hessians() -> None:
    def field(x: Any) -> Any:
        return np.array([x[0] * x[1], np.sin(x[2]), x[3] ** 2 + x[0]])

    np.testing.assert_allclose(tatara.jacobian(field)(X), differences(field, X), rtol=1e-6, atol=1e-9)
    expected = differences(tatara.grad(rosenbrock), X)
    np.testing.assert_allclose(tatara.hessian(rosenbrock)(X), expected, rtol=1e-6, atol=1e-6)


def test_batches_and_derivatives_along_a_direction() -> None:
    batch = np.stack([X, X * 2, X / 2])
    np.testing.assert_allclose(tatara.vmap(rosenbrock)(batch), [rosenbrock(row) for row in batch])
    scaled = tatara.vmap(lambda x, k: x * k, in_dims=(1, None), out_dims=1)(batch, 3.0)
    np.testing.assert_allclose(scaled, batch * 3)
    value, moved = tatara.jvp(rosenbrock, (X,), (np.ones(4),))
    np.testing.assert_allclose([value, moved], [rosenbrock(X), differences(rosenbrock, X).sum()], rtol=1e-6)


def test_tensors_go_to_torchs_own_transforms() -> None:
    x = torch.from_numpy(X)
    result = tatara.grad(lambda t: torch.sum(t**2))(x)
    torch.testing.assert_close(result, 2 * x)
    torch.testing.assert_close(tatara.vmap(torch.sin)(x), torch.sin(x))
    torch.testing.assert_close(tatara.jacobian(torch.sin)(x), torch.diag(torch.cos(x)))


def test_later_calls_compile_nothing() -> None:
    gradient = tatara.grad(rosenbrock)
    gradient(X)
    with counts() as grown:
        for k in range(3):
            np.testing.assert_allclose(gradient(X * k), differences(rosenbrock, X * k), rtol=1e-5, atol=1e-5)
    assert grown["graphs"] == 0 and grown["breaks"] == 0 and grown["recompiles"] == 0


def test_arrays_that_torch_cannot_share_are_copied() -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_allclose(tatara.grad(rosenbrock)(frozen), tatara.grad(rosenbrock)(X))
    np.testing.assert_allclose(tatara.grad(rosenbrock)(X[::-1]), tatara.grad(rosenbrock)(X[::-1].copy()))
    with pytest.raises(tatara.InvalidArgument, match="no element type"):
        tatara.vmap(lambda x: x)(np.array(["a", "b"]))
