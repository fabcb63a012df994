"""What the package asks torch for when it meets it for the first time, under modes of the program's."""

from __future__ import annotations

import textwrap

import pytest

import forked

pytest.importorskip("torch")

FIRST = """
    import torch, tatara
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    log = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append(str(func))
            return func(*args, **(kwargs or {}))

    class Net(torch.nn.Module):
        def forward(self, x): return torch.sin(x) + 1

    def f(x): return torch.sin(x) + 1
    x = torch.ones(3)
    def said(call, mode):
        log.clear()
        with mode: call()
        return list(log)
    def backward():
        y = x.clone().requires_grad_()
        (tatara.compile(f) if OURS else f)(y).sum().backward()
    OURS = True
    calls = {
        "compile": (lambda: tatara.compile(f), lambda: None),
        "call": (lambda: tatara.compile(f)(x), lambda: f(x)),
        "module": (lambda: tatara.compile(Net())(x), lambda: Net()(x)),
        "explain": (lambda: tatara.explain(f)(x), lambda: f(x)),
        "backward": (backward, backward),
    }
    ours, theirs = calls[CALL]
    mode = {"functions": Functions, "operators": Operators}[MODE]()
    first, second = said(ours, mode), said(ours, mode)
    OURS = False
    expected = said(theirs, mode)
    assert first == second == expected, (first, second, expected)
"""


@pytest.mark.parametrize("mode", ["functions", "operators"])
@pytest.mark.parametrize("call", ["compile", "call", "module", "explain", "backward"])
def test_first_of_a_process_under_a_mode(call: str, mode: str) -> None:
    """What the package does when it meets torch for the first time is seen by no mode of the program's."""
    source = f"CALL, MODE = {call!r}, {mode!r}\n" + textwrap.dedent(FIRST)
    done = forked.run(["-c", source])
    assert done.returncode == 0, done.stderr[-2000:]
