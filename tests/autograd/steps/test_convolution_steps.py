"""Steps of networks with convolutions, BatchNorm and pooling: their gradients, and what their plans are made of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tatara

pytestmark = pytest.mark.usefixtures("fresh")


def gradient(function: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().clone().requires_grad_()
    value = function(leaf)
    weights = torch.linspace(-1, 1, value.numel(), dtype=x.dtype).view(value.shape)
    (result,) = torch.autograd.grad((value * weights).sum(), leaf)
    return result


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (3, 8, 9), (2, 3, 5, 6, 7)])
@pytest.mark.parametrize("kernel, stride", [(2, None), (2, 3), (3, 1), (3, 2)])
def test_gradients_of_maximum_pooling(shape: tuple[int, ...], kernel: int, stride: int | None) -> None:
    """Small whole numbers: many elements are equal, and the first of them wins."""
    pool: Callable[..., Any] = F.max_pool3d if len(shape) == 5 else F.max_pool2d
    x = torch.randint(-2, 3, shape).float()
    layouts = [x, x.to(memory_format=torch.channels_last)] if len(shape) == 4 else [x]
    for padding, dilation, ceil, images in itertools.product((0, 1), (1, 2), (False, True), layouts):

        def pooled(y: torch.Tensor, p: int = padding, d: int = dilation, c: bool = ceil) -> torch.Tensor:
            return pool(y, kernel, stride, p, d, c)

        tatara.reset()
        ours, theirs = gradient(tatara.compile(pooled), images), gradient(pooled, images)
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
        assert tatara.stats()["fallbacks"] == 0


def test_nan_and_infinity_win_as_in_eager() -> None:
    x = torch.full((1, 1, 4, 4), -torch.inf)
    x[0, 0, 0, 1] = torch.nan
    x[0, 0, 1, 0] = torch.inf
    assert torch.equal(
        gradient(tatara.compile(lambda y: F.max_pool2d(y, 2)), x), gradient(lambda y: F.max_pool2d(y, 2), x)
    )


def test_windows_too_many_for_one_element_are_the_hosts() -> None:
    x = torch.randn(1, 2, 40, 40)
    assert torch.equal(
        gradient(tatara.compile(lambda y: F.max_pool2d(y, 4, 1, 0, 5)), x),
        gradient(lambda y: F.max_pool2d(y, 4, 1, 0, 5), x),
    )


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 8 * 8, 10))


def stepper(model: nn.Module) -> Callable[..., Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def step(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_whole_step_stays_channels_last(two_threads: None) -> None:
    """The images are laid out anew where they come in and where they are flattened, and nothing waits for one thread."""
    batch = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    ours, theirs = network(), network()
    theirs.load_state_dict(ours.state_dict())
    step, eager = tatara.compile(stepper(ours)), stepper(theirs)
    for _ in range(3):
        torch.testing.assert_close(step(*batch), eager(*batch), rtol=1e-4, atol=1e-5)
    with tatara.kernel_history() as history:
        torch.testing.assert_close(step(*batch), eager(*batch), rtol=1e-4, atol=1e-5)
    launches = [event for event in history.events if event.kind == "launch"]
    weights = 32 * 16 * 3 * 3 * 4  # the gradients of weights come back to the weights' layout
    assert sum("relayout" in event.operators for event in launches if event.bytes > 8 * weights) == 2
    big = [event for event in launches if event.bytes > 1 << 20]
    assert len(big) >= 10
    assert all(event.iterations >= 2 for event in big)
    hosts = {event.name for event in history.events if event.kind == "host_call"}
    assert hosts == {"aten::convolution", "aten::convolution_backward"}
    for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)
        assert left.grad is not None and right.grad is not None
        assert left.grad.stride() == right.grad.stride()
