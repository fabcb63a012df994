"""A function whose guards never hold twice is not compiled for ever."""

from __future__ import annotations

import itertools
import warnings
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
