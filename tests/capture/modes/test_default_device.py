"""Devices that torch gives functions which make tensors: torch.set_default_device, and `with torch.device(...)` in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.overrides import TorchFunctionMode, _len_torch_function_stack

import tatara
from results import same
from tatara.report._report import report_of

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def no_device() -> Iterator[None]:
    yield
    torch.set_default_device(None)
    assert _len_torch_function_stack() == 0


def makes(x: Tensor) -> tuple[Tensor, ...]:
    """What goes by the default device, what names another, and what has none to go by."""
    return (
        torch.relu(x) * 2,
        torch.arange(3),
        torch.ones(2, device=None),
        torch.tensor([1.0, 2.0]),
        torch.zeros(2, device="cpu"),
        torch.zeros_like(x),
        x.new_ones(2),
        torch.as_tensor(3.0),
        torch.full((2,), 7),
    )


def check(program: Callable[..., object], *args: object) -> None:
    compiled = tatara.compile(program)
    for _ in range(4):
        same(compiled(*args), program(*args))
    assert [b.reason for b in report_of(compiled).breaks] == []
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_one_graph(device: str) -> None:
    x = torch.randn(4)
    torch.set_default_device(device)
    check(makes, x)


def test_a_training_step() -> None:
    torch.set_default_device("cpu")
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - torch.ones(4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = tatara.compile(step)
    x = torch.randn(3, 4)
    losses = [compiled(x).item() for _ in range(6)]
    assert losses == sorted(losses, reverse=True)
    report = report_of(compiled)
    assert [b.reason for b in report.breaks] == []
    assert len(report.graphs) <= 2  # the first step makes the optimizer's state


def test_another_device_is_another_program() -> None:
    compiled = tatara.compile(makes)
    x = torch.randn(4)
    for device in (None, "cpu", "meta", None, "cpu", "meta"):
        torch.set_default_device(device)
        for _ in range(3):
            same(compiled(x), makes(x))
    assert tatara.stats()["graphs"] == 3


def test_a_device_for_a_block() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        with torch.device("meta"):
            inside = torch.ones(2)
            with torch.device("cpu"):
                innermost = torch.ones(2)
            again = torch.tensor(1.0)
        return inside, innermost, again, torch.ones(2) + x

    check(program, torch.randn(2))


def test_a_block_in_a_default() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        with torch.device("cpu"):
            inside = torch.ones(2) + x
        return inside, torch.ones(2)

    x = torch.randn(2)
    torch.set_default_device("meta")
    check(program, x)


def test_a_break_in_a_block() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.device("meta"):
            before = torch.ones(2)
            value = x.sum().item()
            if value > 0:
                x = x + 1
            after = torch.ones(2)
        return before, after, torch.zeros(2) + x

    compiled = tatara.compile(program)
    for sign in (1, 1, 1, -1, -1, 1):
        x = sign * torch.ones(2)
        same(compiled(x), program(x))
        assert _len_torch_function_stack() == 0


def test_an_exception_in_a_block() -> None:
    def program(x: Tensor) -> Tensor:
        try:
            with torch.device("meta"):
                raise ValueError(torch.ones(2).device.type)
        except ValueError as error:
            return torch.ones(2) + x if error.args == ("meta",) else x

    check(program, torch.randn(2))


def test_the_default_is_asked_for() -> None:
    def program(x: Tensor) -> tuple[Tensor, torch.device]:
        return x + torch.ones(2, device=torch.get_default_device()), torch.get_default_device()

    torch.set_default_device("cpu")
    check(program, torch.randn(2))


class Other(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def test_other_modes_wait() -> None:
    compiled = tatara.compile(makes)
    torch.set_default_device("cpu")
    x = torch.randn(4)
    with Other():
        same(compiled(x), makes(x))
    assert tatara.stats()["fallbacks"] == 1
    for _ in range(3):
        same(compiled(x), makes(x))
    with Other():
        same(compiled(x), makes(x))
    assert tatara.stats()["fallbacks"] == 2
    assert tatara.stats()["graphs"] == 1


def test_a_break_in_a_block_with_classes_left_out() -> None:
    def program(x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunctionSubclass(), torch.device("cpu"):
            if x.sum().item() > 0:
                x = x + torch.ones(2)
        return x

    compiled = tatara.compile(program)
    for sign in (1, 1, -1, 1):
        x = sign * torch.ones(2)
        same(compiled(x), program(x))
        assert torch._C._is_torch_function_enabled()
