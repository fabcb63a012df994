"""Programs of torch and NumPy together: eager's results, memory and gradients, in one graph."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")

from mixed_programs import PROGRAMS  # noqa: E402

import tatara  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [each for item in value for each in flat(item)]
    if isinstance(value, dict):
        return [each for key in value for each in flat(value[key])]
    return [value]


def memory(value: Any) -> tuple[int, int]:
    """Where it begins and how many bytes it spans."""
    if isinstance(value, torch.Tensor):
        spans = [(n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)]
        return value.data_ptr(), (sum(spans) + 1) * value.element_size()
    return np.lib.array_utils.byte_bounds(value)[0], value.nbytes


def sharing(values: list[Any]) -> list[bool]:
    big = [v for v in values if isinstance(v, torch.Tensor | np.ndarray)]
    spans = [memory(v.detach() if isinstance(v, torch.Tensor) else v) for v in big]
    return [a < b + m and b < a + n for i, (a, n) in enumerate(spans) for j, (b, m) in enumerate(spans) if i < j]


def same(want: Any, got: Any, tolerance: float | None = None) -> None:
    assert type(got) is type(want), (type(got), type(want))
    if isinstance(want, torch.Tensor):
        assert got.dtype == want.dtype and got.stride() == want.stride() and got.shape == want.shape
        assert got.requires_grad == want.requires_grad and got.is_leaf == want.is_leaf
        torch.testing.assert_close(got, want)
    elif isinstance(want, np.ndarray | np.generic):
        assert got.dtype == want.dtype and got.shape == want.shape
        if tolerance is None:
            tolerance = 3e-6 if want.dtype.char in "fF" else 1e-12
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        if isinstance(want, np.ndarray):
            assert got.strides == want.strides, (got.strides, want.strides)
            assert got.flags.writeable == want.flags.writeable and got.flags.owndata == want.flags.owndata
    elif isinstance(want, float):
        assert got == pytest.approx(want, rel=3e-6)
    else:
        assert got == want


def compare(program: Any, make: Any, calls: int = 3) -> None:
    compiled = tatara.compile(program)
    for seed in range(calls):
        outcomes = []
        for function in (program, compiled):
            torch.manual_seed(seed)
            np.random.seed(seed)
            args = copy.deepcopy(make())
            with torch.no_grad():
                for each in args:
                    if isinstance(each, torch.Tensor) and each.is_floating_point():
                        each.add_(0.01 * seed)
                    elif isinstance(each, np.ndarray) and each.dtype.kind == "f":
                        each += 0.01 * seed
            result = function(*args)
            values = flat(result)
            loss = values[0]
            if isinstance(loss, torch.Tensor) and loss.requires_grad:
                loss.sum().backward()
            grads = [each.grad for each in args if isinstance(each, torch.Tensor) and each.requires_grad]
            outcomes.append((values, list(args), grads, torch.rand(1), np.random.rand()))
        want, got = outcomes
        for w, g in zip(want[0] + want[1] + want[2] + [want[3]], got[0] + got[1] + got[2] + [got[3]], strict=True):
            same(w, g)
        assert want[4] == got[4]
        assert sharing(want[0] + want[1]) == sharing(got[0] + got[1])
        # Writes on either side are seen by the other.
        for i, each in enumerate(want[0]):
            twin = got[0][i]
            if isinstance(each, np.ndarray) and each.flags.writeable and each.dtype.kind == "f":
                each += 1
                twin += 1
            elif isinstance(each, torch.Tensor) and each.is_floating_point() and not each.requires_grad:
                each += 1
                twin += 1
        for w, g in zip(want[0] + want[1], got[0] + got[1], strict=True):
            if isinstance(w, torch.Tensor | np.ndarray):
                same(w, g)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_mixed_program(name: str) -> None:
    compare(*PROGRAMS[name])
    assert tatara.stats()["breaks"] == 0
