"""Loops of every size run on torch's own team of threads: libgomp ends the threads that a smaller team does not need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

_SCRIPT = """
import json, os
import torch, tatara

torch.set_num_threads(6)
operands = [torch.randn(count) for count in (1, 20_000, 40_000, 70_000, 1_000_000)]
matrix = torch.randn(300, 300)
compiled = [tatara.compile(lambda x: x.exp() + 1, dynamic=False) for _ in operands]

def threads():
    return set(os.listdir("/proc/self/task"))

def turn():
    seen = set()
    for function, x in zip(compiled, operands):
        function(x)
        seen |= threads()
        matrix @ matrix
        seen |= threads()
    return seen

with torch.no_grad():
    turn()
    turn()
    before = threads()
    seen = set().union(*(turn() for _ in range(20)))
print(json.dumps({"before": len(before), "new": len(seen - before), "team": torch.get_num_threads()}))
"""


def test_small_loops_end_no_threads() -> None:
    # A forked process would not use torch's threads.
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=300)
    state = json.loads(done.stdout)
    assert state["team"] == 6
    assert state["before"] >= 6
    assert state["new"] == 0
