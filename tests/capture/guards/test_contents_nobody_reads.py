"""Lists and dicts of arguments that a program only adds to, or does not look into: they may hold anything in later calls."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from counters import counts
from results import plain

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


class Trainer:
    """No torch module: its attributes are guarded as an argument's."""

    def __init__(self) -> None:
        self.history: list[Any] = []
        self.logs: dict[str, list[Any]] = {"loss": [], "norm": []}
        self.table: dict[Any, Any] = {}
        self.recent: collections.deque[Any] = collections.deque(maxlen=3)
        self.seen: set[int] = set()
        self.steps = 0
        self.mean = torch.zeros(4)


def appends(self: Trainer, x: Tensor) -> Tensor:
    self.mean = self.mean * 0.9 + x
    self.history.append(self.mean)
    return self.mean * 2


def counts_too(self: Trainer, x: Tensor) -> Tensor:
    self.steps += 1
    self.history.append(self.steps)
    return x * self.steps


def logs(self: Trainer, x: Tensor) -> Tensor:
    self.logs["loss"].append(x.sum())
    self.logs["norm"].append({"step": x.mean()})
    return x + 1


def extends(self: Trainer, x: Tensor) -> Tensor:
    self.history.extend([x, x * 2])
    self.history += [3]
    return x + 1


def fills(self: Trainer, x: Tensor) -> Tensor:
    self.table["last"] = x * 2
    self.recent.append(x)
    return x + 1


def binds(self: Trainer, x: Tensor) -> Tensor:
    history = self.history
    history.append([x])
    add = history.append
    add(x * 2)
    return x + 1


def gives_it(self: Trainer, x: Tensor) -> list[Any]:
    self.history.append(x * 2)
    return self.history


ADDING = [appends, counts_too, logs, extends, fills, binds, gives_it]


def reads_last(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(x)
    return self.history[-1] + self.history[0]


def reads_local(self: Trainer, x: Tensor) -> Tensor:
    history = self.history
    history.append(x)
    return history[0] * 2


def asks_length(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(1)
    return x * len(self.history)


def asks_truth(self: Trainer, x: Tensor) -> Tensor:
    result = x if self.history else x * 10
    self.history.append(1)
    return result


def sums(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(3)
    return x * sum(self.history)


def compares(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(3)
    return x * (self.history == [3, 3])


def copies(self: Trainer, x: Tensor) -> Any:
    self.history.append(x)
    return self.history[:], list(self.history), [*self.history], self.history * 2


def stacks(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(x)
    return torch.stack(self.history)


def indexes(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(1)
    return x[self.history]


def shows(self: Trainer, x: Tensor) -> Any:
    self.history.append(1)
    return f"{self.history}", str(self.logs), x + 1


def keys(self: Trainer, x: Tensor) -> Any:
    self.table[len(self.table)] = x
    return list(self.table), x + 1


def asks_key(self: Trainer, x: Tensor) -> Tensor:
    result = self.table["last"] * 2 if "last" in self.table else x
    self.table["last"] = x
    return result


def drops_first(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(x)
    if len(self.history) > 2:
        self.history.pop(0)
    return sum(self.history) * 1.0


def nests(self: Trainer, x: Tensor) -> Tensor:
    self.history.append([x])
    self.history[-1].append(1)
    return x + len(self.history[0])


def calls_with(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(x)
    return max(*self.history, x, key=lambda t: float(t.shape[0])) * 2


def knows_it_again(self: Trainer, x: Tensor) -> Tensor:
    self.history.append(x)
    self.last = x
    return x + (self.history[0] is x)


READING = [
    reads_last,
    reads_local,
    asks_length,
    asks_truth,
    sums,
    compares,
    copies,
    stacks,
    indexes,
    shows,
    keys,
    asks_key,
]
READING += [drops_first, nests, calls_with, knows_it_again]


def same_as_eager(program: Callable[[Trainer, Tensor], Any], calls: int = 6) -> dict[str, int]:
    eager, trainer = Trainer(), Trainer()
    compiled = tatara.compile(program)
    for call in range(calls):
        x = torch.arange(4.0) + call
        with counts() as grown:
            result = compiled(trainer, x)
        expected = program(eager, x)
        assert plain(result) == plain(expected)
        assert plain(vars(trainer)) == plain(vars(eager))
        assert (result is trainer.history) == (expected is eager.history)
    return grown


@pytest.mark.parametrize("program", ADDING, ids=lambda program: program.__name__)
def test_what_a_program_only_adds_to_may_grow(program: Callable[[Trainer, Tensor], Any]) -> None:
    grown = same_as_eager(program)
    assert grown["graphs"] == grown["recompiles"] == grown["breaks"] == 0


@pytest.mark.parametrize("program", READING, ids=lambda program: program.__name__)
def test_what_a_program_reads_is_compared(program: Callable[[Trainer, Tensor], Any]) -> None:
    same_as_eager(program)


def test_a_list_that_is_not_looked_at_is_no_guard() -> None:
    trainer = Trainer()
    run = tatara.compile(lambda self, x: x + self.mean)
    run(trainer, torch.ones(4))
    trainer.history[:] = [torch.ones(2), 3, trainer]
    trainer.table = {1: 2}
    with counts() as grown:
        assert torch.equal(run(trainer, torch.ones(4)), torch.ones(4))
    assert grown["graphs"] == grown["recompiles"] == 0


def test_a_tensor_in_an_unread_list_may_be_an_argument_too() -> None:
    """It is found at its own place in later calls, whatever the list holds then."""
    run = tatara.compile(lambda items, x: x * 2)
    x = torch.ones(2)
    for items in ([x, x], [], [torch.zeros(2), x, 1]):
        assert torch.equal(run(items, x), x * 2)


def test_the_guards_say_so() -> None:
    trainer = Trainer()
    report = tatara.explain(appends)(trainer, torch.ones(4))
    assert any("history: list of any contents" in guard for guard in report.guards), report.guards


def test_defaults_are_read_by_the_call_itself() -> None:
    def program(x: Tensor, items: list[int] = [], *, scale: int = 2, options: dict[str, int] = {"k": 1}) -> Tensor:  # noqa: B006
        items.append(1)
        return x * len(items) * scale * options["k"]

    run, x = tatara.compile(program), torch.ones(2)
    keywords = program.__kwdefaults__
    assert [run(x)[0].item() for _ in range(2)] == [2, 4]
    keywords["scale"] = 3
    assert run(x)[0].item() == 9
    keywords["options"] = {"k": 10}
    assert run(x)[0].item() == 120
    keywords["options"]["k"] = 20
    program.__defaults__ = ([],)
    assert run(x)[0].item() == 60


def test_numbers_in_dicts_with_defaults_become_symbols() -> None:
    def program(self: Trainer, x: Tensor) -> Tensor:
        self.table["seen"] += 2
        return x * self.table["seen"]

    eager, trainer = Trainer(), Trainer()
    eager.table, trainer.table = collections.defaultdict(int), collections.defaultdict(int)
    compiled = tatara.compile(program)
    for call in range(7):
        with counts() as grown:
            assert torch.equal(compiled(trainer, torch.ones(2) + call), program(eager, torch.ones(2) + call))
        assert trainer.table == eager.table
    assert grown["graphs"] == grown["recompiles"] == 0
