"""Lists from outside of the arguments that are operands of NumPy's functions: compared in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara

shape = [2, 4]
bank: list[Any] = []
places = [0]


def stacked(a: Any) -> Any:
    bank.append(a * 2)
    return np.stack(bank).sum(0)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "stack": stacked,
    "reshape": lambda a: a.reshape(shape),
    "an index": lambda a: a[places],
    "an index in a tuple": lambda a: a.reshape(2, 4)[:, places],
    "an array of a list": lambda a: a[0] + np.array(places),
    "zeros": lambda a: np.zeros(shape) + a[0],
    "a ufunc": lambda a: np.add(places, a[0]),
    "a method of a ufunc": lambda a: np.add.reduce(places) * a,
    "mean": lambda a: np.mean(places) + a,
    "shape": lambda a: np.shape(places)[0] * a,
    "asarray": lambda a: a * np.asarray(places, dtype=np.float64).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_that_numpy_reads_are_compared(name: str) -> None:
    results: list[list[Any]] = []
    for run in (PROGRAMS[name], tatara.compile(PROGRAMS[name])):
        shape[:], places[:], bank[:] = [2, 4], [0], []
        results.append([])
        for call in range(4):
            if call == 2:
                shape[:] = [4, 2]
                places.append(3)
            results[-1].append(run(np.arange(8.0) + call))
    for eager, compiled in zip(*results, strict=True):
        np.testing.assert_array_equal(eager, compiled)
