"""Random programs over random sequences of sizes and numbers, against eager, with compilations counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

# Each takes and gives a matrix; n is an int, s a float.
STEPS: dict[str, Callable[[Any, int, float], Any]] = {
    "scale": lambda x, n, s: x * s + n,
    "by_size": lambda x, n, s: x / (x.shape[0] + 1) - n,
    "transpose": lambda x, n, s: x.t(),
    "head": lambda x, n, s: x[:n],
    "tail": lambda x, n, s: x[:, n:],
    "middle": lambda x, n, s: x[1 : x.shape[0] - 1],
    "cat": lambda x, n, s: torch.cat([x, x * s], 1),
    "rows": lambda x, n, s: torch.cat([x, x.new_ones(n, x.shape[1]) * s]),
    "flat": lambda x, n, s: x.reshape(1, -1),
    "column": lambda x, n, s: x.contiguous().view(-1, 1),
    "pad": lambda x, n, s: torch.nn.functional.pad(x, (0, n)),
    "expand": lambda x, n, s: x.sum(0, keepdim=True).expand(n + 2, x.shape[1]),
    "softmax": lambda x, n, s: x.softmax(1) if x.shape[1] else x,
    "centre": lambda x, n, s: x - x.sum(1, keepdim=True) / (x.size(1) + 2),
    "positions": lambda x, n, s: x + torch.arange(x.shape[1], dtype=x.dtype),
    "repeat": lambda x, n, s: x.repeat(2, 1),
    "gram": lambda x, n, s: torch.tanh(x @ x.t()),
    "fold": lambda x, n, s: x.reshape(x.shape[1], x.shape[0]),
    "mask": lambda x, n, s: torch.where(x > s, x, x.new_zeros(x.shape)),
}
SIZES = st.integers(0, 9)
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 0.5, -1.5, 3.0, 1e-8])
CALLS = st.lists(st.tuples(SIZES, SIZES, SIZES, FLOATS), min_size=2, max_size=7)
PROGRAM = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5)


def _program(names: list[str], broken: int) -> Callable[[Any, int, float], Any]:
    steps = [STEPS[name] for name in names]

    def run(x: Any, n: int, s: float) -> Any:
        for i, step in enumerate(steps):
            if i == broken:
                print(end="")
            x = step(x, n, s)
        return x, x.shape, x.numel() // 3 + n % 4, s

    return run


def _check(compiled: Any, run: Any, call: tuple[int, int, int, float]) -> None:
    rows, columns, n, s = call
    x = torch.randn(rows, columns)
    try:
        expected = run(x, n, s)
    except (RuntimeError, IndexError) as error:
        with pytest.raises(type(error)):
            compiled(x, n, s)
        return
    got = compiled(x, n, s)
    same(got, expected, equal_nan=True, rtol=1e-4, atol=1e-5)


def _entries(compiled: Any) -> int:
    return len(compiled._report()["entries"])


def _go(backend: str, names: list[str], calls: Any, broken: int) -> None:
    run = _program(names, broken)
    tatara.reset()
    with torch.no_grad():
        compiled = tatara.compile(run, backend=backend)
        for call in calls:
            _check(compiled, run, call)
        seen = _entries(compiled)
        for call in reversed(calls):
            _check(compiled, run, call)
        # What was seen once is known.
        assert _entries(compiled) == seen
        if broken < 0 and "softmax" not in names:
            # Sizes that nothing tells apart: after a second value of each, all further ones are one program.
            for rows, columns, n, s in ((31, 47, 11, 0.3), (37, 53, 13, 0.7), (41, 59, 17, 0.9)):
                _check(compiled, run, (rows, columns, n, s))
            known = _entries(compiled)
            for rows, columns, n, s in ((43, 61, 19, 0.11), (67, 83, 23, 0.13)):
                _check(compiled, run, (rows, columns, n, s))
            assert _entries(compiled) == known, compiled._report()["recompiles"]
    tatara.reset()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(names=PROGRAM, calls=CALLS, broken=st.sampled_from([-1, -1, 0, 1, 2]))
def test_traced(names: list[str], calls: Any, broken: int) -> None:
    _go("eager", names, calls, broken)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(names=PROGRAM, calls=CALLS, broken=st.sampled_from([-1, -1, 1]))
def test_compiled(names: list[str], calls: Any, broken: int) -> None:
    _go("tatara", names, calls, broken)
