"""One of two processes that train with DistributedDataParallel (gloo); prints what it saw as JSON. Run by test_distributed."""

from __future__ import annotations

import copy
import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tatara

STEPS = 8


def block(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, 32), nn.ReLU(), nn.Linear(32, b))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = block(8, 16), block(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


def compiled_inside(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(tatara.compile(model))


def compiled_outside(model: nn.Module) -> nn.Module:
    return tatara.compile(DistributedDataParallel(model))  # type: ignore[no-any-return]


def compiled_blocks(model: Any) -> nn.Module:
    model.first, model.second = tatara.compile(model.first), tatara.compile(model.second)
    return DistributedDataParallel(model, bucket_cap_mb=0.001)


def train(model: nn.Module, rank: int) -> list[Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(2 * step + rank)
        x, y = torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return [losses, [p.detach().clone() for p in model.parameters()]]


def differences(way: Any, rank: int) -> dict[str, Any]:
    """The largest difference of losses and parameters from those of DistributedDataParallel in eager."""
    torch.manual_seed(0)
    plain = Net()
    other = copy.deepcopy(plain)
    before = dict(tatara.stats())
    losses, parameters = train(way(plain), rank)
    after = tatara.stats()
    expected_losses, expected = train(DistributedDataParallel(other), rank)
    return {
        "losses": max(abs(a - b) for a, b in zip(losses, expected_losses, strict=True)),
        "parameters": max(float((a - b).abs().max()) for a, b in zip(parameters, expected, strict=True)),
        **{name: after[name] - before[name] for name in ("graphs", "recompiles", "fallbacks", "kernels_launched")},
    }


def events(rank: int) -> list[str]:
    """In which order buckets are reduced and the first of two compiled blocks gets its gradient."""
    seen: list[str] = []
    torch.manual_seed(0)
    model: Any = compiled_blocks(Net())

    def reduce(state, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN - torch looks at annotations
        seen.append("bucket")
        work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, reduce)

    def watch(module: nn.Module, given: Any, result: Any) -> None:
        result.register_hook(lambda g: seen.append("first block"))

    model.module.first.register_forward_hook(watch)
    for _ in range(3):
        seen.clear()
        model(torch.randn(6, 8)).sum().backward()
    return seen


def main() -> None:
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    found: dict[str, Any] = {
        way.__name__: differences(way, rank) for way in (compiled_inside, compiled_outside, compiled_blocks)
    }
    found["events"] = events(rank)
    print(json.dumps(found), flush=True)
    dist.destroy_process_group()
    # gloo's threads let go of Python objects (a work's thread-local state, a hook's callback) after the work is done: where
    # the interpreter ends meanwhile, the thread that asks for its lock is ended within a destructor and the process
    # aborts, in eager too. So it does not end.
    os._exit(0)


if __name__ == "__main__":
    main()
