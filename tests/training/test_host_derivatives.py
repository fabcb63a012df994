"""Operators that the host differentiates: inside compiled graphs, to any order, beside eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tatara


@pytest.fixture(autouse=True)
def clean() -> None:
    tatara.reset()
    torch.manual_seed(0)


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


def spd(size: int) -> torch.Tensor:
    x = torch.randn(size, size, dtype=torch.float64)
    return (x @ x.mT + size * torch.eye(size, dtype=torch.float64)).requires_grad_()


def places() -> torch.Tensor:
    return torch.tensor([[0, 1, 2, 0, 2], [2, 2, 0, 1, 0], [1, 0, 0, 0, 1]])


def pair(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x.sin(), x.cos() + 0.5)


def weighted(x: torch.Tensor) -> torch.Tensor:
    return torch._weight_norm(x.sin(), x[:, :1].exp(), 0)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], torch.Tensor]]] = {
    "max_pool2d": (lambda x: F.max_pool2d(x.sin(), 2), lambda: leaf(2, 3, 6, 6)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x.sin(), 3, 2, 1), lambda: leaf(2, 3, 6, 6)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x.sin(), (2, 3)), lambda: leaf(2, 3, 6, 7)),
    "interpolate": (lambda x: F.interpolate(x.sin(), scale_factor=2, mode="bilinear"), lambda: leaf(1, 2, 4, 4)),
    "sort": (lambda x: x.sin().sort(-1).values, lambda: leaf(3, 5)),
    "topk": (lambda x: x.sin().topk(2).values, lambda: leaf(3, 5)),
    "median": (lambda x: x.sin().median(1).values, lambda: leaf(3, 5)),
    "cumprod": (lambda x: x.sin().cumprod(1), lambda: leaf(3, 5)),
    "inv": (lambda x: torch.linalg.inv(x), lambda: spd(4)),
    "cholesky": (lambda x: torch.linalg.cholesky(x), lambda: spd(4)),
    "slogdet": (lambda x: torch.linalg.slogdet(x).logabsdet, lambda: spd(4)),
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(x + x.mT), lambda: spd(4)),
    "svdvals": (lambda x: torch.linalg.svdvals(x), lambda: leaf(4, 3)),
    "fft": (lambda x: torch.fft.rfft(x.sin()).abs(), lambda: leaf(3, 8)),
    "nearest": (lambda x: F.interpolate(x.sin(), size=(5, 7), mode="nearest"), lambda: leaf(1, 2, 4, 4)),
    "bicubic": (lambda x: F.interpolate(x.sin(), size=(5, 7), mode="bicubic"), lambda: leaf(1, 2, 4, 4)),
    "largest_by_place": (
        lambda x: torch.zeros_like(x).scatter_reduce(0, places(), x.sin(), "amax"),
        lambda: leaf(3, 5),
    ),
    "product_by_place": (lambda x: torch.ones_like(x).scatter_reduce(1, places(), x.sin(), "prod"), lambda: leaf(3, 5)),
    "weight_norm": (weighted, lambda: leaf(3, 5)),
    "embedding_by_frequency": (
        lambda x: F.embedding(places(), x.sin(), scale_grad_by_freq=True).cos(),
        lambda: leaf(3, 5),
    ),
    "complex_sine": (lambda x: (pair(x).sin() / pair(x).tanh()).abs(), lambda: leaf(3, 5)),
    "complex_power": (lambda x: (pair(x) ** 1.5 + pair(x) ** pair(x.t()).t() + 2 ** pair(x)).real, lambda: leaf(3, 5)),
    "complex_base": (lambda x: ((1 + 2j) ** pair(x) + (0.5 - 1j) ** x).imag, lambda: leaf(3, 5)),
    "complex_spread": (lambda x: pair(x).var(1) + pair(x).std(0).sum(), lambda: leaf(3, 5)),
    "complex_norm": (
        lambda x: pair(x).norm(dim=1) + torch.linalg.vector_norm(pair(x), 3, dim=1) + pair(x).norm(1, dim=1),
        lambda: leaf(3, 5),
    ),
    "complex_addcdiv": (
        lambda x: (
            torch.addcdiv(pair(x), pair(x.cos()), pair(-x), value=0.5).angle() + pair(x).addcmul(pair(x), pair(x)).imag
        ),
        lambda: leaf(3, 5),
    ),
    "complex_convolution": (
        lambda x: F.conv1d(pair(x)[None], pair(x.cos())[:, None, :2], groups=3).abs(),
        lambda: leaf(3, 5),
    ),
    "addmv": (lambda x: torch.addmv(x[0], x[:, :3].t(), x[:, 0], beta=0.5, alpha=2), lambda: leaf(4, 3)),
}


def orders(function: Callable[..., Any], x: torch.Tensor, count: int) -> list[torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    value = function(x)
    found = [value.detach()]
    for order in range(count):
        weights = torch.linspace(0.5, 1.5, value.numel(), dtype=torch.float64).view_as(value)
        (value,) = torch.autograd.grad((value * weights).sin().sum(), x, create_graph=order + 1 < count)
        found.append(value.detach())
    return found


@pytest.mark.parametrize("name", CASES)
def test_three_orders(name: str) -> None:
    function, make = CASES[name]
    x = make()
    compiled = tatara.compile(function)
    for _ in range(2):
        for ours, theirs in zip(orders(compiled, x, 3), orders(function, x, 3), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    assert tatara.stats()["fallbacks"] == 0
    assert tatara.stats()["breaks"] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum().cumprod(0) * 2,
        lambda x: x.sum().logcumsumexp(0).sin(),
        lambda x: F.pixel_shuffle((x * 2).view(1, 4, 2, 2), 2).sin(),
        lambda x: F.channel_shuffle((x * 2).view(1, 4, 2, 2), 2).sin(),
    ],
    ids=["cumprod", "logcumsumexp", "pixel_shuffle", "channel_shuffle"],
)
def test_gradients_that_the_host_makes_of_its_operands_own_their_memory(function: Callable[..., Any]) -> None:
    x = leaf(4, 4)
    compiled = tatara.compile(function)
    for _ in range(3):
        for ours, theirs in zip(orders(compiled, x, 2), orders(function, x, 2), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_only_the_wanted_operands() -> None:
    def step(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(a, b)

    compiled = tatara.compile(step)
    a, b = spd(3), leaf(3, 2)
    for _ in range(2):
        for operands in ((a, b), (a.detach(), b), (a, b.detach())):
            wanted = [t for t in operands if t.requires_grad]
            ours = torch.autograd.grad(compiled(*operands).sum(), wanted)
            for left, right in zip(ours, torch.autograd.grad(step(*operands).sum(), wanted), strict=True):
                torch.testing.assert_close(left, right)
    assert tatara.stats()["fallbacks"] == 0


def test_views_of_the_hosts_zeros_as_cotangents() -> None:
    """The gradient of abs at 0 comes as a tensor without memory, that of eigh laid out by columns."""

    def decompose(x: torch.Tensor) -> Any:
        return torch.linalg.eigh(x + x.mT)

    compiled = tatara.compile(decompose)
    x = spd(3)
    for function in (decompose, compiled, compiled):
        values, vectors = function(x)
        (g,) = torch.autograd.grad(values.sum() + vectors.abs().sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        if function is decompose:
            expected = (g.detach(), h)
        torch.testing.assert_close((g.detach(), h), expected, rtol=1e-7, atol=1e-7)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, stride=2)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.adaptive_avg_pool2d(F.gelu(self.second(x)), 1)
        return self.last(F.dropout(x.flatten(1), 0.2))


def test_a_convolutional_network_trains_in_one_graph() -> None:
    ours = Small()
    theirs = copy.deepcopy(ours)

    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    compiled = tatara.compile(step)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (ours, theirs)]
    batches = [(torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))) for _ in range(6)]
    for number, (x, y) in enumerate(batches):
        losses = []
        for function, model, optimizer in ((compiled, ours, optimizers[0]), (step, theirs, optimizers[1])):
            torch.manual_seed(number)
            loss = function(model, x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    stats = tatara.stats()
    assert (stats["graphs"], stats["breaks"], stats["fallbacks"], stats["recompiles"]) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("AdamW", {"lr": 0.01}), ("Adagrad", {"lr": 0.01})],
)
def test_whole_steps_are_eagers(name: str, options: dict[str, Any]) -> None:
    """backward(), the optimizer and the schedule inside of the compiled function: right, though in parts."""

    def make() -> tuple[nn.Module, Callable[..., Any], Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach()

        return model, step, optimizer

    ours, theirs = make(), make()
    compiled = tatara.compile(ours[1])
    for _ in range(6):
        x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
        torch.testing.assert_close(compiled(x, y), theirs[1](x, y))
    for a, b in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a.grad, b.grad)
    assert ours[2].param_groups[0]["lr"] == theirs[2].param_groups[0]["lr"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: F.linear(x, y),
        lambda x, y: x.prod(0) + y.prod(1),
        lambda x, y: torch.linalg.multi_dot([x, y.mT, x]),
        lambda x, y: torch.linalg.matrix_exp(x @ y / 8),
        lambda x, y: torch.fft.hfft(x).sum() + y.abs().sum(),
    ],
    ids=["linear", "prod", "multi_dot", "matrix_exp", "hfft"],
)
def test_complex_numbers(function: Callable[..., Any]) -> None:
    operands = [torch.randn(4, 4, dtype=torch.complex128, requires_grad=True) for _ in range(2)]

    def both(call: Callable[..., Any]) -> list[torch.Tensor]:
        result = call(*operands)
        first = torch.autograd.grad(result.abs().square().sum(), operands, create_graph=True)
        total = sum(g.abs().square().sum() for g in first)
        return [result.detach(), *(g.detach() for g in first), *torch.autograd.grad(total, operands)]

    compiled = tatara.compile(function)
    expected = both(function)
    for _ in range(2):
        for ours, theirs in zip(both(compiled), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_steps_with_backward_make_graphs_once() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    compiled = tatara.compile(step)
    graphs = []
    for _ in range(5):
        compiled(torch.randn(6, 8), torch.randint(0, 4, (6,)))
        graphs.append(tatara.stats()["graphs"])
    assert graphs[-1] == graphs[1]


def test_ints_that_vary() -> None:
    """An int argument of a training graph becomes a symbol, or recompiles: the gradients are right."""

    def step(x: torch.Tensor, w: torch.Tensor, n: int) -> torch.Tensor:
        return (x[:n] @ w * n).sum() + x.narrow(0, 1, n).square().mean()

    compiled = tatara.compile(step)
    for n in (3, 4, 5, 6, 2):
        operands = [leaf(8, 3), leaf(3, 2)]
        copies = [t.detach().clone().requires_grad_() for t in operands]
        compiled(*operands, n).backward()
        step(*copies, n).backward()
        for a, b in zip(operands, copies, strict=True):
            torch.testing.assert_close(a.grad, b.grad)
