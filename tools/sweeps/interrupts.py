"""How long the exception of a signal's handler takes to reach a program that is compiled at that moment.

usage: interrupts.py [--rounds 20] [--operators 20000] [--seed 0] [--only PROGRAM] [--limit SECONDS]

Each round calls a program of many operators for the first time, with a timer that goes off at a random moment of capture or
compilation, and whose handler raises KeyboardInterrupt. Prints the worst time between the two for each program. What the
program holds afterwards is as it was, and the next call, which compiles again, gives what eager gives.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import numpy as np
import tatara


def pointwise(x: Any, count: int) -> Any:
    y = x
    for i in range(count // 2):
        y = torch.sin(y) + x if i % 7 else torch.relu(y) * 0.5
    return y


def mixed(x: Any, count: int) -> Any:
    y = x
    for i in range(count // 4):
        y = torch.sin(y) + x
        y = y - y.mean(-1, keepdim=True) if i % 5 else torch.cumsum(y, 0)
        if i % 50 == 7:
            y = y @ x.T @ x * 0.1
    return y


def branches(x: Any, count: int) -> Any:
    parts = [torch.cos(x * (i % 97)) + i for i in range(count // 4)]
    return torch.stack([p.sum() for p in parts])


def training(x: Any, count: int) -> Any:
    w = x.clone().requires_grad_()
    loss = mixed(w, count // 2).sum()
    loss.backward()
    return w.grad


def numpy_mixed(x: Any, count: int) -> Any:
    y = x
    for i in range(count // 4):
        y = np.sin(y) + x
        y = y - y.mean(-1, keepdims=True) if i % 5 else np.maximum(y, 0)
    return y


PROGRAMS: dict[str, Callable[[Any, int], Any]] = {
    each.__name__: each for each in (pointwise, mixed, branches, training, numpy_mixed)
}


def argument(name: str) -> Any:
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
    return x if name.startswith("numpy") else torch.from_numpy(x)


def same(a: Any, b: Any) -> bool:
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-3, equal_nan=True))


class Measured:
    """One program's rounds."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.program = PROGRAMS[name]
        self.count = count
        self.x = argument(name)
        self.came = 0
        signal.signal(signal.SIGALRM, self.interrupt)
        for _ in range(2):
            start = time.perf_counter()
            self.compiled()(self.x, count)
            self.calm = time.perf_counter() - start

    def interrupt(self, _number: int, _frame: Any) -> None:
        self.came += 1
        raise KeyboardInterrupt

    def compiled(self) -> Any:
        tatara.reset()
        return tatara.compile(self.program)

    def round(self, delay: float) -> float | None:
        """Seconds from the signal to the program; None when it was done before."""
        compiled = self.compiled()
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            compiled(self.x, self.count)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            return time.perf_counter() - start - delay
        return None

    def right_afterwards(self) -> bool:
        """A call that was interrupted leaves a function that compiles, and is right."""
        compiled = self.compiled()
        before = self.x + 0
        signal.setitimer(signal.ITIMER_REAL, self.calm * 0.6)
        try:
            compiled(self.x, self.count)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        expected = self.program(self.x, self.count)
        return all(same(compiled(self.x, self.count), expected) for _ in range(2)) and same(before, self.x)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--operators", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=0.2)
    parser.add_argument("--only", action="append", choices=PROGRAMS)
    arguments = parser.parse_args()
    tatara.config.cache = False
    failed = 0
    for name in arguments.only or PROGRAMS:
        rng = random.Random(f"{arguments.seed} {name}")
        measured = Measured(name, arguments.operators)
        took: list[tuple[float, float]] = []
        for _ in range(arguments.rounds):
            delay = rng.random() * measured.calm * 0.97
            if (latency := measured.round(delay)) is not None:
                took.append((latency, delay))
        worst, at = max(took, default=(0.0, 0.0))
        over = sum(latency > arguments.limit for latency, _ in took)
        lost = measured.came - len(took)
        right = measured.right_afterwards()
        failed += over + lost + (not right)
        print(
            f"{name}: {arguments.operators} operators, first call {measured.calm:.1f} s; {len(took)} interrupts, {lost} "
            f"lost, worst {worst * 1000:.0f} ms (at {at:.1f} s), {over} over {arguments.limit * 1000:.0f} ms; afterwards "
            f"{'right' if right else 'WRONG'}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
