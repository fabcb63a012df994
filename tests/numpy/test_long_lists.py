"""Lists that a loop fills, of many items: a search of the list for each would take minutes."""

from __future__ import annotations

import numpy as np
import tatara

COUNT = 20_000


def running_sums(values):
    out = [0.0]
    for v in values:
        out.append(out[-1] + v)
    return out


def test_a_long_list_of_numbers() -> None:
    values = [0.5 + i for i in range(COUNT)]
    compiled = tatara.compile(running_sums)
    assert compiled(values) == running_sums(values)
    assert compiled(values[:-1]) == running_sums(values[:-1])


def test_arrays_in_a_list_are_the_calls_own() -> None:
    def collect(x):
        rows = []
        for i in range(len(x)):
            rows.append([x[i] * 2, [x[i] + 1]])
            rows.append(rows[-1][1])
        return rows

    compiled = tatara.compile(collect)
    for scale in (1.0, 2.0, 3.0):
        x = np.arange(12.0).reshape(3, 4) * scale
        for ours, eager in zip(compiled(x), collect(x), strict=True):
            assert len(ours) == len(eager)
            np.testing.assert_array_equal(ours[0], eager[0])
        got = compiled(x)
        assert got[1] is got[0][1] and got[3] is got[2][1]


def test_numpys_append_is_a_function() -> None:
    def f(x: np.ndarray) -> np.ndarray:
        return np.append(x[0], x[1:] - 0.97 * x[:-1])

    x = np.linspace(0.0, 1.0, 50)
    compiled = tatara.compile(f)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x), f(x))
    assert not tatara.explain(f)(x).breaks
