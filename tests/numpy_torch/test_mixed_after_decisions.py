"""NumPy's calls behind what data decide: sizes, ints and conditions of tensors, others from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import numpy as np

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


def sums_of_some(t: Any) -> Any:
    p = t[t > 0]
    return p + float(np.sum(np.asarray(p.numpy()) * 2))


def random_behind_a_check(t: Any) -> Any:
    if bool(torch.isfinite(t.sum())):
        t = t * 2
    return t + torch.asarray(np.random.RandomState(0).uniform(size=t.shape[0]))


def zeros_of_a_count(t: Any) -> Any:
    z = np.zeros(int((t > 0).sum()))
    z += 1
    return torch.from_numpy(z) * t.sum()


def seeded_by_a_count(t: Any) -> Any:
    u = t.nonzero()
    r = np.random.default_rng(int((t > 0).sum()))
    return u + torch.from_numpy(r.integers(0, 5, size=u.shape[0]))[:, None]


def decided_between(t: Any) -> Any:
    x = np.cumsum(t.numpy())
    p = t[t > 0]
    if p.numel() > 3:
        x = x * 2
    return torch.from_numpy(x) + p.sum(), p.numel()


def either_way(t: Any) -> Any:
    x = np.random.RandomState(1).normal(size=3) if bool((t > 0).any()) else np.zeros(3)
    return torch.as_tensor(x) + t.sum()


def unique_and_counts(t: Any) -> Any:
    u, i = torch.unique(t.round(), return_inverse=True)
    return u * float(u.numpy().max()), np.bincount(i.numpy()).tolist()


def drawn_from_numpys_own(t: Any) -> Any:
    if bool((t > -9).all()):
        t = t + 1
    return t * float(np.random.random()), float(np.random.random())


def written_between(t: Any) -> Any:
    a = t.numpy()
    n = int((t > 0).sum())
    a[:n] += 1
    return t * n, torch.from_numpy(a).sum()


def decided_behind_writes(t: Any) -> Any:
    a = t.numpy()
    if bool((t > -9).all()):
        t.mul_(2)
    a += 1
    k = float(np.random.random())
    if bool((t > 1.5).any()):
        return t * k
    return t - k, int((t > 0).sum())


PROGRAMS: list[Callable[[Any], Any]] = [
    sums_of_some,
    random_behind_a_check,
    zeros_of_a_count,
    seeded_by_a_count,
    decided_between,
    either_way,
    unique_and_counts,
    drawn_from_numpys_own,
    written_between,
    decided_behind_writes,
]


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, torch.Tensor):  # sums differ in their last bits
        return value.dtype, value.shape, np.round(value.numpy(), 9).tolist()
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_and_states_are_eagers(program: Callable[[Any], Any]) -> None:
    tatara.reset()
    rows: list[list[Any]] = []
    for run in (program, tatara.compile(program)):
        np.random.seed(5)
        rows.append([])
        for turn in range(12):
            t = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(turn // 2))
            if turn == 7:
                t = -t.abs()
            rows[-1].append((plain(run(t)), t.tolist()))
        rows[-1].append(np.random.random())
    np.testing.assert_equal(rows[1], rows[0])


@pytest.mark.parametrize("program", [random_behind_a_check, either_way], ids=lambda program: program.__name__)
def test_a_check_breaks_no_graph(program: Callable[[Any], Any]) -> None:
    tatara.reset()
    report = tatara.explain(program)(torch.ones(6, dtype=torch.float64))
    assert not report.breaks
