"""torch.cond, while_loop, map and scan in compiled code: as the Python that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._pytree import tree_leaves

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


class TestCondByTensors:
    """Both functions are part of the graph, whichever runs."""

    def check(self, f: Any, *args: Any) -> None:
        """Calls with arguments of both signs; gradients where an argument has them."""
        f_compiled = tatara.compile(f, fullgraph=True)
        for sign in (1, -1, 1, -1, -1, 1):
            given = [(a.detach() * sign).requires_grad_(a.requires_grad) for a in args]
            twins = [(a.detach() * sign).requires_grad_(a.requires_grad) for a in args]
            expected, result = f(*given), f_compiled(*twins)
            same(result, expected)
            leaves, found = tree_leaves(expected), tree_leaves(result)
            assert [r.requires_grad for r in found] == [e.requires_grad for e in leaves]
            if any(e.requires_grad for e in leaves):
                sum(e.sum() for e in leaves).backward()
                sum(r.sum() for r in found).backward()
                for a, b in zip(given, twins, strict=True):
                    same(b.grad, a.grad)
        assert tatara.stats()["recompiles"] == 0
        report = tatara.explain(f)(*args)
        assert not report.breaks and len(report.graphs) == 1

    def test_values_and_structures(self) -> None:
        def one(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos() + 1, (x,)) * 3

        def several(x: Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda a: (a * 2, a.sum()), lambda a: (a * 3, a.mean()), (x + 1,))

        def twice(x: Tensor) -> Tensor:
            y = torch.cond(x.sum() > 0, torch.exp, torch.sin, (x,))
            return torch.cond(y[0] > 0.5, torch.cos, torch.tanh, (y,))

        for f in (one, several, twice):
            self.check(f, torch.randn(8) + 1)

    def test_gradients(self) -> None:
        """What runs alone has gradients: the root of a negative number has none. What does not run gives zeros."""

        def root(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda a: a.sqrt(), lambda a: a * 2, (x * 1,)).exp()

        def unused(x: Tensor, y: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda a, b: a * 2, lambda a, b: b * 3, (x * 2, y.exp()))

        def constant(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda a: torch.ones(3), lambda a: a * 2, (x + 0,))

        self.check(root, (torch.rand(8) + 1).requires_grad_())
        self.check(unused, (torch.rand(8) + 1).requires_grad_(), torch.randn(8).requires_grad_())
        self.check(constant, (torch.rand(3) + 1).requires_grad_())

    def test_modules_and_closures(self) -> None:
        first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def f(x: Tensor) -> Tensor:
            scale = x.mean()
            return torch.cond(x.sum() > 0, lambda a: first(a) * scale, lambda a: second(a) + scale, (x,)).relu()

        compiled = tatara.compile(f, fullgraph=True)
        for sign in (1, -1, 1, -1):
            x = torch.ones(2, 8) * sign
            grads = []
            for each in (f, compiled):
                for p in (*first.parameters(), *second.parameters()):
                    p.grad = None
                each(x).sum().backward()
                grads.append([p.grad for p in (*first.parameters(), *second.parameters())])
            same(grads[1], grads[0])

    def test_exported_code_calls_the_operator(self) -> None:
        def f(x: Tensor) -> Tensor:
            return torch.ops.higher_order.cond(x.sum() > 0, lambda a: (a * 2,), lambda a: (a - 1,), (x,))[0].sin()

        def plain(x: Tensor) -> Tensor:
            return (x * 2 if x.sum() > 0 else x - 1).sin()

        compiled = tatara.compile(f, fullgraph=True)
        for sign in (1, -1, 1, -1):
            same(compiled(torch.ones(3) * sign), plain(torch.ones(3) * sign))

    def test_examples_of_a_batch_choose(self) -> None:
        def f(x: Tensor) -> Tensor:
            return torch.vmap(lambda v: torch.cond(v.sum() > 0, torch.sin, lambda a: a * 3, (v,)))(x) + 1

        x = torch.randn(5, 4)
        compiled = tatara.compile(f, fullgraph=True)
        for _ in range(3):
            same(compiled(x), f(x))

    def test_what_is_no_part_of_a_graph_is_a_branch(self) -> None:
        def f(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda a: a * 2 + torch.rand(3) * 0, lambda a: a - 1, (x,)).sin()

        compiled = tatara.compile(f)
        for sign in (1, -1, 1, -1):
            x = torch.ones(3) * sign
            same(compiled(x), (x * 2 if sign > 0 else x - 1).sin())

    def test_sizes_vary(self) -> None:
        def f(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda a: a.cumsum(0) * 2, lambda a: a.cos() + 1, (x * 2,)).sum()

        def plain(x: Tensor) -> Tensor:
            return ((x * 2).cumsum(0) * 2 if x.sum() > 0 else (x * 2).cos() + 1).sum()

        compiled = tatara.compile(f, fullgraph=True)
        for size in (3, 4, 5, 6, 7, 8):
            for sign in (1, -1, 1):
                same(compiled(torch.ones(size) * sign), plain(torch.ones(size) * sign))
        assert tatara.stats()["recompiles"] <= 4

    def test_a_loop_inside(self) -> None:
        def f(x: Tensor) -> Tensor:
            def loop(a: Tensor) -> Tensor:
                return while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y * 1.5), (0, a))[1]

            return torch.cond(x.sum() > 0, loop, lambda a: a - 1, (x,)).sin()

        def plain(x: Tensor) -> Tensor:
            return (x * 1.5**3 if x.sum() > 0 else x - 1).sin()

        compiled = tatara.compile(f)
        for sign in (1, -1, 1, -1):
            same(compiled(torch.ones(3) * sign), plain(torch.ones(3) * sign))
