"""What a NumPy program that raises leaves behind: NumPy's writes, each once, and NumPy's own error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara

Program = Callable[[Any, Any, Any], Any]


def write_before(a: Any, b: Any, index: Any) -> Any:
    a += 1
    return b[index] * 2


def write_after(a: Any, b: Any, index: Any) -> Any:
    found = b[index] * 2
    a += 1
    return found


def write_both(a: Any, b: Any, index: Any) -> Any:
    a += 1
    b *= 2
    found = (a.sum() + b)[index]
    a -= 3
    return found


@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("program", [write_before, write_after, write_both])
def test_writes(program: Program, warm: int) -> None:
    tatara.reset()
    seen: list[list[Any]] = []
    for run in (tatara.compile(program), program):
        a, b = np.ones((4, 3)), np.arange(12.0).reshape(4, 3)
        results: list[Any] = [run(a, b, np.array([0, 1])) for _ in range(warm)]
        for index in ([0, 9], [0, 1], [2, -9]):
            try:
                results.append(run(a, b, np.array(index)))
            except IndexError as error:
                results.append(str(error))
            results += [a.copy(), b.copy()]
        seen.append(results)
    for ours, theirs in zip(*seen, strict=True):
        assert type(ours) is type(theirs)
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            np.testing.assert_array_equal(ours, theirs)
