"""What comes behind a call whose sizes data decide, with gradients: the call has a history, and nothing breaks behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")


def _packed(kind: type[torch.nn.Module], first: bool) -> Callable[[Any], Any]:
    layer = kind(4, 6, batch_first=True)

    def program(x: Any) -> Any:
        packed = pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=True)
        padded, lengths = pad_packed_sequence(layer(packed)[0], batch_first=first)
        return padded.square().mean() + lengths.sum()

    return program


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "GRU": _packed(torch.nn.GRU, True),
    "GRU, time first": _packed(torch.nn.GRU, False),
    "LSTM": _packed(torch.nn.LSTM, True),
    "RNN": _packed(torch.nn.RNN, True),
    "combinations": lambda x: torch.combinations(x.flatten()[:5]).square().sum(),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([1, 2, 3]), 0).sin().sum(),
    "a mask": lambda x: x[x > 0].square().sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_breaks_behind_it(name: str) -> None:
    program = PROGRAMS[name]
    compiled = tatara.compile(program)
    with counts() as grown:
        for seed in range(5):
            torch.manual_seed(seed)
            leaves = [torch.randn(3, 5, 4).requires_grad_()]
            leaves.append(leaves[0].detach().clone().requires_grad_())
            results = [function(leaf) for function, leaf in zip((compiled, program), leaves, strict=True)]
            for result in results:
                result.backward()
            torch.testing.assert_close(*results)
            torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    assert (grown["breaks"], grown["fallbacks"]) == (0, 0)
