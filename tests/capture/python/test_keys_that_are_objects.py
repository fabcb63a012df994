"""Keys of older dicts that a program goes over: tuples and objects are those of the dict in each call."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402


class Shape:
    pass


class Square(Shape):
    pass


class Circle(Shape):
    pass


REGISTRY: dict[tuple[type, type], Any] = {
    (Square, Square): lambda x: x + 1,
    (Square, Shape): lambda x: x * 2,
    (Shape, Shape): lambda x: x - 3,
}


def _dispatch(a: Shape, b: Shape) -> Any:
    matches = [(p, q) for p, q in REGISTRY if isinstance(a, p) and isinstance(b, q)]
    found = [key for key in REGISTRY if key in matches]
    return REGISTRY[found[0]], found


def test_registries_by_classes() -> None:
    def f(a: Shape, b: Shape, x: Any) -> Any:
        function, keys = _dispatch(a, b)
        return function(x), keys

    x = torch.ones(3)
    pairs = [(Square(), Square()), (Square(), Circle()), (Circle(), Circle())]
    with counts() as count:
        compiled = tatara.compile(f)
        for _ in range(3):
            for a, b in pairs:
                ours, theirs = compiled(a, b, x), f(a, b, x)
                assert torch.equal(ours[0], theirs[0])
                assert len(ours[1]) == len(theirs[1])
                assert all(s is t for s, t in zip(ours[1], theirs[1], strict=True))
    assert count["breaks"] == 0


def test_another_key_that_is_equal() -> None:
    table = {(1, "a"): 2.0}

    def f(x: Any) -> Any:
        return x * 2, [key for key in table], [table[key] for key in table]

    compiled = tatara.compile(f)
    for key in [(1, "a"), (int("1"), "a"), (int("1"), "b")]:
        table.clear()
        table[key] = 3.0
        for _ in range(2):
            ours, theirs = compiled(torch.ones(2)), f(torch.ones(2))
            assert ours[1][0] is theirs[1][0]
            assert ours[2] == theirs[2]
