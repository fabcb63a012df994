"""Cycles of objects are not collected while a function is traced: generators among them would run as part of the trace."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tatara

CLOSED: list[int] = []


class Kept:
    count: Any = 0


class Owner:
    pass


def waiting(number: int) -> Iterator[int]:
    try:
        while True:
            yield number
    finally:
        CLOSED.append(number)


def make_garbage() -> None:
    for number in range(5):
        generator, owner = waiting(number), Owner()
        next(generator)
        owner.generator, owner.itself = generator, owner  # type: ignore[attr-defined]


def writes_a_class(x: Any) -> Any:
    Kept.count = x
    lists = [[i] for i in range(50)]
    return x + len(lists)


def breaks(x: Any) -> Any:
    lists = [[i] for i in range(50)]
    print(end="")
    return x + len(lists)


def fails(x: Any) -> Any:
    lists = [[i] for i in range(50)]
    return x + torch.ones(len(lists))


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", [writes_a_class, breaks, fails])
def test_a_collection_changes_nothing(
    program: Callable[[Any], Any], fullgraph: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = gc.get_threshold()
    x = torch.ones(3)
    try:
        for threshold in range(1, 120, 3):
            compiled = tatara.compile(program, fullgraph=fullgraph)
            CLOSED.clear()
            gc.disable()
            make_garbage()
            gc.set_threshold(threshold)
            gc.enable()
            try:
                assert torch.equal(compiled(x), torch.full((3,), 51.0))
            except (tatara.Unsupported, RuntimeError) as error:
                assert program is fails or fullgraph, error
            assert gc.isenabled()
            gc.set_threshold(*before)
            gc.collect()
            assert sorted(CLOSED) == list(range(5))
    finally:
        gc.set_threshold(*before)
    assert capsys.readouterr().err == ""
