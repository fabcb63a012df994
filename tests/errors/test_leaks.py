"""Nothing grows with the number of compilations or calls, and what a program drops is freed."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tatara = pytest.importorskip("tatara")

_SCRIPT = """
import gc, json, os, sys
import torch, tatara

def rss():
    with open("/proc/self/statm") as source:
        return int(source.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def state():
    gc.collect()
    tensors = sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())
    return {"rss": rss(), "objects": len(gc.get_objects()), "tensors": tensors, **tatara.stats()}

class Holder:
    pass

def make(k):
    holder = Holder()
    holder.scale = float(k)
    def helper(x):
        return x * holder.scale
    def function(x, y):
        z = helper(x).tanh() + y
        if k % 4 == 0 and float(z.sum()) > 0:
            z = z + 1
        return {"a": z.sum(), "b": [z, x.view(-1)]}
    return function

x, y = torch.randn(16, 16), torch.randn(16, 16)

def compile_some(first, count):
    for k in range(first, first + count):
        compiled = tatara.compile(make(k))
        compiled(x, y)
        if k % 10 == 0:
            compiled(x.double(), y.double())

compile_some(0, 600)
states = [state()]
for i in range(4):
    compile_some(1000 * (i + 1), 250)
    states.append(state())
calls = tatara.compile(make(1))
for _ in range(200):
    calls(x, y)
states.append(state())
for _ in range(4):
    for _ in range(2500):
        calls(x, y)
    states.append(state())
print(json.dumps(states))
"""


def test_a_thousand_compilations_and_ten_thousand_calls(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "TATARA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    states: list[dict[str, int]] = json.loads(done.stdout)
    compiled, called = states[:5], states[5:]
    assert compiled[-1]["graphs"] - compiled[0]["graphs"] >= 1000
    assert called[-1]["guard_hits"] - called[0]["guard_hits"] == 10000
    assert called[-1]["graphs"] == called[0]["graphs"]
    for group in (compiled, called):
        objects = [state["objects"] for state in group]
        assert max(objects) - min(objects) < 20  # the interpreter's own: lists of this script, caches
        assert len({state["tensors"] for state in group}) == 1
    mega = 1 << 20
    # Up to 256 kernels without a user wait for one, two pages each; a thousand that stay would take more than 9 MB.
    assert compiled[-1]["rss"] - compiled[0]["rss"] < 5 * mega
    assert called[-1]["rss"] - called[0]["rss"] < mega / 2


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.factor = 2.0

    def forward(self, x: Any) -> Any:
        return self.linear(x).relu() * self.factor


def _module(model: Any) -> Any:
    return tatara.compile(model)


def _own_attribute(model: Any) -> Any:
    model.fast = tatara.compile(model.forward)
    return model.fast


def _own_forward(model: Any) -> Any:
    model.forward = tatara.compile(model.forward)
    return model


def _closure(model: Any) -> Any:
    model.fast = tatara.compile(lambda x: model(x) + 1)
    return model.fast


def _itself(model: Any) -> Any:
    def function(x: Any) -> Any:
        y = model(x)
        return y if function is not None else x

    function = tatara.compile(function)
    return function


def _with_a_break(model: Any) -> Any:
    def function(x: Any) -> Any:
        y = model(x)
        if float(y.sum()) > 1e9:
            return y
        return y * 2

    model.fast = tatara.compile(function)
    return model.fast


def _own_backend(model: Any) -> Any:
    model.fast = tatara.compile(model.forward, backend=lambda graph, inputs: lambda *args: [model.factor * args[0]])
    return tatara.compile(model.forward)


def _report(model: Any) -> Any:
    model.report = tatara.explain(model)(torch.ones(2, 4))
    return model


@pytest.mark.parametrize(
    "build",
    [_module, _own_attribute, _own_forward, _closure, _itself, _with_a_break, _own_backend, _report],
    ids=lambda f: f.__name__.strip("_"),
)
def test_models_and_their_compiled_functions_are_freed_together(build: Any) -> None:
    model = _Model().eval()
    alive = [weakref.ref(model), weakref.ref(model.linear.weight)]
    with torch.no_grad():
        function = build(model)
        before = tatara.stats()["graphs"]
        first = function(torch.ones(2, 4))
        gc.collect()  # while entries are there: the collector takes nothing that is in use
        assert torch.equal(function(torch.ones(2, 4)), first)
        assert tatara.stats()["graphs"] > before or build is _report
    del function, model, first
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_a_model_that_trains_is_freed() -> None:
    model = _Model()
    alive = [weakref.ref(model), weakref.ref(model.linear.weight)]
    model.fast = tatara.compile(model.forward)
    for _ in range(2):
        model.fast(torch.ones(2, 4)).sum().backward()
        gc.collect()
    assert model.linear.weight.grad is not None
    del model
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
