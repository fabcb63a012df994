"""`make zoo`: every architecture of transformers that a small configuration can build, compiled, beside eager.

Each model, with a padding mask where it takes one, at two sizes, in inference and in training: is the result eager's, how
many graphs, which breaks and why, what runs in eager, how long does the first call take, how fast are later ones. Rows are
JSON lines in bench/out/zoo-DEVICE.jsonl; a run goes on where the last one stopped (--fresh begins anew). `--page` prints the
table of the rows that there are.

usage: zoo_sweep.py [MODEL ...] [--fresh] [--page] [-j JOBS] [--rounds N] [--part K/N]
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ((2, 16), (3, 24))  # batch and length; the mask pads differently
BELOW = 0.95  # of eager's speed: a finding
ENOUGH_MS = 0.02


def _tensors(value: Any, found: list[Any]) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _tensors(item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _tensors(item, found)
    return found


def _difference(ours: Any, theirs: Any) -> float:
    """The largest difference between two results, as a multiple of the largest value of its tensor; inf: other kinds."""
    import torch

    a, b = _tensors(ours, []), _tensors(theirs, [])
    if type(ours) is not type(theirs) or len(a) != len(b):
        return math.inf
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        if (x.dtype, x.shape, x.stride()) != (y.dtype, y.shape, y.stride()):
            return math.inf
        if not (x.is_floating_point() or x.is_complex()):
            worst = max(worst, 0.0 if torch.equal(x, y) else math.inf)
            continue
        if not torch.equal(x.isfinite(), y.isfinite()):
            return math.inf
        x, y = x.detach().double().nan_to_num(0, 0, 0), y.detach().double().nan_to_num(0, 0, 0)
        if x.numel():
            worst = max(worst, float((x - y).abs().max() / max(float(y.abs().max()), 1e-3)))
    return worst


def _loss(result: Any) -> Any:
    terms = [t.float().square().mean() for t in _tensors(result, []) if t.is_floating_point() and t.requires_grad]
    return sum(terms[1:], terms[0])


def _times(runs: dict[str, Any], rounds: int) -> dict[str, float]:
    """Milliseconds of each, medians over rounds in which they take turns."""
    samples: dict[str, list[float]] = {key: [] for key in runs}
    for run in runs.values():
        run()
        run()
    for number in range(rounds):
        for key in list(runs)[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            runs[key]()
            samples[key].append(time.perf_counter() - start)
    return {key: statistics.median(values) * 1e3 for key, values in samples.items()}


def _found(compiled: Any) -> dict[str, Any]:
    from tatara.report._report import report_of

    report = report_of(compiled)
    return {
        "graphs": len(report.graphs),
        "breaks": [str(b) for b in report.breaks],
        "fallbacks": [g.fallback or g.problem for g in report.graphs if g.fallback or g.problem],
        "kernels": len(report.kernels),
        "host_calls": dict(collections.Counter(h.operator for h in report.host_calls).most_common(8)),
        "recompiles": report.recompiles[:4],
    }


def measure(name: str, training: bool, rounds: int) -> dict[str, Any]:
    """One row: the model in inference or training, in this process."""
    import torch

    import tatara
    from population import transformers_small as small

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    model, step = small.build(name)
    row: dict[str, Any] = {"step": step, "parameters": sum(p.numel() for p in model.parameters())}
    model.train(training)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def run(call: Any, inputs: dict[str, Any]) -> Any:
        torch.manual_seed(1)
        if not training:
            with torch.no_grad():
                return call(**inputs)
        for parameter in parameters:
            parameter.grad = None
        result = call(**inputs)
        _loss(result).backward()
        return result

    compiled = tatara.compile(model)
    worst = 0.0
    for number, (batch, length) in enumerate(SIZES):
        inputs = small.make_inputs(model, batch, length, padded=True, seed=number)
        theirs = run(model, inputs)
        gradients = [p.grad for p in parameters] if training else []
        start = time.perf_counter()
        ours = run(compiled, inputs)
        row["cold_s" if number == 0 else "cold2_s"] = time.perf_counter() - start
        worst = max(worst, _difference(ours, theirs))
        for call in range(2):
            ours = run(compiled, inputs)
            worst = max(worst, _difference(ours, theirs))
            mine = [p.grad for p in parameters] if training else []
            if [g is None for g in mine] != [g is None for g in gradients]:
                worst = math.inf
            pairs = [(a, b) for a, b in zip(mine, gradients, strict=True) if b is not None]
            worst = max(worst, _difference([a for a, _ in pairs], [b for _, b in pairs]))
            del call
        if number == 0:
            times = _times(
                {"eager": lambda i=inputs: run(model, i), "tatara": lambda i=inputs: run(compiled, i)}, rounds
            )
            row |= {f"{key}_ms": value for key, value in times.items()}
    row["difference"] = worst
    return row | _found(compiled)


def work(names: list[str], modes: list[str], rounds: int) -> None:
    """Measures one model after the other; a line of JSON before and after each row."""
    for name in names:
        for mode in modes:
            print(json.dumps({"begin": name, "mode": mode}), flush=True)
            try:
                row = measure(name, mode == "training", rounds)
            except Exception as error:
                from population import transformers_small as small

                row = {
                    "not_small" if isinstance(error, small.NotSmall) else "raised": f"{type(error).__name__}: {error}"[
                        :400
                    ]
                }
            print(json.dumps({"model": name, "mode": mode, **row}), flush=True)


def _child(names: list[str], modes: list[str], rounds: int, seconds: float, threads: int, out: Any) -> None:
    """The same in a process of its own, which may die or hang: the model at hand then has that as its row."""
    todo = [(name, mode) for name in names for mode in modes]
    while todo:
        with tempfile.TemporaryDirectory() as caches:
            environment = dict(
                os.environ,
                TATARA_CACHE_DIR=caches,
                HF_HUB_OFFLINE="1",
                TRANSFORMERS_VERBOSITY="error",
                PYTHONWARNINGS="ignore",
                OMP_NUM_THREADS=str(threads),
            )
            rest = list(dict.fromkeys(name for name, _ in todo))
            first_modes = [mode for name, mode in todo if name == rest[0]]
            command = [
                sys.executable,
                str(HERE / "zoo_sweep.py"),
                "--rounds",
                str(rounds),
                "--modes",
                ",".join(first_modes),
            ]
            process = subprocess.Popen(
                [*command, "--work", rest[0]],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                text, errors = process.communicate(timeout=seconds * len(first_modes))
                ended = (
                    f"the process ended ({process.returncode}): {errors.strip()[-300:]}" if process.returncode else ""
                )
            except subprocess.TimeoutExpired:
                process.kill()
                text, errors = process.communicate()
                ended = f"took more than {seconds:.0f} s"
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        done = {(row["model"], row["mode"]) for row in rows if "model" in row}
        for row in rows:
            if "model" in row:
                out(row)
        for name, mode in [pair for pair in todo if pair[0] == rest[0]]:
            if (name, mode) not in done:
                begun = any(r.get("begin") == name and r["mode"] == mode for r in rows)
                out({"model": name, "mode": mode, "raised": ended if begun or not rows else "not reached: " + ended})
        todo = [pair for pair in todo if pair[0] != rest[0]]


def _problem(row: dict[str, Any]) -> str:
    """Why the row is a finding; empty: it is none."""
    if "raised" in row:
        return "raised " + row["raised"]
    if not row["difference"] <= (2e-2 if row["mode"] == "training" else 2e-3):
        return f"wrong by {row['difference']:.2g}"
    if row["fallbacks"]:
        return "in eager: " + row["fallbacks"][0]
    if row["breaks"]:
        return "breaks: " + "; ".join(row["breaks"][:2])
    slow = row["tatara_ms"] - row["eager_ms"]
    if row["eager_ms"] / row["tatara_ms"] < BELOW and slow > ENOUGH_MS:
        return f"slower: {row['eager_ms'] / row['tatara_ms']:.2f} of eager"
    return ""


def page(rows: list[dict[str, Any]]) -> str:
    """The summary and the findings, as a page."""
    lines = []
    for mode in ("inference", "training"):
        mine = [row for row in rows if row["mode"] == mode and "not_small" not in row]
        built = [row for row in mine if "raised" not in row]
        if not built:
            continue
        ratios = [row["eager_ms"] / row["tatara_ms"] for row in built]
        cold = sorted(row["cold_s"] for row in built)
        whole = [r for r in built if not r["breaks"] and not r["fallbacks"]]
        lines += [
            f"## {mode}",
            "",
            f"{len(mine)} models, {len(mine) - len(built)} raised, "
            f"{sum(_problem(r).startswith('wrong') for r in built)} wrong, {len(whole)} one graph, "
            f"{sum(bool(r['fallbacks']) for r in built)} with a graph in eager, "
            f"{sum(r < BELOW for r in ratios)} below {BELOW} of eager, geometric mean "
            f"{math.exp(statistics.fmean(math.log(r) for r in ratios)):.2f} times eager, "
            f"first call: median {statistics.median(cold):.2f} s, largest {cold[-1]:.2f} s",
            "",
        ]
        reasons = collections.Counter(_problem(row)[:100] for row in mine if _problem(row))
        lines += [f"- {count}: {reason}" for reason, count in reasons.most_common(60)] + [""]
        lines += ["| model | graphs | breaks | cold s | eager ms | ratio | finding |", "|---|---|---|---|---|---|---|"]
        for row in sorted(mine, key=lambda r: (not _problem(r), r["model"])):
            if "raised" in row:
                lines.append(f"| {row['model']} | | | | | | {_problem(row)[:120]} |")
                continue
            ratio = row["eager_ms"] / row["tatara_ms"]
            lines.append(
                f"| {row['model']} | {row['graphs']} | {len(row['breaks'])} | {row['cold_s']:.2f} | {row['eager_ms']:.2f} | "
                f"{ratio:.2f} | {_problem(row)[:120].replace('|', '/')} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Runs what is not in the file yet, then prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument("--page", action="store_true", help="print the table of the rows that there are, run nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth model, from the Kth on")
    parser.add_argument("--seconds", type=float, default=240, help="most that a row may take")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--work", action="store_true")
    args = parser.parse_args()
    if args.work:
        work(args.models, args.modes.split(","), args.rounds)
        return 0
    path = HERE / "out" / "zoo-cpu.jsonl"
    path.parent.mkdir(exist_ok=True)
    if args.fresh:
        path.unlink(missing_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not args.page:
        from population import transformers_small as small

        part, parts = map(int, args.part.split("/"))
        known = {(row["model"], row["mode"]) for row in rows}
        modes = args.modes.split(",")
        names = [
            n for n in (args.models or sorted(small.class_names())) if any((n, mode) not in known for mode in modes)
        ]
        names = names[part::parts]

        def keep(row: dict[str, Any]) -> None:
            rows.append(row)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{row['model']} {row['mode']}: {(row.get('not_small', '') and 'no small form') or _problem(row) or 'fine'}",
                flush=True,
            )

        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            threads = max(1, (os.cpu_count() or 1) // args.jobs)
            for done in [pool.submit(_child, [n], modes, args.rounds, args.seconds, threads, keep) for n in names]:
                done.result()
    print(page(rows))
    return int(any(_problem(row) for row in rows if "not_small" not in row))


if __name__ == "__main__":
    sys.exit(main())
