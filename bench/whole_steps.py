"""`make bench-steps`: whole training steps as one graph beside the same steps in parts, in one run.

A step is zero_grad, forward, backward, optimizer and a cosine schedule. "split" compiles what gives the loss, as one does
with torch.compile; `tatara` is tatara.compile(step). Each row runs in a process of its own with empty caches; times are
medians of rounds in which all take turns. The losses are compared with eager's over the first steps, from the same weights
and seed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import harness

STEPS = 12


def mlp() -> tuple[Any, Callable[..., Any], tuple[Any, ...]]:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return model, _cross_entropy(model), (torch.randn(128, 64), torch.randint(0, 10, (128,)))


def cnn() -> tuple[Any, Callable[..., Any], tuple[Any, ...]]:
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    model = nn.Sequential(*block(3, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 8 * 8, 10))
    return model, _cross_entropy(model), (torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,)))


def gpt2() -> tuple[Any, Callable[..., Any], tuple[Any, ...]]:
    import torch
    import transformers as tf

    config = tf.GPT2Config(n_layer=2, n_embd=256, n_head=4, vocab_size=5000, use_cache=False)
    model = tf.GPT2LMHeadModel(config).train()

    def loss(ids: Any) -> Any:
        return model(input_ids=ids, labels=ids).loss

    return model, loss, (torch.randint(0, 5000, (4, 64)),)


def _cross_entropy(model: Any) -> Callable[..., Any]:
    import torch

    def loss(x: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(x), labels)

    return loss


MODELS = {"mlp": mlp, "cnn": cnn, "gpt2": gpt2}
OPTIMIZERS = {"sgd": lambda p: _optim().SGD(p, lr=1e-2, momentum=0.9), "adamw": lambda p: _optim().AdamW(p, lr=1e-3)}


def _optim() -> Any:
    import torch

    return torch.optim


def _stepper(way: str, name: str, optimizer_name: str) -> Callable[[], Any]:
    import torch

    import tatara

    torch.manual_seed(0)
    model, loss_of, batch = MODELS[name]()
    if way in ("split", "rival"):
        loss_of = (tatara if way == "split" else torch).compile(loss_of)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    whole = tatara.compile(step) if way == "whole" else step

    def run() -> Any:
        value = whole(*batch)
        schedule.step()
        return value

    return run


def measure(row: str, rounds: int, rival: bool) -> dict[str, Any]:
    import torch

    import tatara

    name, optimizer = row.split("-")
    torch.optim.SGD(
        [torch.zeros(1, requires_grad=True)], lr=0.1
    ).zero_grad()  # torch imports its compiler in here, once
    ways = ["eager", "split", "tatara", *(["rival"] if rival else [])]
    result: dict[str, Any] = {}
    runs, losses = {}, {}
    for way in ways:
        run = _stepper("whole" if way == "tatara" else way, name, optimizer)
        torch.manual_seed(1)
        before = dict(tatara.stats())
        start = time.perf_counter()
        losses[way] = [run().item() for _ in range(2)]
        result[f"{way}_cold_s"] = time.perf_counter() - start
        middle = dict(tatara.stats())
        losses[way] += [run().item() for _ in range(STEPS - 2)]
        if way == "tatara":
            after = tatara.stats()
            for key in ("graphs", "breaks", "fallbacks"):
                result[key] = middle[key] - before[key]
            result["later recompiles"] = sum(after[k] - middle[k] for k in ("recompiles", "graphs", "fallbacks"))
        runs[way] = run
    result["loss_error"] = max(abs(a - b) / abs(b) for a, b in zip(losses["tatara"], losses["eager"], strict=True))
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for way in harness.in_turns(ways, rounds):
        runs[way]()
        start = time.perf_counter()
        for _ in range(3):
            runs[way]()
        samples[way].append((time.perf_counter() - start) / 3)
    result.update({f"{way}_ms": statistics.median(values) * 1e3 for way, values in samples.items()})
    return result


def main() -> int:
    rows = [f"{model}-{optimizer}" for model in MODELS for optimizer in OPTIMIZERS]
    columns = ["row", "tatara_cold_s", "rival_cold_s", "eager_ms", "rival_ms", "split_ms", "tatara_ms", "vs eager"]
    columns += ["vs rival", "vs split", "loss_error", "graphs", "breaks", "fallbacks", "later recompiles"]
    others = ("eager", "rival", "split")
    return harness.run_cases(__file__, __doc__, "row", rows, measure, columns, others, rounds=15)


if __name__ == "__main__":
    raise SystemExit(main())
