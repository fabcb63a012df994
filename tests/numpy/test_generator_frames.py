"""A function that makes a generator gives its frame back to CPython: nothing may look at it then."""

import types
from typing import Any

import pytest

import numpy as np
import tatara


def _down(x: Any, depth: int) -> Any:
    x = x + sum(i for i in range(2))
    return _down(x, depth - 1) if depth else x


@pytest.mark.parametrize("locals_before", range(24))
def test_generators_made_at_every_depth_of_the_stack(locals_before: int) -> None:
    """CPython's stack is made of pieces. Where a frame is the first in one, the piece goes with the frame."""
    lines = [f"    v{i} = depth" for i in range(locals_before)]
    namespace = {"_down": _down}
    exec("\n".join(["def start(x, depth):", *lines, "    return _down(x, depth)"]), namespace)
    start: Any = namespace["start"]
    found, expected = tatara.compile(start)(np.zeros(2), 150), start(np.zeros(2), 150)
    assert found.dtype == expected.dtype and np.array_equal(found, expected)


def _parts(x: Any) -> Any:
    for i in range(5):
        yield x * i


def _asks(x: Any) -> Any:
    for i in range(5):
        try:
            yield x * i
        except ValueError:
            yield x


def _hands_on(x: Any) -> Any:
    yield from _parts(x)


def _returned(x: Any) -> Any:
    for part in _parts(x):
        return part + 1
    return x


def _left(x: Any) -> Any:
    for part in _parts(x):
        x = x + part
        break
    return x


def _dropped(x: Any) -> Any:
    return x + next(_parts(x + 1))


def _closed(x: Any) -> Any:
    parts = _parts(x)
    x = x + next(parts)
    parts.close()
    return x


def _zipped(x: Any) -> Any:
    for part, _ in zip(_parts(x), range(2), strict=False):
        x = x + part
    return x


def _found(x: Any) -> Any:
    return x * any(part.ndim == 1 for part in _parts(x))


@pytest.mark.parametrize("parts", [_parts, _asks, _hands_on])
@pytest.mark.parametrize("function", [_returned, _left, _dropped, _closed, _zipped, _found])
def test_generators_that_end_early_are_part_of_the_graph(function: Any, parts: Any) -> None:
    """Their code gets a GeneratorExit, on Python 3.12 and later by a handler around all of it."""
    namespace = {"_parts": parts}
    f = types.FunctionType(function.__code__, namespace)
    x = np.arange(3.0)
    compiled = tatara.compile(f)
    for _ in range(3):
        assert np.array_equal(compiled(x), f(x))
    report = tatara.explain(f)(x)
    assert [each.reason for each in report.breaks] == []
    assert len(report.graphs) == 1
