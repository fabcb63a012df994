"""What is asked of torch once a process is not seen by the program's modes that are at work then."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import torch, tatara
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

log = []

class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        log.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))

class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        log.append(str(func))
        return func(*args, **(kwargs or {}))

x = torch.ones(3, requires_grad=GRAD)

def f(a):
    return a.sin() * 2

def seen(function):
    log.clear()
    with MODE():
        function(x)
    return list(log)

compiled = seen(tatara.compile(f))
assert compiled == seen(f), (compiled, seen(f))
assert compiled
"""


@pytest.mark.parametrize("mode", ["Functions", "Operators"])
@pytest.mark.parametrize("grad", [True, False])
def test_first_call(mode: str, grad: bool) -> None:
    source = PROGRAM.replace("MODE", mode).replace("GRAD", str(grad))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
