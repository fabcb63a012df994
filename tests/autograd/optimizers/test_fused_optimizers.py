"""Torch's fused optimizers and GradScaler inside of whole steps: one graph, with eager's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.optim import SGD, Adagrad, Adam, AdamW  # noqa: E402

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]

SHAPES = ((3, 4), (4, 2), ())

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "AdamW": lambda p: AdamW(p, lr=1e-2, fused=True),
    "AdamW amsgrad": lambda p: AdamW(p, lr=1e-2, amsgrad=True, maximize=True, fused=True),
    "AdamW tensor": lambda p: AdamW(p, lr=torch.tensor(1e-2), weight_decay=0.1, fused=True),
    "Adam": lambda p: Adam(p, lr=1e-2, weight_decay=0.1, fused=True),
    "Adam tensor": lambda p: Adam(p, lr=torch.tensor(1e-2), betas=(0.7, 0.8), fused=True),
    "SGD": lambda p: SGD(p, lr=1e-2, fused=True),
    "SGD momentum": lambda p: SGD(p, lr=1e-2, momentum=0.9, dampening=0.1, weight_decay=0.1, fused=True),
    "SGD nesterov": lambda p: SGD(p, lr=1e-2, momentum=0.9, nesterov=True, maximize=True, fused=True),
    "SGD tensor": lambda p: SGD(p, lr=torch.tensor(1e-2), momentum=0.9, fused=True),
    "Adagrad": lambda p: Adagrad(p, lr=1e-2, lr_decay=0.1, weight_decay=0.1, fused=True),
    "Adagrad maximize": lambda p: Adagrad(p, lr=1e-2, maximize=True, initial_accumulator_value=0.1, fused=True),
}


def _train(
    compiled: bool,
    make: Callable[[Any], Any],
    dtype: Any = torch.float32,
    scale: bool = False,
    unscale: bool = False,
    steps: int = 10,
) -> list[list[Any]]:
    """All that can be seen after each step; with `scale` the fourth and the seventh have gradients that are no numbers."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]
    optimizer = make(parameters)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2, enabled=scale)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        for p in parameters[:-1]:
            x = torch.tanh(x @ p)
        loss = ((x + parameters[-1]) ** 2).mean()
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    run = tatara.compile(step) if compiled else step
    seen = []
    for number in range(steps):
        x = torch.randn(5, 3).to(dtype)
        if scale and number in (3, 6):
            x[0, 0] = float("nan")
        loss = run(x)
        scheduler.step()
        state = [v for each in optimizer.state_dict()["state"].values() for v in each.values()]
        tensors = [loss, *parameters, *[p.grad for p in parameters], *[v for v in state if isinstance(v, torch.Tensor)]]
        seen.append(
            [*[t.detach().clone() for t in tensors], scaler.get_scale(), scaler.state_dict().get("_growth_tracker")]
        )
        assert not scale or not scaler._per_optimizer_states
    return seen


def _check(make: Callable[[Any], Any], **options: Any) -> dict[str, Any]:
    expected = _train(False, make, **options)
    with counts() as grown:
        same(_train(True, make, **options), expected, equal_nan=True)
    return {k: grown[k] for k in ("graphs", "breaks", "fallbacks", "recompiles")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_graph(name: str, dtype: Any) -> None:
    found = _check(OPTIMIZERS[name], dtype=dtype)
    assert (found["breaks"], found["fallbacks"]) == (0, 0)
    assert found["recompiles"] <= 1  # the rate becomes a number that varies


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_scaled(name: str, unscale: bool) -> None:
    found = _check(OPTIMIZERS[name], scale=True, unscale=unscale)
    assert (found["breaks"], found["fallbacks"]) == (0, 0)
    assert found["recompiles"] <= 2  # the scale is a tensor from the first step on


@pytest.mark.smoke
@pytest.mark.parametrize("unscale", [False, True])
def test_scaled_without_a_fused_step(unscale: bool) -> None:
    """Whether there is a step at all is asked by GradScaler: a condition of the graph."""
    found = _check(lambda p: Adam(p, lr=1e-2), scale=True, unscale=unscale, steps=3)
    assert (found["breaks"], found["fallbacks"]) == (0, 0)
    _check(lambda p: Adam(p, lr=1e-2), scale=True, unscale=unscale, steps=9)  # with steps that are left out


@pytest.mark.parametrize("found_inf", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_operands_of_the_kernel(found_inf: float, dtype: Any) -> None:
    def run(compiled: bool) -> list[Any]:
        torch.manual_seed(1)
        lists = [[torch.randn(4, 3).to(dtype).abs() for _ in range(2)] for _ in range(5)]
        steps = [torch.tensor(3.0), torch.tensor(5.0)]
        options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": True}

        def step(scale: Any, bad: Any) -> None:
            torch._fused_adamw_(*lists, steps, **options, maximize=False, grad_scale=scale, found_inf=bad)

        go = tatara.compile(step) if compiled else step
        with torch.no_grad():
            for _ in range(3):
                go(torch.tensor(4.0), torch.tensor(found_inf))
        return [t for each in lists for t in each] + steps

    for a, e in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(a, e)
    assert [tatara.stats()[k] for k in ("graphs", "breaks", "fallbacks")] == [1, 0, 0]


def test_a_device_is_no_tensor() -> None:
    compiled = tatara.compile(lambda x: x.to(torch.device("cpu")) * 2 if x.device != torch.device("meta") else x)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert [tatara.stats()[k] for k in ("graphs", "breaks", "fallbacks")] == [1, 0, 0]
