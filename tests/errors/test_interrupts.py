"""Signals while a program is compiled or runs: their exceptions reach it, and its state is one that eager could have."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

HERE = Path(__file__).parent


@pytest.mark.parametrize("program", ["pointwise", "mixed", "branches", "training", "numpy_mixed"])
def test_an_interrupt_ends_capture_and_compilation(program: str) -> None:
    command = [
        sys.executable,
        HERE / "interrupts.py",
        "--rounds=4",
        "--operators=800",
        "--limit=1e9",
        f"--only={program}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost" in done.stdout and "afterwards right" in done.stdout


def test_signals_at_random_moments() -> None:
    command = [sys.executable, HERE / "signal_storm.py", "--count=60", "--together"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("60 signals, 0 problems\n"), done.stdout
