"""Graphs that work on the CPU and on a GPU: each device's part is compiled, and torch copies between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.usefixtures("fresh"),
]


def _table_of_the_cpu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.arange(x.shape[-1]).float() * 0.5
    y = x.sin() * 2
    return (y + table.to(x.device)).cos(), table


def _there_and_back(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = x.sin() * 3
    low = h.cpu().tanh() * 2 + 1
    return (low.to(x.device) * h).cos() + 1, low


def _to_another_tensor(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.ones(x.shape[-1], dtype=torch.float64)
    return x + table.to(x), x * table.type_as(x)


def _index_of_the_cpu(x: torch.Tensor) -> torch.Tensor:
    order = torch.arange(x.shape[-1] - 1, -1, -1)
    return (x.sin()[:, order] * 2).cos()


def _number_of_the_cpu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = torch.tensor(0.5)
    return (x * scale).sin(), scale + 1


def _asks_for_the_device(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(x.shape[-1]).to(x.device)
    places.unsqueeze_(0)
    scaled = torch.tensor(2.0) * x
    return torch.ones(x.shape[-1], device=places.device) - places * x, torch.zeros(2, device=scaled.device)


def _drops_layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        if torch.rand([]) < 0.5:
            x = (x.sin() * 2).cos()
    return x + 1


def _writes_across(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.shape)
    out.copy_(x.sin())
    y = x.cos()
    y.copy_(out * 2)
    return y + 1


PROGRAMS = [
    _table_of_the_cpu,
    _there_and_back,
    _to_another_tensor,
    _index_of_the_cpu,
    _number_of_the_cpu,
    _asks_for_the_device,
    _drops_layers,
    _writes_across,
]


def _check(got: Any, wanted: Any, rtol: float | None = None) -> None:
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, wanted)), strict=True):
        assert a.device == b.device and a.stride() == b.stride() and a.requires_grad == b.requires_grad
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_both_devices(program: Callable[..., Any], training: bool) -> None:
    compiled = tatara.compile(program)
    for size in (8, 8, 8, 12, 12):
        x = torch.randn(3, size, device="cuda", requires_grad=training)
        results = []
        for f in (compiled, program):
            torch.manual_seed(7)
            x.grad = None
            result = f(x)
            first = result[0] if isinstance(result, tuple) else result
            if training:
                first.sum().backward()
                results.append((result, x.grad.clone()))
            else:
                results.append((result, x.detach()))
        _check(results[0][0], results[1][0])
        torch.testing.assert_close(results[0][1], results[1][1])


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_constants_of_the_cpu_are_made_on_the_gpu(training: bool) -> None:
    """Positions and indices that the program makes on the CPU in each call cut nothing, for any size."""

    def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        n = x.shape[-1]
        apart = torch.arange(n)[:, None] - torch.arange(n)[None, :] + n - 1
        places = torch.log1p(torch.arange(n, dtype=torch.float32)).to(x.device)
        scale = torch.full((n,), 0.5).to(x)
        x = x * torch.tensor(2.0).to("cuda")
        return (x.sin() * scale + places) @ table[apart] + table[torch.tensor([0, 1]).max()]

    compiled = tatara.compile(f, dynamic=True)
    table = torch.randn(40, device="cuda", requires_grad=training)
    for size in (8, 8, 12, 12, 16):
        x = torch.randn(3, size, device="cuda", requires_grad=training)
        results = []
        for call in (compiled, f):
            y = call(x, table)
            results.append([y, *torch.autograd.grad(y.square().sum(), (x, table))] if training else [y])
        _check(tuple(results[0]), tuple(results[1]), rtol=1e-4)
    with counts() as grown:
        compiled(x, table)
    assert grown["graphs"] == grown["breaks"] == grown["fallbacks"] == grown["recompiles"] == 0
    report = str(tatara.explain(f)(x, table))
    assert "several devices" not in report and "host call to at" not in report


def test_parts_are_compiled() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        h = x
        for _ in range(20):
            h = h.sin() * 2
        low = h.cpu()
        for _ in range(20):
            low = low.cos() + 1
        h = low.to(x.device)
        for _ in range(20):
            h = h.tanh() + 1
        return h

    compiled = tatara.compile(f)
    x = torch.randn(64, 64, device="cuda")
    with torch.no_grad():
        compiled(x)
        with counts() as grown:
            torch.testing.assert_close(compiled(x), f(x))
    assert grown["kernels_launched"] == 3 and grown["host_calls"] == 2
    assert grown["fallbacks"] == grown["breaks"] == 0


def test_wrong_devices_raise_as_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + torch.ones(x.shape).cos()

    x = torch.randn(4, device="cuda")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="same device"):
            tatara.compile(f)(x)
