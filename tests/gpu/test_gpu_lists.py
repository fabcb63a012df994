"""Launches that become one for a list of tensors: against eager, and counted; also as CUDA graphs. Skipped without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara

pytestmark = [pytest.mark.usefixtures("no_grad"), pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

Tensors = list[torch.Tensor]
SIZES: list[tuple[int, ...]] = [
    (1000, 7),
    (5,),
    (1,),
    (0,),
    (256, 256),
    (33,),
    (4096,),
    (),
    (3, 0),
    (50257,),
    (2, 3, 4),
]


def randn(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes, device="cuda").to(dtype)


def flat(value: Any) -> Tensors:
    if isinstance(value, torch.Tensor):
        return [value]
    return [] if value is None else [t for item in value for t in flat(item)]


def copies(arguments: Any) -> Any:
    if isinstance(arguments, (tuple, list)):
        return type(arguments)(copies(item) for item in arguments)
    return arguments.clone() if isinstance(arguments, torch.Tensor) else arguments


def same(actual: Any, expected: Any) -> None:
    ours, theirs = flat(actual), flat(expected)
    assert len(ours) == len(theirs)
    for a, e in zip(ours, theirs):
        assert (a.dtype, a.shape, a.stride()) == (e.dtype, e.shape, e.stride())
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-5, equal_nan=True)


def check(function: Callable[..., Any], *arguments: Any, launches: int | None = None, calls: int = 6) -> Any:
    """Results and arguments after each of several calls, each with memory of its own, are eager's. Gives the last compiled function."""
    compiled = tatara.compile(function)
    for call in range(calls):
        theirs, ours = copies(arguments), copies(arguments)
        expected = function(*theirs)
        before = tatara.stats()
        actual = compiled(*ours)
        after = tatara.stats()
        assert after["fallbacks"] == before["fallbacks"]
        if call > 0 and launches is not None:
            assert after["kernels_launched"] - before["kernels_launched"] == launches
        same((actual, ours), (expected, theirs))
    return compiled


def adamw(params: Tensors, grads: Tensors, first: Tensors, second: Tensors) -> None:
    for p, g, m, v in zip(params, grads, first, second):
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.mul_(1 - 1e-5).addcdiv_(m / (1 - 0.9), (v / (1 - 0.999)).sqrt().add_(1e-8), value=-1e-3)


def state(sizes: list[tuple[int, ...]]) -> tuple[Tensors, ...]:
    return tuple([randn(*s).abs() for s in sizes] for _ in range(4))


def test_adamw_of_equal_sizes_is_one_launch() -> None:
    compiled = check(adamw, *state([(64, 96)] * 20), launches=1)
    with tatara.kernel_history() as history:
        compiled(*state([(64, 96)] * 20))
    (event,) = history.launches
    assert event.items == 20
    assert "for 20" in str(event)


def test_adamw_of_many_sizes() -> None:
    check(adamw, *state(SIZES))
    check(adamw, *state([s for s in SIZES if torch.Size(s).numel() > 1]), launches=1)


def test_lists_longer_than_a_table() -> None:
    sizes = [(17, n) for n in range(2, 302)]
    check(lambda xs: [x.half() for x in xs], [randn(*s) for s in sizes], launches=3)
    check(adamw, *state([(8, 8)] * 200), calls=4)


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16, torch.int64, torch.float64, torch.complex64, torch.bool])
def test_casts(to: torch.dtype) -> None:
    check(lambda xs: [x.to(to) for x in xs], [randn(*s) for s in SIZES])


def test_foreach() -> None:
    def f(xs: Tensors, ys: Tensors) -> Tensors:
        torch._foreach_mul_(xs, 0.5)
        torch._foreach_add_(xs, ys, alpha=2)
        return torch._foreach_sqrt(torch._foreach_abs(ys))

    check(f, [randn(*s) for s in SIZES], [randn(*s) for s in SIZES])


def test_a_tensor_twice() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> None:
        for x in (a, b, a, a):
            x.mul_(2).add_(1)

    check(f, randn(1000), randn(1000))


def test_order_of_reads_and_writes() -> None:
    def f(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = a @ w
        a.mul_(2)
        between = torch.relu(a @ w)
        b.mul_(2)
        w.mul_(2)
        return before, between, a @ w, b @ w

    check(f, randn(64, 64), randn(64, 64), randn(64, 64))


def test_views_of_one_tensor() -> None:
    def f(whole: torch.Tensor) -> None:
        for part in whole.unbind(0):
            part.mul_(2).add_(1)

    check(f, randn(6, 512))
    whole = randn(4, 512)
    theirs = whole.clone()
    compiled = tatara.compile(adamw)
    for _ in range(4):  # overlapping arguments
        compiled([whole[0], whole[1]], [whole[2], whole[2]], [whole[3], whole[1]], [whole[1], whole[0]])
        adamw([theirs[0], theirs[1]], [theirs[2], theirs[2]], [theirs[3], theirs[1]], [theirs[1], theirs[0]])
    torch.testing.assert_close(whole, theirs, equal_nan=True)


def test_unaligned_arguments() -> None:
    compiled = tatara.compile(adamw)
    for at in (0, 4, 1, 3):
        base = [randn(5000).abs() for _ in range(8)]
        parts = [b[at : at + 4099] for b in base]
        others = [b.clone()[at : at + 4099] for b in base]
        compiled(*(parts[i : i + 2] for i in range(0, 8, 2)))
        adamw(*(others[i : i + 2] for i in range(0, 8, 2)))
        same(parts, others)


def test_as_cuda_graphs_with_changed_pointers() -> None:
    def f(xs: Tensors, ws: Tensors) -> Tensors:
        return [torch.tanh((x.half() @ w.half()).float()) for x, w in zip(xs, ws)]

    def inputs() -> tuple[Tensors, Tensors]:
        return [randn(32, 64) for _ in range(8)], [randn(64, 48) for _ in range(8)]

    compiled = tatara.compile(f)
    for _ in range(4):
        compiled(*inputs())
    before = tatara.stats()["cuda_graphs_launched"]
    for _ in range(5):
        xs, ws = inputs()
        for a, e in zip(compiled(xs, ws), f(xs, ws)):
            torch.testing.assert_close(a, e, rtol=1e-2, atol=1e-2)
    assert tatara.stats()["cuda_graphs_launched"] - before == 5
    with tatara.kernel_history() as history:
        compiled(*inputs())
    assert sorted(event.items for event in history.launches) == [8, 16]  # the operands' casts together


def test_sizes_of_the_call() -> None:
    def f(xs: Tensors) -> Tensors:
        return [torch.tanh(x) * 2 for x in xs]

    compiled = tatara.compile(f)
    for n in (3, 5, 8, 1000, 7, 0, 1):
        xs = [randn(n, width) for width in (4, 9, 64)]
        same(compiled(xs), f(xs))


def test_numbers_of_the_host() -> None:
    def f(xs: Tensors, scale: torch.Tensor) -> Tensors:
        return [x * scale + 1 for x in xs]

    compiled = tatara.compile(f)
    for value in (0.5, 2.0, -1.0):
        xs = [randn(n) for n in (100, 64, 7)]
        scale = torch.tensor(value)
        same(compiled(xs, scale), f(xs, scale))


def test_reductions() -> None:
    check(lambda xs: [torch.linalg.vector_norm(x) for x in xs], [randn(1 << 18) for _ in range(5)], launches=2)
    check(lambda xs: [torch.softmax(x, -1) for x in xs], [randn(64, 1000) for _ in range(5)], launches=1)


def test_an_index_that_is_out_of_bounds() -> None:
    def f(tables: Tensors, index: torch.Tensor) -> Tensors:
        return [torch.nn.functional.embedding(index, table) for table in tables]

    compiled = tatara.compile(f)
    tables = [randn(50, 64) for _ in range(4)]
    good, bad = torch.tensor([1, 49, 3], device="cuda"), torch.tensor([1, 50, 3], device="cuda")
    same(compiled(tables, good), f(tables, good))
    compiled(tables, bad)
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match="index 50 is out of bounds for dimension with size 50"):
        compiled(tables, good)
    same(compiled(tables, good), f(tables, good))


@pytest.mark.parametrize("foreach", [True, False])
def test_whole_steps_of_an_optimizer(foreach: bool) -> None:
    def steps(compile_it: bool) -> Tensors:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)], torch.nn.Linear(64, 3)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = tatara.compile(step) if compile_it else step
        with torch.enable_grad():
            losses = [run(randn(16, 64)) for _ in range(7)]
        return [*losses, *(p.detach() for p in model.parameters())]

    same(steps(True), steps(False))
