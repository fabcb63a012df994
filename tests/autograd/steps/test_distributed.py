"""DistributedDataParallel on two processes of one machine: compiled modules train as in eager."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("gloo is not built in")
    store = tmp_path_factory.mktemp("store") / "store"
    worker = Path(__file__).parent / "distributed_worker.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(worker), str(rank), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    results = []
    try:
        for process in processes:
            out, error = process.communicate(timeout=240)
            assert process.returncode == 0, error[-3000:]
            results.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
    return results


@pytest.mark.parametrize("way", ["compiled_inside", "compiled_outside", "compiled_blocks"])
def test_trains_as_in_eager(found: list[dict[str, Any]], way: str) -> None:
    for each in found:
        assert each[way]["losses"] < TOLERANCE
        assert each[way]["parameters"] < TOLERANCE
        assert each[way]["graphs"] > 0
        assert each[way]["kernels_launched"] > 0
        assert each[way]["fallbacks"] == 0


def test_gradients_are_reduced_while_the_backward_pass_goes_on(found: list[dict[str, Any]]) -> None:
    """The buckets of the last block are on their way before the first block's backward begins."""
    for each in found:
        assert each["events"].count("first block") == 1
        assert "bucket" in each["events"][: each["events"].index("first block")]
