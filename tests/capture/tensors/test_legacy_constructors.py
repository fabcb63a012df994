"""Tensors made by the name of a type: torch.Tensor, torch.FloatTensor and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

DATA: list[Any] = [[1, 2, 3], [1.5, True, 2], (0.5, 1), [[1, 2], [3, 4]], [], [[]], [0.1, float("inf"), float("nan")]]
TYPES = ["Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor", "BoolTensor", "ByteTensor"]


@pytest.mark.parametrize("name", TYPES)
def test_of_data(name: str) -> None:
    make = getattr(torch, name)
    for data in DATA:
        if "Float" not in name and name not in ("Tensor", "DoubleTensor", "HalfTensor") and data and data == DATA[-1]:
            continue

        def f(x: Any, data: Any = data) -> Any:
            return make(data), x + 1

        with counts() as n:
            same(tatara.compile(f)(torch.ones(2)), f(torch.ones(2)), equal_nan=True)
        assert n["breaks"] == 0


def test_of_sizes() -> None:
    def f(x: Any) -> Any:
        return (
            torch.Tensor(2, 3).fill_(1) + x,
            torch.FloatTensor(x.size(0)).zero_(),
            torch.LongTensor(2, 1).fill_(4),
            torch.Tensor(),
            torch.Tensor(0),
        )

    run = tatara.compile(f)
    with counts() as n:
        for size in (3, 3, 1):
            x = torch.ones(size)
            same(run(x), f(x))
    assert n["breaks"] == 0


def test_with_gradients_and_numbers_that_vary() -> None:
    def f(x: Any, a: float) -> Any:
        target = torch.Tensor([a, 2.0])
        return ((x - target) ** 2).sum() / torch.log(torch.Tensor([10.0]))

    run = tatara.compile(f)
    with counts() as n:
        for a in (0.5, 0.25, 0.75, -1.5, 2.5):
            x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
            got, expected = run(x, a), f(y, a)
            got.backward()
            expected.backward()
            same(got.detach(), expected.detach())
            same(x.grad, y.grad)
    assert n["breaks"] == 0
    assert n["recompiles"] <= 1


CASES: dict[str, Callable[[Any], Any]] = {
    "another tensor": lambda x: torch.Tensor(x) + 1,
    "of tensors": lambda x: torch.Tensor([x[0], 2]),
    "keyword": lambda x: torch.Tensor([1.0], device="cpu") + x,
    "shape": lambda x: torch.Tensor(x.shape).zero_() + x,
    "range": lambda x: torch.Tensor(range(3)) + x,
    "float size": lambda x: torch.Tensor(2.0, 3),
    "bool": lambda x: torch.Tensor(True),
    "ragged": lambda x: torch.Tensor([1, [2]]),
    "text": lambda x: torch.Tensor("ab"),
    "complex": lambda x: torch.Tensor([1j]),
    "overflow": lambda x: torch.ByteTensor([300]),
    "negative": lambda x: torch.Tensor(-1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_host_decides(name: str) -> None:
    f, x = CASES[name], torch.ones(3)

    def outcome(function: Any) -> Any:
        try:
            return function(x)
        except (TypeError, ValueError, RuntimeError) as error:
            return type(error)

    expected = outcome(f)
    same(outcome(tatara.compile(f)), expected)


def test_default_types() -> None:
    def f(x: Any) -> Any:
        return torch.Tensor([1, 2]) + x, torch.FloatTensor([1, 2])

    run, x = tatara.compile(f), torch.ones(2)
    same(run(x), f(x))
    try:
        torch.set_default_dtype(torch.float64)
        same(run(x), f(x))
    finally:
        torch.set_default_dtype(torch.float32)
    same(run(x), f(x))
    with torch.device("meta"):  # which they do not ask
        assert tatara.compile(f)(x)[0].device.type == "cpu"
