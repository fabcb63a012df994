"""torch.cond, while_loop, map and scan in compiled code: as the Python that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import tatara
from results import same

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]


def check(f: Any, *args: Any) -> None:
    expected = f(*args)
    compiled = tatara.compile(f)
    for _ in range(3):
        same(compiled(*args), expected)
    assert not tatara.explain(f)(*args).breaks


def test_cond() -> None:
    def by_shape(x: Tensor) -> Tensor:
        return torch.cond(x.shape[0] > 3, torch.sin, torch.cos, (x,)) + 1

    def by_value(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (x, x * 2)) + 1

    check(by_shape, torch.randn(4))
    check(by_shape, torch.randn(3))
    check(by_value, torch.ones(4))
    compiled = tatara.compile(by_value)
    for x in (torch.ones(4), -torch.ones(4)) * 3:
        same(compiled(x), by_value(x))


def test_scan() -> None:
    def cumulative(x: Tensor) -> Any:
        return scan(lambda c, y: (c * 0.5 + y, (c + y).sin()), torch.zeros(3), x)

    def trees(x: Tensor, y: Tensor) -> Any:
        def step(carry: Any, part: Any) -> Any:
            return {"a": carry["a"] + part[0] * part[1]}, [part[0] + carry["a"], part[1].exp()]

        return scan(step, {"a": torch.zeros(2)}, (x, y), dim=1, reverse=True)

    check(cumulative, torch.randn(7, 3))
    check(trees, torch.randn(2, 5), torch.randn(2, 5))


def test_map() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return torch_map(lambda part, other: part.cumsum(0) * other, x, y)

    check(f, torch.randn(5, 4), torch.randn(4))


def test_while_loop() -> None:
    def f(x: Tensor) -> Any:
        return while_loop(lambda n, y: n < 5, lambda n, y: (n + 1, y * 1.5), (torch.tensor(0), x))

    def never(x: Tensor) -> Any:
        return while_loop(lambda y: y.sum() > 1e9, lambda y: (y * 2,), (x,))

    x = torch.randn(4)
    for each in (f, never):
        compiled = tatara.compile(each)
        for _ in range(3):
            same(compiled(x), each(x))


def test_errors_are_torchs() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x > 0, torch.sin, torch.cos, (x,))

    x = torch.randn(4)
    with pytest.raises(RuntimeError, match="single-element"):
        f(x)
    compiled = tatara.compile(f)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="single-element"):
            compiled(x)
