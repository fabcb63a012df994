"""Members of enums inside of tuples, lists and dicts of the call: each is one object of its class, guarded by value."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")


class Kind(enum.Enum):
    RELU = "relu"
    SINE = "sine"
    OTHER = object()

    @property
    def function(self) -> Any:
        return {Kind.RELU: torch.relu, Kind.SINE: torch.sin}.get(self, torch.cos)


class Flags(enum.IntFlag):
    NORM = 1
    SKIP = 2


class Layer(NamedTuple):
    kind: Kind
    flags: Flags = Flags(0)
    width: int = 2


def apply(x: Any, layer: Layer) -> Any:
    match layer:
        case Layer(kind=Kind.RELU | Kind.SINE as kind, flags=flags) if flags & Flags.NORM:
            return kind.function(x) / x.norm(), kind.name
        case Layer(kind, flags, width):
            return kind.function(x) * width, (kind, flags)
    raise AssertionError


def applied(x: Any, layers: Any) -> Any:
    done = [apply(x, layer) for layer in layers]
    first, *others = sorted(layers, key=lambda layer: layer.flags.value)
    return done, first.kind, {layer.kind: layer.flags for layer in others}


LAYERS = [
    [Layer(Kind.RELU, Flags.NORM), Layer(Kind.OTHER, Flags.SKIP | Flags.NORM), Layer(Kind.SINE)],
    [Layer(Kind.SINE, Flags.NORM), Layer(Kind.OTHER, Flags.SKIP | Flags.NORM), Layer(Kind.SINE)],
    [Layer(Kind.RELU, Flags.SKIP), Layer(Kind.RELU, Flags.SKIP, 3)],
]


def test_in_tuples_of_the_call() -> None:
    run = tatara.compile(applied)
    for call in range(9):
        x = torch.randn(4)
        with counts() as grown:
            found = run(x, list(LAYERS[call % 3]))
        expected = applied(x, LAYERS[call % 3])
        assert found[1:] == expected[1:]
        for (one, said), (other, wanted) in zip(found[0], expected[0], strict=True):
            torch.testing.assert_close(one, other)
            assert said == wanted
        assert grown["breaks"] == grown["fallbacks"] == 0
    assert grown["graphs"] == grown["recompiles"] == 0


def test_what_c_code_hands_on() -> None:
    """From containers that change between calls."""
    queue: list[Any] = []
    table: dict[str, Any] = {}

    def function(x: Any) -> Any:
        return queue[-1].function(x) + table["kind"].function(x), max(queue, key=lambda kind: kind.name)

    run = tatara.compile(function)
    for kinds in ((Kind.RELU, Kind.SINE), (Kind.SINE, Kind.RELU), (Kind.RELU, Kind.RELU), (Kind.OTHER, Kind.SINE)):
        queue.append(kinds[0])
        table["kind"] = kinds[1]
        x = torch.randn(3)
        torch.testing.assert_close(run(x)[0], function(x)[0])
        assert run(x)[1] is function(x)[1]
