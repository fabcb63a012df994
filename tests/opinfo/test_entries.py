"""The first samples of every entry in float32, and one under autocast: the part of the sweep that every test run does."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

import samples  # noqa: E402
import sweep  # noqa: E402

PARTS = 12
SAMPLES = 2
# Of all parts together: the sweep's own goal.
LEAST_NATIVE = 300


@pytest.mark.parametrize("part", range(PARTS))
def test_entries_are_right(part: int) -> None:
    entries = [op for op in sweep.entries_by_name().values() if torch.float32 in op.supported_dtypes("cpu")]
    wrong, native = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in entries[part::PARTS]:
            row = samples.check_entry(op, "float32", SAMPLES, lambda number: None)
            native += row["state"] == "native"
            wrong += [f"{op.formatted_name}: {problem}" for problem in row["wrong"]]
            row = samples.check_entry(op, samples.AUTOCAST, 1, lambda number: None)
            wrong += [f"{op.formatted_name} under autocast: {problem}" for problem in row["wrong"]]
    assert wrong == []
    assert native >= LEAST_NATIVE // PARTS
