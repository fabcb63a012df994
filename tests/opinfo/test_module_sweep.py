"""The sweeps of modules and optimizers: some entries each, and that they find what is wrong."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import modules  # noqa: E402
import optimizers  # noqa: E402
import steps  # noqa: E402

MODULES = [
    "nn_InstanceNorm1d",
    "nn_Linear",
    "nn_GELU",
    "nn_LayerNorm",
    "nn_MaxPool2d",
    "nn_CrossEntropyLoss",
    "nn_LSTMCell",
]
OPTIMIZERS = ["SGD", "AdamW", "RMSprop"]


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = modules.check_entry(modules.entries_by_name()[name], "float32", 3, lambda _: None)
    assert row["wrong"] == []
    assert row["again"] == 0
    assert row["checked"]["forward"] == row["samples"] * modules.CALLS > 0
    assert row["checked"]["backward"] > 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    info = optimizers.entries_by_name()[name]
    cases = [c for c in optimizers.cases(info, torch.float32) if c.way == "step"][:2]
    row: dict[str, Any] = {"counts": Counter(), "reasons": Counter(), "hosts": Counter()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problems = [optimizers.check_case(info, torch.float32, case, row) for case in cases]
    assert problems == [None, None]
    assert row["checked"]["parameters"] == 2 * optimizers.STEPS


class _Fake:
    """In the place of a compiled function: what it does is in the test."""


@pytest.mark.parametrize(
    "ours, word",
    [
        (lambda number: {"forward": torch.ones(2) * number}, ""),
        (lambda number: {"forward": torch.ones(2) * max(number, 1)}, "step 0: forward"),
        (lambda number: {"forward": torch.ones(2, dtype=torch.float64) * number}, "dtype"),
        (lambda number: {}, "NoneType"),
        (lambda number: [][number], "IndexError"),
    ],
)
def test_differences_between_steps_are_seen(ours: Any, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps.samples, "state_of", lambda *_: "native")
    row: dict[str, Any] = {"counts": Counter(), "reasons": Counter(), "hosts": Counter()}
    steps.new_row(row)

    def eager(number: int) -> dict[str, Any]:
        return {"forward": torch.ones(2) * number}

    problem = steps.compare_steps(eager, ours, lambda: eager, [_Fake()], 3, row)
    assert (problem is None) == (word == "")
    assert word in (problem or "")


def test_compiling_again_is_seen() -> None:
    import tatara

    function = tatara.compile(lambda x, k: x * k)
    row: dict[str, Any] = {"counts": Counter(), "reasons": Counter(), "hosts": Counter()}
    steps.new_row(row)

    def eager(number: int) -> dict[str, Any]:
        return {"forward": torch.ones(2) * len(str(10**number))}

    def ours(number: int) -> dict[str, Any]:
        return {"forward": function(torch.ones((2,) * (number + 1))[(0,) * number], len(str(10**number)))}

    assert steps.compare_steps(eager, ours, lambda: eager, [function], 2, row) is None

    def other(number: int) -> dict[str, Any]:
        return {"forward": function(torch.ones((2,) * (number + 1)), 1).reshape(-1)[:2] * len(str(10**number))}

    row["again"] = 0
    assert steps.compare_steps(eager, other, lambda: eager, [function], 4, row) is None
    assert row["again"] == 1
