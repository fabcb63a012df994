"""Masks of dropout: drawn by our own generator, bit by bit those of eager, which it leaves in eager's state."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402, N812

import tatara  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def _drawn(function: Any, x: Any, skipped: int) -> tuple[Any, Any]:
    torch.manual_seed(3)
    torch.empty(skipped, dtype=torch.int32).random_()  # one number each: trials take two
    return function(x), torch.get_rng_state()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [3, 1023, 1024, 1500, 70001])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.97])
def test_numbers_and_states_are_eagers(dtype: Any, count: int, p: float) -> None:
    def function(x: Any) -> Any:
        return F.dropout(F.dropout(x, p), 0.3), torch.rand(3)

    x = torch.ones(count, dtype=dtype)
    compiled = tatara.compile(function)
    for skipped in (0, 1, 311, 623, 624, 700):
        (ours, after), state = _drawn(compiled, x, skipped)
        (theirs, expected), eager_state = _drawn(function, x, skipped)
        assert torch.equal(ours, theirs)
        assert torch.equal(after, expected)
        assert torch.equal(state, eager_state)


def test_inside_fork_rng() -> None:
    def function(x: Any) -> Any:
        return F.dropout(x * 2, 0.5)

    x = torch.ones(5000)
    compiled = tatara.compile(function)
    found = []
    for run in (function, compiled, compiled):
        torch.manual_seed(1)
        with torch.random.fork_rng():
            torch.manual_seed(2)
            inner = run(x)
        found.append((inner, run(x), torch.get_rng_state()))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, found[0]))


def test_masks_are_drawn_by_one_host_call_and_nothing_of_the_input_is_kept_for_them() -> None:
    def function(x: Any) -> Any:
        return F.dropout(x.sin(), 0.5).cos()

    x = torch.randn(4096)
    compiled = tatara.compile(function)
    compiled(x)
    with tatara.kernel_history() as history:
        compiled(x)
    assert [event.name for event in history.host_calls] == ["tatara::bernoulli"]
    assert len(history.launches) == 1


@pytest.mark.parametrize("dims", [(0,), (3, 0, 2), ()])
def test_few_numbers(dims: tuple[int, ...]) -> None:
    def function(x: Any) -> Any:
        return F.dropout(x, 0.5)

    x = torch.ones(dims)
    ours, state = _drawn(tatara.compile(function), x, 1)
    theirs, eager_state = _drawn(function, x, 1)
    assert torch.equal(ours, theirs)
    assert torch.equal(state, eager_state)


def test_plans_are_what_the_operators_take() -> None:
    """With `verify`, as when a plan comes from the disk cache, arguments are compared with what the operator takes."""
    x = torch.ones(64, 64, requires_grad=True)
    compiled = tatara.compile(lambda x: F.dropout(x * 2, 0.5).sum(), options={"verify": True, "fallback": False})
    compiled(x).backward()
    (entry,) = compiled._report()["entries"]
    assert entry["fallback"] == ""
