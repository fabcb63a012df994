"""Signals while a program is compiled or runs: their exceptions reach it, and its state is one that eager could have."""

import gc
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forked

torch = pytest.importorskip("torch")

import tatara  # noqa: E402

SWEEPS = Path(__file__).parents[2] / "tools" / "sweeps"


@pytest.mark.parametrize("program", ["pointwise", "mixed", "branches", "training", "numpy_mixed"])
def test_an_interrupt_ends_capture_and_compilation(program: str) -> None:
    arguments = ["--rounds=4", "--operators=800", "--limit=1e9", f"--only={program}"]
    done = forked.run([str(SWEEPS / "interrupts.py"), *arguments])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost" in done.stdout and "afterwards right" in done.stdout


def test_signals_at_random_moments() -> None:
    command = [sys.executable, SWEEPS / "signal_storm.py", "--count=60", "--together"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("60 signals, 0 problems\n"), done.stdout


def _two_parts(x: Any, a: Any, b: Any) -> Any:
    y = torch.relu(x @ a)
    print("a break", file=io.StringIO())
    return (y @ b).sum(), y.exp().T.contiguous()[:2].mean()


@pytest.mark.parametrize("given", ["all", "some", "laid out"])
def test_no_python_code_runs_in_a_backward_pass(given: str) -> None:
    """An exception that another thread sends is raised where Python code runs: between two nodes it would leave half of the
    gradients.
    """
    called: dict[str, list[str]] = {}

    def calls(f: Any) -> list[str]:
        found: list[str] = []
        a, b = torch.ones(3, 3, requires_grad=True), torch.ones(3, 2, requires_grad=True)
        first, second = f(torch.ones(2, 3), a, b)
        loss = {"all": lambda: first + second, "some": lambda: first, "laid out": lambda: second.expand(3, 2).T.sum()}[
            given
        ]()
        gc.disable()  # other tests' libraries have callbacks of the collector
        sys.setprofile(lambda frame, event, _: found.append(frame.f_code.co_name) if event == "call" else None)
        try:
            loss.backward()
        finally:
            sys.setprofile(None)
            gc.enable()
        return found

    compiled = tatara.compile(_two_parts)
    expected = calls(_two_parts)
    for _ in range(3):
        assert calls(compiled) == expected
