"""`make bench-train-gpu`: forward and backward of transformers with random weights on a GPU, under autocast to float16,
beside eager and torch.compile's default mode in one run.

Each model runs in a process of its own with empty caches. Times are of steps back to back, by events on the GPU, medians of
rounds in which all take turns; `host_us` is what a step of ours takes on the host. A cold time is that of the first two
steps (the second is the first whose backward is compiled) less two usual ones. The error is that of the loss and of all
gradients together against a float32 step, as a multiple of eager's; peak memory is what a step takes over what was held
before it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import harness
import models_gpu
import train


def _stepper(way: str, name: str, model: Any, inputs: dict[str, Any], half: bool = True) -> Callable[[], Any]:
    import torch

    import tatara

    loss_of = train.loss_of(model, name, "cuda")
    if way == "tatara":
        loss_of = tatara.compile(loss_of)
    elif way == "rival":
        loss_of = torch.compile(loss_of)

    def step() -> Any:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16, enabled=half):
            loss = loss_of(**inputs)
        loss.backward()
        return loss.detach()

    return step


def _errors(model: Any, step: Callable[[], Any], loss: Any, gradients: list[Any]) -> tuple[float, float]:
    """Of the loss and, by their norm, of the gradients that a step leaves."""
    import torch

    torch.manual_seed(train.SEED)
    of_loss = abs(step().item() - loss) / abs(loss)
    pairs = list(zip((p.grad for p in model.parameters()), gradients, strict=True))
    if any((ours is None) != (theirs is None) for ours, theirs in pairs):
        raise SystemExit("a gradient is missing")
    known = [(ours, theirs) for ours, theirs in pairs if theirs is not None]
    off = sum((ours.double() - theirs.double()).square().sum().item() for ours, theirs in known)
    return of_loss, (off / sum(theirs.double().square().sum().item() for _, theirs in known)) ** 0.5


def without_dropout(model: Any) -> None:
    """So that errors can be compared. Rates are in modules, in attributes of these and in the configuration."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "dropout_prob", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    for name in ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "dropout_rate"):
        if hasattr(model.config, name):
            setattr(model.config, name, 0.0)


def _exact(name: str, model: Any, inputs: dict[str, Any], double: bool) -> tuple[float, list[Any]]:
    """Loss and gradients of a step in float32, or in float64."""
    import torch

    if double:
        model.double()
        inputs = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
    loss = _stepper("eager", name, model, inputs, half=False)().item()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    if double:
        model.to(torch.float32)
    return loss, gradients


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures one model in this process. Times in milliseconds, compile times in seconds, memory in megabytes."""
    import torch

    import tatara

    torch.manual_seed(0)
    model = models_gpu.builders()[name]().train().cuda()
    if not arguments.dropout:
        without_dropout(model)
    inputs = models_gpu.inputs_of(name, arguments.batch, arguments.length)
    loss, gradients = _exact(name, model, inputs, arguments.float32)
    result: dict[str, Any] = {"model": name}
    ways = ["eager", "tatara", *([] if arguments.no_rival else ["rival"])]
    runs = {way: _stepper(way, name, model, inputs, half=not arguments.float32) for way in ways}
    runs["eager"]()
    torch.cuda.synchronize()
    spent = {}
    for way in ways[1:]:
        before = tatara.stats()
        start = time.perf_counter()
        for _ in range(2):
            runs[way]()
        torch.cuda.synchronize()
        spent[way] = time.perf_counter() - start
        if way == "tatara":
            after = tatara.stats()
            keys = ("graphs", "breaks", "fallbacks", "recompiles", "kernels_compiled")
            result.update({key: after[key] - before[key] for key in keys})
    errors = {way: _errors(model, runs[way], loss, gradients) for way in ways}
    del gradients
    model.zero_grad(set_to_none=True)
    for i, what in enumerate(("loss", "gradients")):
        result[f"error_{what}"] = errors["tatara"][i] / max(errors["eager"][i], 1e-7)
    for way in ways:
        model.zero_grad(set_to_none=True)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        runs[way]()
        result[f"{way}_mb"] = (torch.cuda.max_memory_allocated() - held) / 1e6
    result.update(models_gpu.take_turns(runs, arguments.rounds))
    for way in ways[1:]:
        result[f"{way}_cold_s"] = spent[way] - 2e-3 * result[f"{way}_ms"]
    return result


def main() -> int:
    parser = models_gpu.parser_of(__doc__)
    parser.add_argument("--dropout", action="store_true", help="with the model's rates; errors then mean nothing")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments)))
        return 0
    columns = ["model", *harness.TIMES, "host_us", "error_loss", "error_gradients", "eager_mb", "rival_mb", "tatara_mb"]
    columns += ["graphs", "breaks", "fallbacks", "recompiles", "kernels_compiled"]
    names = arguments.models or list(models_gpu.builders())
    options = harness.options_of(arguments, "batch", "length", "rounds") + ["--dropout"] * arguments.dropout
    options += ["--float32"] * arguments.float32
    return harness.run_rows(__file__, "model", names, options, columns, ("eager", "rival"), arguments.gpus)


if __name__ == "__main__":
    raise SystemExit(main())
