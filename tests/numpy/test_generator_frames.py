"""A function that makes a generator gives its frame back to CPython: nothing may look at it then."""

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
