"""Tuples of classes of their own leave compiled code as what they are, also where the class has a constructor of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tatara  # noqa: E402


class Pair(NamedTuple):
    first: Any
    second: Any


class Checked(Pair):
    def __new__(cls, first: Any, second: Any = None) -> Any:
        if second is None:
            raise TypeError("two are needed")
        return super().__new__(cls, first, second)


class Noted(tuple):  # type: ignore[type-arg]
    def __new__(cls, first: Any, note: str) -> Any:
        made = super().__new__(cls, (first, first + 1))
        made.note = note
        made.kept = first * 2
        return made


def _outcome(function: Any) -> list[Any]:
    torch.manual_seed(0)
    seen: list[Any] = []
    for _ in range(3):
        found = function(torch.randn(3, requires_grad=True))
        own = vars(found)
        seen += [type(found), len(found), *(t.detach() for t in found), sorted(own), own.get("note")]
        seen += [own["kept"].detach()] if "kept" in own else []
    return seen


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("make", [Checked, Noted], ids=lambda c: c.__name__)
def test_constructors_of_their_own(make: Any, broken: bool) -> None:
    def function(x: Any) -> Any:
        made = make(x.sin(), x.cos() if make is Checked else "noted")
        if broken:
            made[0].sum().item()
        return made

    tatara.reset()
    want, got = _outcome(function), _outcome(tatara.compile(function))
    for a, b in zip(want, got, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences(kind: Any) -> None:
    def train(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        net = kind(4, 6, batch_first=True)

        def step(x: Any, lengths: Any) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            rows, _ = nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
            loss = rows.square().mean()
            loss.backward()
            return rows, loss

        run = tatara.compile(step) if compiled else step
        results = [run(torch.randn(3, 5, 4), torch.tensor([5, 2, 3])) for _ in range(3)]
        return [t.detach() for pair in results for t in pair] + [p.grad for p in net.parameters()]

    tatara.reset()
    for want, got in zip(train(False), train(True), strict=True):
        torch.testing.assert_close(got, want)
