"""Signals at random moments of NumPy programs; those with torch are in tests/errors."""

import subprocess
import sys
from pathlib import Path

STORM = Path(__file__).parents[2] / "tools" / "sweeps" / "signal_storm.py"


def test_signals_at_random_moments() -> None:
    command = [sys.executable, STORM, "--count=40", "--together", "--only=numpy", "--only=numpy_breaks"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("40 signals, 0 problems\n"), done.stdout
