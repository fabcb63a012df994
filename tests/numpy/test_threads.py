"""Eight threads that compile the same function at once, on every version of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_THREADS = """
import sys, threading
import numpy as np
import tatara
sys.setswitchinterval(1e-5)

def depth():
    # Calls that this thread may still make.
    try:
        return 1 + depth()
    except RecursionError:
        return 1

def make(k):
    def helper(x, i):
        return np.exp(x) * (i + k)
    def function(x):
        total = x
        for i in range(3):
            total = total + helper(x, i)
        if float(total.sum()) > 0:
            total = total * 2
        return total - 1
    return function

problems = []
for repeat in range(20):
    function = make(repeat)
    compiled = tatara.compile(function)
    inputs = [np.linspace(0, 1, 40 + 8 * i) for i in range(3)]
    expected = [function(x) for x in inputs]
    barrier = threading.Barrier(8)
    def work():
        try:
            before = depth()
            barrier.wait(60)
            for i in (0, 1, 2, 0):
                np.testing.assert_allclose(compiled(inputs[i]), expected[i])
            assert depth() == before, "the recursion limit of a thread changed"
        except BaseException as error:
            problems.append(repr(error))
    before = depth()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert not problems, problems
    assert depth() == before
assert "torch" not in sys.modules
print(tatara.stats()["graphs"], tatara.stats()["kernels_launched"])
"""


def test_eight_threads_compile_the_same_function(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _THREADS],
        env={**os.environ, "TATARA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    graphs, launched = map(int, done.stdout.split())
    assert graphs >= 20
    assert launched > 0
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".tmp"]
