"""Wrong uses of gradients: eager's own error, from the program's line, in the first call and in later ones."""

from __future__ import annotations

import gc
import resource
import traceback
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

nn = torch.nn


def leaf(*shape: int) -> Any:
    return torch.randn(*shape).requires_grad_()


def backward_twice(x: Any, w: Any) -> Any:
    loss = (x.sin() * w).sum()
    loss.backward()
    loss.backward()


def gradient_twice(x: Any, w: Any) -> Any:
    loss = (x.sin() * x).sum()
    first = torch.autograd.grad(loss, x)[0]
    return first + torch.autograd.grad(loss, x)[0]


def written_result(x: Any, w: Any) -> Any:
    y = x.exp()
    loss = y.sum()
    y.mul_(2)
    loss.backward()


def written_operand(x: Any, w: Any) -> Any:
    y = x * w
    w.add_(1)
    y.sum().backward()


def written_leaf(x: Any, w: Any) -> Any:
    x.add_(1)
    return x * 2


def written_view_of_a_leaf(x: Any, w: Any) -> Any:
    x[0] = 1
    return x * 2


def no_history(x: Any, w: Any) -> Any:
    w.sum().backward()


def no_scalar(x: Any, w: Any) -> Any:
    (x * w).backward()


def unused(x: Any, w: Any) -> Any:
    return torch.autograd.grad((w * 2).sum() + x.sum() * 0, leaf(3))


def frozen_result(x: Any, w: Any) -> Any:
    y = x * w
    y.requires_grad_(False)
    return y


def leaf_of_ints(x: Any, w: Any) -> Any:
    return torch.zeros(3, dtype=torch.int64).requires_grad_()


INSIDE = [
    backward_twice,
    gradient_twice,
    written_result,
    written_operand,
    written_leaf,
    written_view_of_a_leaf,
    no_history,
    no_scalar,
    unused,
    frozen_result,
    leaf_of_ints,
]


def raised(call: Callable[[], Any]) -> tuple[str, str, str | None]:
    """Kind, text, and the line of this file that it comes from."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any is compared with eager's
        call()
    frames = [f for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == __file__]
    return type(caught.value).__name__, str(caught.value), frames[-1].line


@pytest.mark.parametrize("function", INSIDE, ids=lambda f: f.__name__)
def test_inside(function: Callable[..., Any]) -> None:
    compiled = tatara.compile(function)
    for _ in range(3):
        expected = raised(lambda: function(leaf(4), torch.randn(4)))
        assert raised(lambda: compiled(leaf(4), torch.randn(4))) == expected


def test_backward_twice_outside() -> None:
    def f(x: Any) -> Any:
        return (x.sin() * x).sum()

    def twice(loss: Any) -> None:
        loss.backward()
        loss.backward()

    compiled = tatara.compile(f)
    for _ in range(3):
        assert raised(lambda: twice(compiled(leaf(4)))) == raised(lambda: twice(f(leaf(4))))


def test_operands_written_before_backward_outside() -> None:
    def operand(f: Callable[..., Any]) -> None:
        x, w = leaf(4), torch.randn(4)
        loss = f(x, w)
        w.add_(1)
        loss.backward()

    def parameter(f: Callable[..., Any]) -> None:
        weight = leaf(3, 3)
        loss = f(leaf(2, 3), weight)
        with torch.no_grad():
            weight.mul_(2)
        loss.backward()

    for way, f in ((operand, lambda x, w: (x * w).sum()), (parameter, lambda x, w: (x @ w).sum())):
        compiled = tatara.compile(f)
        for _ in range(3):
            assert raised(lambda way=way, c=compiled: way(c)) == raised(lambda way=way, f=f: way(f))  # type: ignore[misc]


def test_a_used_up_loss_cannot_be_differentiated_by_any_leaf() -> None:
    model = nn.Linear(3, 1)

    def step(x: Any) -> Any:
        loss = model(x).square().sum()
        loss.backward()
        return loss

    compiled = tatara.compile(step)
    for _ in range(3):
        for again in (lambda t: torch.autograd.grad(t, model.weight), lambda t: t.backward()):
            x = torch.randn(2, 3)
            assert raised(lambda again=again, x=x: again(compiled(x))) == raised(
                lambda again=again, x=x: again(step(x))
            )  # type: ignore[misc]


def test_memory_is_flat_over_a_thousand_steps() -> None:
    """Whole steps and split ones: neither tensors nor memory pile up."""
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def penalty(x: Any) -> Any:
        return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0].square().sum()

    whole, split = tatara.compile(step), tatara.compile(penalty)

    def steps(count: int) -> None:
        for _ in range(count):
            whole(torch.randn(8, 16))
            split(torch.randn(8, 16).requires_grad_()).backward()

    def live() -> int:
        gc.collect()
        return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

    steps(100)
    before, peak = live(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps(1000)
    assert live() == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2048  # KiB
