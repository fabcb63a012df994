"""The first call of a training graph runs what was compiled, unless somebody holds a tensor that is no result."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from counters import counts
from results import is_plain, same

pytestmark = pytest.mark.usefixtures("fresh")


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def launched(call: Callable[[], Any]) -> int:
    with counts() as grown:
        call()
    return grown["kernels_launched"]


def test_first_call_and_its_backward_run_plans() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.tanh(x @ w), 0.3).square().mean()

    x, w = leaf(16, 8), leaf(8, 8)
    torch.manual_seed(7)
    expected = loss(x, w)
    gradients = torch.autograd.grad(expected, (x, w))
    state = torch.get_rng_state()
    compiled = tatara.compile(loss)
    torch.manual_seed(7)
    results: list[torch.Tensor] = []
    assert launched(lambda: results.append(compiled(x, w))) > 0
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(results[0], expected)
    assert launched(results[0].backward) > 0
    torch.testing.assert_close((x.grad, w.grad), gradients)


def test_results_of_every_kind() -> None:
    def f(x: torch.Tensor) -> dict[str, Any]:
        hidden = torch.tanh(x) * 2
        again = [hidden, hidden[1:], hidden.detach()]
        return {"list": again, "same": hidden, "input": x, "sum": hidden.sum(), "number": 3}

    x = leaf(4, 3)
    expected, got = f(x), tatara.compile(f)(x)
    assert got["list"][0] is got["same"] and got["input"] is x and got["number"] == 3
    for ours, theirs in zip(
        [*got["list"], got["same"], got["sum"]], [*expected["list"], expected["same"], expected["sum"]], strict=True
    ):
        torch.testing.assert_close(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad and ours.stride() == theirs.stride()
        assert ours.device == theirs.device
    assert got["list"][1].data_ptr() == got["same"].data_ptr() + 3 * 4
    (got["sum"] + got["list"][1].sum()).backward()
    theirs = torch.autograd.grad(expected["sum"] + expected["list"][1].sum(), x)[0]
    torch.testing.assert_close(x.grad, theirs)


def test_what_a_cache_keeps_has_its_value() -> None:
    kept: list[Any] = []

    @functools.lru_cache
    def table(n: int) -> torch.Tensor:
        return torch.arange(n, dtype=torch.float32).sin()

    def f(x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x) * table(x.shape[0])).sum()

    x = leaf(5)
    result = tatara.compile(f)(x)
    torch.testing.assert_close(result, (torch.tanh(x) * torch.arange(5.0).sin()).sum())
    kept.append(table(5))
    assert kept[0].device.type == "cpu"
    torch.testing.assert_close(kept[0], torch.arange(5.0).sin())


def test_a_frame_that_somebody_holds() -> None:
    import sys

    frames: list[Any] = []

    def note() -> None:
        frames.append(sys._getframe(1))

    def f(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(x)
        note()
        return hidden.sum()

    x = leaf(5)
    result = tatara.compile(f)(x)
    torch.testing.assert_close(result, torch.tanh(x).sum())
    held = frames[0].f_locals.get("hidden")
    assert held is None or held.device.type == "cpu"


def test_intermediate_tensors_die() -> None:
    seen: list[Any] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(x)
        seen.append(weakref.ref(hidden))
        return (hidden * 2).sum()

    x = leaf(5)
    tatara.compile(f)(x).backward()
    torch.testing.assert_close(x.grad, 2 * (1 - torch.tanh(x).square()))
    assert seen[0]() is None


def test_an_operator_that_fails() -> None:
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)[index].sum()

    x, index = leaf(5), torch.tensor([7])
    with pytest.raises(IndexError, match="out of bounds|out of range"):
        tatara.compile(f)(x, index)
    with pytest.raises(IndexError, match="out of bounds|out of range"):
        f(x, index)


def test_memory_of_the_first_call() -> None:
    """Saved values are those of the plan: a chain of tanh that is computed again keeps nothing but its input."""

    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.tanh(x) * 1.5 + 1
        return x.sum()

    x = leaf(64, 64)
    compiled = tatara.compile(f)
    first, second = compiled(x), compiled(x)
    assert len(first.grad_fn.saved_tensors) == len(second.grad_fn.saved_tensors)
    torch.testing.assert_close(first, second)


class Part:
    """An object of the store."""


class Store:
    """What a program writes to: an object of its own, from before the call."""

    slot = "of the class"

    def __init__(self) -> None:
        self.value: Any = None
        self.old: Any = 1
        self.items: list[Any] = []
        self.table: dict[str, Any] = {}
        self.other = Part()


def write_flag(store: Store, hidden: torch.Tensor) -> None:
    store.value = "busy"
    store.slot = "of the object"


def write_and_back(store: Store, hidden: torch.Tensor) -> None:
    before, store.value = store.value, {}
    store.value["busy"] = True
    store.value = before


def write_tensor(store: Store, hidden: torch.Tensor) -> None:
    store.value = hidden


def write_tensor_inside(store: Store, hidden: torch.Tensor) -> None:
    store.value = {"parts": [hidden * 2, (hidden, 3)]}


def write_over_tensor(store: Store, hidden: torch.Tensor) -> None:
    store.value = hidden * 3
    store.value = store.value.sum()


def drop_attribute(store: Store, hidden: torch.Tensor) -> None:
    del store.old
    store.other.tensor = hidden + 1


def fill_list(store: Store, hidden: torch.Tensor) -> None:
    store.items.append(hidden)
    store.items.extend([hidden.detach(), len(store.items)])
    store.items[0] = hidden[1:]


def fill_dict(store: Store, hidden: torch.Tensor) -> None:
    store.table["hidden"] = hidden
    store.table.update(again=store.table["hidden"], size=hidden.shape)
    store.table.pop("again")


def keep_object(store: Store, hidden: torch.Tensor) -> None:
    part = Store()
    part.items.append(hidden.cos())
    part.value = part.items[0]
    store.value = part


WRITES = [
    write_flag,
    write_and_back,
    write_tensor,
    write_tensor_inside,
    write_over_tensor,
    drop_attribute,
    fill_list,
    fill_dict,
    keep_object,
]
# A write that is overwritten holds a tensor that is no result: the host runs the first call, which gives it its value.
BY_HOST = [write_over_tensor]


def tensors_of(found: Any) -> list[torch.Tensor]:
    """Every tensor that `found` holds, in order, again where it is held again."""
    if isinstance(found, torch.Tensor):
        return [found]
    if is_plain(found):
        found = vars(found)
    if isinstance(found, dict):
        found = list(found.values())
    return [tensor for part in found for tensor in tensors_of(part)] if isinstance(found, (list, tuple)) else []


def first_places(tensors: list[torch.Tensor]) -> list[int]:
    """Which are the same: where each is for the first time."""
    return [next(i for i, other in enumerate(tensors) if other is tensor) for tensor in tensors]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("reads", [False, True])
def test_a_call_that_writes(write: Callable[..., None], reads: bool) -> None:
    """First and later calls leave what eager leaves: values, the same tensors, gradients through what was written."""

    def f(store: Store, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(x) * 2
        write(store, hidden)
        return (hidden.exp() if reads else hidden).sum()

    compiled = tatara.compile(f)
    for call in range(3):
        x = leaf(4, 3)
        ours, theirs = Store(), Store()
        expected = f(theirs, x)
        results: list[torch.Tensor] = []
        kernels = launched(lambda ours=ours, x=x, results=results: results.append(compiled(ours, x)))
        assert call > 0 or (kernels > 0) == (write not in BY_HOST)
        same([results[0], ours], [expected, theirs])
        mine, wanted = tensors_of([results[0], ours]), tensors_of([expected, theirs])
        assert first_places(mine) == first_places(wanted)
        assert [tensor.device for tensor in mine] == [tensor.device for tensor in wanted]
        loss, other = (sum(t.square().sum() for t in held if t.requires_grad) for held in (mine, wanted))
        torch.testing.assert_close(torch.autograd.grad(loss, x)[0], torch.autograd.grad(other, x)[0])
