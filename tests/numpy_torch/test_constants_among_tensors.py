"""NumPy's calls on constants among torch calls: no break, and eager's results, memory and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def compare(program: Callable[..., Any], breaks: int | None, *more: Any) -> None:
    compiled = tatara.compile(program)
    for seed in range(3):
        results = []
        for function in (program, compiled):
            np.random.seed(seed)
            x = torch.arange(4.0, requires_grad=True) + seed
            results.append(function(x, *more))
        expected, actual = (each if isinstance(each, tuple) else (each,) for each in results)
        assert len(actual) == len(expected)
        for want, got in zip(expected, actual, strict=True):
            assert type(got) is type(want) and got.dtype == want.dtype
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(got, want)
                assert got.requires_grad == want.requires_grad
            else:
                np.testing.assert_array_equal(got, want)
                assert not isinstance(want, np.ndarray) or got.strides == want.strides
    if breaks is not None:
        assert tatara.stats()["breaks"] == breaks


def test_a_tensor_of_an_array_of_constants() -> None:
    def program(x: Any) -> Any:
        y = torch.relu(x)
        window = np.hanning(4)
        window[1] = 7.0
        return y * torch.tensor(window, dtype=torch.float32) + torch.tensor(window * 2)

    compare(program, 0)


def test_what_shares_memory_with_an_array() -> None:
    def program(x: Any) -> Any:
        y = x + 1
        return y * torch.from_numpy(np.arange(4.0)) + torch.as_tensor(np.tri(4)[1].copy())

    compare(program, None)


def test_what_shares_memory_with_an_array_of_the_program() -> None:
    def program(x: Any) -> Any:
        y = x + 1
        steps = np.arange(4.0)
        shared = torch.from_numpy(steps)
        steps[0] = 9.0
        return y * shared, steps, shared

    compare(program, None)


def test_each_result_is_the_callers_own() -> None:
    def program(x: Any) -> Any:
        y = x + 1
        return y, torch.tensor(np.ones(4)), np.ones((2, 3)).T.copy("F"), np.arange(3)

    compiled = tatara.compile(program)
    compare(program, 0)
    for _ in range(3):
        _, tensor, turned, steps = compiled(torch.ones(4))
        assert tensor.tolist() == [1.0] * 4 and turned.tolist() == [[1.0, 1.0]] * 3 and steps.tolist() == [0, 1, 2]
        tensor.zero_()
        turned[:] = 5.0
        steps += 1


def test_views_of_one_constant_stay_views_of_it() -> None:
    def program(x: Any) -> Any:
        y = x + 1
        whole = np.zeros(4)
        part = whole[1:]
        part[0] = 3.0
        return y, whole, part

    compiled = tatara.compile(program)
    for _ in range(3):
        _, whole, part = compiled(torch.ones(4))
        assert whole.tolist() == [0.0, 3.0, 0.0, 0.0] and np.shares_memory(whole, part)


def test_a_break_between_keeps_the_arrays() -> None:
    def program(x: Any) -> Any:
        y = torch.sin(x)
        table = np.linspace(0.0, 1.0, 4)
        total = float(y.detach().numpy().sum())
        table[2] = total
        return y * torch.tensor(table)

    compare(program, None)


def test_random_numbers_and_arrays_that_come_in_are_no_constants() -> None:
    compare(lambda x: torch.relu(x) * torch.tensor(np.random.rand(4)), None)
    compare(lambda x, a: torch.relu(x) * torch.tensor(a * 2), None, np.arange(4.0))


def test_decisions_by_constants_are_the_programs() -> None:
    def program(x: Any) -> Any:
        y = torch.relu(x)
        for weight in np.linspace(0.5, 1.0, 3).tolist():
            y = y * weight
        return y + np.float64(2.0) * np.array([1.0, 2.0]).sum()

    compare(program, None)


@pytest.mark.parametrize("end", ["sized", "raises", "printed"])
def test_a_constant_that_a_broken_instruction_was_to_use(end: str) -> None:
    def program() -> Any:
        torch.tensor(1)
        m = np.array([[0, 3, 0], [2, -1, 0]])
        if end == "sized":
            return m.nonzero(), m
        if end == "raises":
            try:
                return m.reshape(5)
            except ValueError:
                return m
        return str(m), m

    tatara.reset()
    run = tatara.compile(program)
    for _ in range(3):
        np.testing.assert_equal(run(), program())
