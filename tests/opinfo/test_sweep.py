"""The sweep's own judgement: what it calls different, how it survives a crash, and a handful of entries."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import samples  # noqa: E402
import sweep  # noqa: E402
import tatara  # noqa: E402


def _no_exact() -> Any:
    return None


@pytest.mark.parametrize(
    "ours, theirs, word",
    [
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype"),
        (torch.ones(2, 3), torch.ones(3, 2), "shape"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), "strides"),
        (torch.ones(2), torch.tensor([1.0, 1.5]), "values"),
        (torch.ones(2), (torch.ones(2),), "structure"),
        (1, 1.0, "type"),
        (3, 4, "value"),
    ],
)
def test_differences_are_seen(ours: Any, theirs: Any, word: str) -> None:
    problem = samples.compare(ours, theirs, _no_exact, True)
    assert problem is not None
    assert word in problem


def test_rounding_is_no_difference_and_an_error_is() -> None:
    exact = torch.full((4,), 1000.0, dtype=torch.float64)
    theirs = torch.full((4,), 1000.004)
    assert samples.compare(torch.full((4,), 999.993), theirs, lambda: exact, True) is None
    assert samples.compare(torch.full((4,), 1000.5), theirs, lambda: exact, True) is not None


def test_clones_share_memory_as_the_originals_do() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    a, b, other = samples.clone((base.t(), base[1], torch.ones(2)))
    assert a.stride() == (1, 4)
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != base.untyped_storage().data_ptr()
    assert torch.equal(b, base[1])
    b.zero_()
    assert torch.equal(a[:, 1], torch.zeros(4))
    assert torch.equal(other, torch.ones(2))


def _entry(name: str, function: Any) -> Any:
    def make(device: str, dtype: Any, requires_grad: bool) -> list[Any]:
        return [SimpleNamespace(input=torch.ones(3, dtype=dtype), args=(), kwargs={})]

    return SimpleNamespace(formatted_name=name, name=name, op=function, sample_inputs=make)


def test_a_crash_is_one_row() -> None:
    entries = {
        "good": _entry("good", lambda x: x * 2),
        "dies": _entry("dies", lambda x: os._exit(3)),
        "late": _entry("late", lambda x: x + 1),
    }
    tasks = [(name, "float32") for name in entries]
    rows = {row["name"]: row for row in sweep.run_tasks(tasks, entries, 1, None, 120.0)}
    assert rows["good"]["state"] == "native"
    assert rows["dies"]["state"] == "crashed"
    assert "exit code 3" in rows["dies"]["wrong"][0]
    assert rows["late"]["state"] == "native"


def test_a_wrong_result_is_found() -> None:
    def unsteady(x: Any) -> Any:
        return x + 1 if tatara.is_compiling() else x

    row = samples.check_entry(_entry("unsteady", unsteady), "float32", None, lambda number: None)
    assert row["state"] == "wrong"
    assert "values" in row["wrong"][0]


NATIVE = ["meshgrid_list_of_tensors", "trapezoid", "nn_functional_unfold", "atleast_2d", "index_copy", "block_diag"]


@pytest.mark.parametrize("name", NATIVE)
def test_entries_run_natively(name: str) -> None:
    entry = sweep.entries_by_name()[name]
    row = samples.check_entry(entry, "float32", 4, lambda number: None)
    assert row["wrong"] == []
    assert row["counts"]["native"] >= row["samples"] - 1
