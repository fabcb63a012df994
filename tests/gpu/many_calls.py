"""Calls with changed inputs, to run under NVIDIA's `compute-sanitizer` (`make sanitize-gpu`): a block of layers as a CUDA graph, and
a function with reductions, scans, transposes, look-ups, vector adds and sorting.

Results are compared with eager's every hundredth call: eager's kernels are under the tool as well.
"""

from __future__ import annotations

import argparse

import torch

import tatara


def mixed(x: torch.Tensor, table: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
    looked_up = table[ids]
    total = torch.zeros_like(table).index_add(0, ids, x)
    return (
        torch.softmax(x, -1) * looked_up,
        torch.cumsum(x.sin(), -1),
        (x.t() + 1).contiguous() * total[: x.shape[1], : x.shape[0]],
        x.sort(-1).values,
        x[:, 1:] - x[:, :-1],
        x.square().sum(0).rsqrt() + x.var(),
    )


def layers() -> torch.nn.Module:
    def block() -> list[torch.nn.Module]:
        return [torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU()]

    return torch.nn.Sequential(*block(), *block(), torch.nn.Softmax(-1)).cuda()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000, help="of both functions together")
    calls = parser.parse_args().calls
    torch.manual_seed(0)
    model, generator = layers(), torch.Generator("cuda").manual_seed(1)
    compiled, compiled_mixed = tatara.compile(model), tatara.compile(mixed)
    before = tatara.stats()
    with torch.no_grad():
        for call in range(calls // 2):
            x = torch.randn(64, 64, device="cuda", generator=generator)
            table = torch.randn(64, 64, device="cuda", generator=generator)
            ids = torch.randint(0, 64, (64,), device="cuda", generator=generator)
            ours = [compiled(x), *compiled_mixed(x, table, ids)]
            if call % 50 == 0:
                for mine, theirs in zip(ours, [model(x), *mixed(x, table, ids)], strict=True):
                    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    torch.cuda.synchronize()
    after = tatara.stats()
    counts = {key: after[key] - before[key] for key in ("cuda_graphs_launched", "fallbacks", "breaks")}
    print(f"{calls // 2 * 2} calls: {counts}")
    return 1 if counts["fallbacks"] or counts["breaks"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
