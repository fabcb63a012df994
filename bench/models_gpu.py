"""`make bench-models-gpu`: transformers with random weights on a GPU, in float16 without gradients, beside eager and
torch.compile (default and maximal mode) in one run.

Each model runs in a process of its own with empty caches. Times are of calls back to back, by events on the GPU, medians
of rounds in which all take turns; `host_us` is what a call of ours takes on the host. The error is the largest difference
from a float32 run (of float32 from float64), as a multiple of eager's.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import harness

CALLS = 5


def builders() -> dict[str, Callable[[], Any]]:
    import transformers as tf

    def without_cache(config: Any) -> Any:
        config.use_cache = False
        return config

    qwen3 = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
    qwen3 |= {"num_key_value_heads": 8, "vocab_size": 151936, "head_dim": 128}
    return {
        "bert": lambda: tf.BertModel(tf.BertConfig()),
        "gpt2": lambda: tf.GPT2LMHeadModel(without_cache(tf.GPT2Config())),
        "distilbert": lambda: tf.DistilBertModel(tf.DistilBertConfig()),
        "t5": lambda: tf.T5ForConditionalGeneration(without_cache(tf.T5Config())),
        "qwen3": lambda: tf.Qwen3ForCausalLM(without_cache(tf.Qwen3Config(**qwen3))),
        "vit": lambda: tf.ViTModel(tf.ViTConfig()),
    }


def inputs_of(name: str, batch: int, length: int) -> dict[str, Any]:
    import torch

    if name == "vit":
        return {"pixel_values": torch.randn(batch, 3, 224, 224, device="cuda")}
    ids = torch.randint(0, 30000, (batch, length), device="cuda")
    return {"input_ids": ids, "decoder_input_ids": ids.clone()} if name == "t5" else {"input_ids": ids}


def _as_type(inputs: dict[str, Any], dtype: Any) -> dict[str, Any]:
    return {key: x.to(dtype) if x.is_floating_point() else x for key, x in inputs.items()}


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures one model in this process. Times in milliseconds, compile times in seconds."""
    import torch

    import tatara
    import zoo

    torch.manual_seed(0)
    model = builders()[name]().eval().cuda()
    inputs = inputs_of(name, arguments.batch, arguments.length)
    result: dict[str, Any] = {"model": name}
    with torch.no_grad():
        exact, dtype = (torch.float64, torch.float32) if arguments.float32 else (torch.float32, torch.float16)
        reference = zoo.first_tensor(model.to(exact)(**_as_type(inputs, exact))).float()
        model.to(dtype)
        inputs = _as_type(inputs, dtype)
        eager = zoo.first_tensor(model(**inputs))
        torch.cuda.synchronize()
        compiled = tatara.compile(model)
        before = tatara.stats()
        start = time.perf_counter()
        output = zoo.first_tensor(compiled(**inputs))
        torch.cuda.synchronize()
        result["tatara_cold_s"] = time.perf_counter() - start
        errors = [(x.float() - reference).abs().max().item() for x in (output, eager)]
        result["error_ratio"] = errors[0] / errors[1] if errors[1] else (0.0 if errors[0] == 0 else math.inf)
        after = tatara.stats()
        result.update({key: after[key] - before[key] for key in ("graphs", "breaks", "fallbacks", "kernels_compiled")})
        runs: dict[str, Any] = {"eager": lambda: model(**inputs), "tatara": lambda: compiled(**inputs)}
        for mode in [] if arguments.no_rival else ["default", "max-autotune"]:
            other = torch.compile(model, mode=mode)
            start = time.perf_counter()
            other(**inputs)
            torch.cuda.synchronize()
            result[f"{mode}_cold_s"] = time.perf_counter() - start
            runs[mode] = lambda run=other: run(**inputs)
        result.update(take_turns(runs, arguments.rounds))
        again = (zoo.first_tensor(compiled(**inputs)).float() - reference).abs().max().item()
        result["error_ratio"] = max(result["error_ratio"], again / errors[1] if errors[1] else 0.0)
    return result


def take_turns(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    import torch

    samples: dict[str, list[float]] = {key: [] for key in runs}
    host: list[float] = []
    for run in runs.values():
        for _ in range(3):
            run()
    for key in harness.in_turns(list(runs), rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        start = time.perf_counter()
        for _ in range(CALLS):
            runs[key]()
        spent = time.perf_counter() - start
        end.record()
        torch.cuda.synchronize()
        samples[key].append(begin.elapsed_time(end) / CALLS)
        if key == "tatara":
            host.append(spent / CALLS * 1e6)
    result = {f"{key}_ms": statistics.median(values) for key, values in samples.items()}
    result["host_us"] = statistics.median(host)
    return result


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark of these models."""
    parser = harness.parser_of(description, "models", list(builders()), rounds=10)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--float32", action="store_true", help="in float32 throughout")
    harness.add_gpus(parser)
    return parser


def main() -> int:
    arguments = parser_of(__doc__).parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments)))
        return 0
    columns = ["model", "tatara_cold_s", "default_cold_s", "max-autotune_cold_s", "eager_ms", "default_ms"]
    columns += [
        "max-autotune_ms",
        "tatara_ms",
        "vs eager",
        "vs default",
        "vs max-autotune",
        "host_us",
        "error_ratio",
        "graphs",
    ]
    columns += ["breaks", "fallbacks", "kernels_compiled"]
    names = arguments.models or list(builders())
    options = harness.options_of(arguments, "batch", "length", "rounds") + ["--float32"] * arguments.float32
    others = ("eager", "default", "max-autotune")
    return harness.run_rows(__file__, "model", names, options, columns, others, arguments.gpus)


if __name__ == "__main__":
    raise SystemExit(main())
