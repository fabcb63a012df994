"""A function whose guards never hold twice is not compiled for ever."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

COUNTER = itertools.count(2)


def _label_scale(label: str, x: torch.Tensor) -> torch.Tensor:
    return x * len(label) + ord(label[-1])


def _run(compiled: Any, calls: int) -> int:
    """Calls with a new string each time; returns how many graphs were made."""
    x = torch.randn(4)
    with torch.no_grad(), counts() as grown:
        for _ in range(calls):
            label = f"label {next(COUNTER)}"
            torch.testing.assert_close(compiled(label, x), _label_scale(label, x))
    return grown["graphs"]


def test_limit_of_a_function() -> None:
    compiled = tatara.compile(_label_scale, options={"recompile_limit": 3})
    assert _run(compiled, 3) == 3
    with pytest.warns(RuntimeWarning, match="compiled 3 times already") as caught:
        assert _run(compiled, 5) == 0
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _run(compiled, 5) == 0
    tatara.reset()
    assert _run(tatara.compile(_label_scale, options={"recompile_limit": 3}), 2) == 2


def test_entries_made_before_still_serve() -> None:
    compiled = tatara.compile(_label_scale, options={"recompile_limit": 2})
    x = torch.randn(4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label in ("a", "b", "c", "d"):
            compiled(label, x)
        hits = tatara.stats()["guard_hits"]
        for label in ("a", "b"):
            torch.testing.assert_close(compiled(label, x), _label_scale(label, x))
        assert tatara.stats()["guard_hits"] == hits + 2


def test_default_limit() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert _run(tatara.compile(_label_scale), 40) == tatara.config.recompile_limit


def test_fullgraph_raises() -> None:
    compiled = tatara.compile(_label_scale, fullgraph=True, options={"recompile_limit": 2})
    assert _run(compiled, 2) == 2
    with pytest.raises(tatara.Unsupported, match="recompile_limit"), torch.no_grad():
        compiled("another", torch.randn(4))


def test_limit_behind_a_break() -> None:

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        label = f"label {next(COUNTER)}"
        print(end="")
        return y * len(label) + ord(label[-1]) + int(label[6:]) % 1000

    compiled = tatara.compile(f, options={"recompile_limit": 4})
    before = tatara.stats()["graphs"]
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(30):
            x = torch.randn(4)
            result = compiled(x)
            label = f"label {next(COUNTER) - 1}"
            expected = (x + 1) * len(label) + ord(label[-1]) + int(label[6:]) % 1000
            torch.testing.assert_close(result, expected)
    assert tatara.stats()["graphs"] - before <= 12
    assert any("recompile_limit" in str(w.message) for w in caught)


class _Layer(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x).tanh()
        if x.sum() > 1e9:
            x = x.clamp(-1, 1)
        return x * 2


class _Stack(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(_Layer(4) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x + 1


def test_layers_of_one_class_do_not_use_up_the_limit() -> None:
    """Each breaks its graph, and all share their code."""
    model = _Stack(24)
    compiled = tatara.compile(model)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        for _ in range(5):
            x = torch.randn(3, 4)
            torch.testing.assert_close(compiled(x), model(x))
        with counts() as grown:
            torch.testing.assert_close(compiled(x), model(x))
    assert grown["calls_recorded"] == grown["graphs"] == 0
    assert grown["kernels_launched"] >= 24


class _Named(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(self.name)


@pytest.mark.parametrize("stay", [False, True])
def test_modules_that_differ_use_it_up(stay: bool) -> None:
    """Modules that are alike have entries in common (test_new_modules.py)."""

    def f(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return layer(x) + 1

    compiled = tatara.compile(f, options={"recompile_limit": 2})
    x = torch.randn(2, 4)
    layers = []
    with torch.no_grad(), counts() as grown, pytest.warns(RuntimeWarning, match="recompile_limit"):
        for call in range(40):
            layer = _Named("name" * call)
            layers += [layer] if stay else []
            torch.testing.assert_close(compiled(layer, x), f(layer, x))
    assert grown["graphs"] == 2 * (18 if stay else 3)  # and of the layer that is called once it runs in eager


class _Table(dict[str, torch.Tensor]):
    def __setitem__(self, key: str, value: torch.Tensor) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def test_values_of_a_dict_are_no_keys() -> None:
    """A method that `super()` binds gets the key as its first argument."""

    def f(x: torch.Tensor) -> _Table:
        x = x.sin()
        if x.sum() > 1e9:
            x = x.clamp(-1, 1)
        table = _Table()
        table["x"] = x
        return table

    compiled = tatara.compile(f)
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.randn(4))
        with counts() as grown:
            x = torch.randn(4)
            torch.testing.assert_close(compiled(x)["x"], x.sin())
    assert grown["calls_recorded"] == grown["breaks"] == 0


class _Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + x.cos()).tanh() * (x - 1).exp() + x.relu()


def _calls(program: Callable[..., Any], compiled: Any, count: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(count):
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(i))
            torch.testing.assert_close(compiled(f"text {i}", x), program(f"text {i}", x))


def test_at_the_limit_functions_that_are_called_have_entries() -> None:
    inner = _Inner()

    def program(text: str, x: torch.Tensor) -> torch.Tensor:
        return inner(x) * len(text.split("1"))

    compiled = tatara.compile(program, options={"recompile_limit": 3})
    _calls(program, compiled, 6)
    with counts() as grown:
        _calls(program, compiled, 40)
    assert (grown["graphs"], grown["guard_hits"]) == (0, 40)
    with counts() as grown:  # after many calls the entries that were never used are gone; the inner ones are not
        _calls(program, compiled, 40)
    assert (grown["graphs"], grown["guard_hits"]) == (0, 40)


def test_a_function_that_calls_little_runs_in_eager() -> None:
    def program(text: str, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).tanh() * len(text.split("1"))

    compiled = tatara.compile(program, options={"recompile_limit": 3})
    _calls(program, compiled, 40)
    with counts() as grown:
        _calls(program, compiled, 10)
    assert not any(grown.values())
    tatara.reset()
    with counts() as grown:
        _calls(program, compiled, 1)
    assert grown["graphs"] == 1


def test_entries_that_were_used_stay() -> None:
    def program(text: str, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).tanh() * len(text.split("1"))

    compiled = tatara.compile(program, options={"recompile_limit": 3})
    for _ in range(2):
        _calls(program, compiled, 2)
    _calls(program, compiled, 60)
    with counts() as grown:
        _calls(program, compiled, 2)
    assert grown["guard_hits"] == 2
