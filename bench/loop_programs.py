"""`make bench-loops`: loops of tensors as people write them, by the number of turns: the first call, later calls beside eager's,
in inference and training, and the peak memory of a training step.

The compiled call and eager's take turns, and medians are shown. First calls are without the disk cache, but with a compiler that
has compiled before; in training eager's first step stands beside, because the first call has such a step in it. Memory:
`harness.peak_of`, with what the C library keeps given back before each step.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TATARA_CACHE", "0")

import torch
from torch.nn import functional

import harness
import tatara

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], list[torch.Tensor]]]] = {}


def program(arguments: Callable[[int], list[torch.Tensor]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = function, arguments
        return function

    return add


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))) * 0.3


@program(lambda n: [_random(n, 8, 16), _random(64, 16), _random(64, 16), _random(64)])
def lstm(x, w_ih, w_hh, b):
    h = c = x.new_zeros(x.shape[1], 16)
    out = []
    for row in x:
        i, f, o, u = (functional.linear(row, w_ih, b) + functional.linear(h, w_hh)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return torch.stack(out)


@program(lambda n: [_random(2, n, 16), _random(2, n, 16), _random(16).abs(), _random(16)])
def rwkv(k, v, w, u):
    out = torch.empty_like(v)
    a, b, p = torch.zeros(2, 16), torch.zeros(2, 16), torch.full((2, 16), -1e38)
    for t in range(k.shape[1]):
        kt, vt = k[:, t], v[:, t]
        q = torch.maximum(p, u + kt)
        e1, e2 = torch.exp(p - q), torch.exp(u + kt - q)
        out[:, t] = (e1 * a + e2 * vt) / (e1 * b + e2)
        q = torch.maximum(p - w, kt)
        e1, e2 = torch.exp(p - w - q), torch.exp(kt - q)
        a, b, p = e1 * a + e2 * vt, e1 * b + e2, q
    return out


@program(lambda n: [_random(2, n, 8), _random(2, n, 8), _random(8, 4), _random(2, n, 4), _random(2, n, 4)])
def mamba(u, delta, a, b, c):
    delta = functional.softplus(delta)
    decay = torch.exp(delta.unsqueeze(-1) * -torch.exp(a))
    given = delta.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
    x, ys = torch.zeros(2, 8, 4), []
    for i in range(u.shape[1]):
        x = decay[:, i] * x + given[:, i]
        ys.append(torch.einsum("bdn,bn->bd", x, c[:, i, :]))
    return torch.stack(ys, dim=1)


@program(
    lambda n: [_random(n, 8), functional.normalize(_random(n, 8), dim=-1), _random(n, 8), torch.sigmoid(_random(n))]
)
def delta_rule(q, k, v, beta):
    state, out = q.new_zeros(8, 8), torch.zeros_like(v)
    for i in range(q.shape[0]):
        state = state + beta[i] * torch.outer(k[i], v[i] - k[i] @ state)
        out[i] = q[i] @ state
    return out


@program(lambda n: [_random(n, 4), _random(n)])
def adam(x, y):
    w, m, v = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    for t in range(1, len(y) + 1):
        g = x.T @ (x @ w - y) / len(y)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.01 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-4)
    return w


@program(lambda n: [_random(n, 6), _random(6, 6)])
def filled_from_the_front(x, w):
    h, out = torch.zeros(6), []
    for t in reversed(range(len(x))):
        h = torch.tanh(h @ w + x[t])
        out.insert(0, h)
    return torch.stack(out)


def _medians(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for call, own in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _release() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def measure(name: str, turns: int, seconds: float) -> str:
    function, arguments = PROGRAMS[name]
    given = arguments(turns)
    leaves = [x.clone().requires_grad_() for x in given]
    inference, training = tatara.compile(function), tatara.compile(copy.copy(function))

    def step(f: Callable[..., Any]) -> None:
        for leaf in leaves:
            leaf.grad = None
        f(*leaves).square().mean().backward()

    first = _seconds(lambda: inference(*given))
    torch.testing.assert_close(inference(*given), function(*given), rtol=1e-3, atol=1e-3)
    eager, ours = _medians([lambda: function(*given), lambda: inference(*given)], seconds)
    eager_step = _seconds(lambda: step(function))
    first_step = _seconds(lambda: step(training))
    step(training)
    eager_train, ours_train = _medians([lambda: step(function), lambda: step(training)], seconds)
    peaks = [harness.peak_of(lambda f=f: step(f), 3, _release) / 2**20 for f in (training, function)]
    return (
        f"| {name} | {turns} | {first:.2f} | {ours * 1e3:.2f} | {eager / ours:.0f} | {first_step:.2f} ({eager_step:.2f}) "
        f"| {ours_train * 1e3:.2f} | {eager_train / ours_train:.0f} | {peaks[0]:.1f} ({peaks[1]:.1f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[16, 256, 1024, 4096])
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--seconds", type=float, default=0.5, help="for each pair of medians")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.ones(3, 3, requires_grad=True)
    tatara.compile(lambda x: torch.tanh(x) @ x + 1)(x).sum().backward()
    print(
        "| program | turns | first call, s | ms | of eager | first step, s (eager's) | ms | of eager | peak, MB (eager's) |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.programs:
        for turns in options.turns:
            print(measure(name, turns, options.seconds), flush=True)


if __name__ == "__main__":
    main()
