"""torch without one of the private functions that our sources name: see tools/sweeps/private_functions.py, which says how each fared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_nothing_private_is_missed_badly() -> None:
    script = Path(__file__).parents[2] / "tools" / "sweeps" / "private_functions.py"
    done = subprocess.run([sys.executable, str(script), "--few"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = dict(re.findall(r"^(torch\S*): (works|eager|refused|host)", done.stdout, re.MULTILINE))
    assert len(verdicts) > 80
    # What is named and what is tried are the same, whatever capture needs at least is among them.
    assert verdicts["torch._C._swap_tensor_impl"] == "eager"
    assert verdicts["torch._C._push_on_torch_function_stack"] == "eager"
    assert verdicts["torch._C._storage_address"] == "works"
