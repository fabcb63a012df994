"""Lists of numbers as indices, integers counted between floating bounds, as_tensor of tensors: compiled, as eager has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tatara
from counters import counts

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


def _written(x: Tensor) -> Tensor:
    y = x * 1
    y[[0, 2]] = 5.0
    y[:, [0, 2]] = x[:, :2] * 3
    return y


COMPILED: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x[[0, 2]] * 2,
    "columns, from the end": lambda x: x[:, [1, 0, -1]].sin(),
    "places": lambda x: x[[0, 1], [1, 2]] + 1,
    "behind an ellipsis": lambda x: x[..., [0, 3]] * 2,
    "beside None": lambda x: x[[0, 1], None] * 2,
    "beside a number": lambda x: x[1, [0, 1]] * 2,
    "twice": lambda x: x[:, torch.tensor([0, 1])][[0, 1]] * 2,
    "written": _written,
    "count of longs": lambda x: x * torch.arange(0, 8.0, 2, dtype=torch.long),
    "count of ints": lambda x: x + torch.arange(4.0, dtype=torch.int32),
    "count of a size": lambda x: torch.arange(0, x.shape[0] * 2.0, 1.0, dtype=torch.int16) * 2,
    "a tensor already": lambda x: torch.as_tensor(x * 2, device=x.device) + 1,
    "count down": lambda x: torch.arange(6.0, -1.0, -2.0, dtype=torch.int64) * x,
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "out of bounds": lambda x: x[[0, 7]],
    "nothing": lambda x: x[[]],
    "a mask": lambda x: x[[True, False, True]],
    "a list of lists": lambda x: x[[[0, 1], [1, 2]],],
    "count of fractions": lambda x: x + torch.arange(0.5, 4.5, dtype=torch.int64),
}


def _outcome(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor | str, ...]:
    try:
        result = function(x)
    except IndexError as error:
        return (str(error),)
    if not result.requires_grad:
        return (result,)
    return result.detach(), torch.autograd.grad(result.square().sum(), x)[0]


@pytest.mark.parametrize("name", [*COMPILED, *OTHERS])
@pytest.mark.parametrize("needs", [False, True])
def test_as_eager(name: str, needs: bool) -> None:
    program = {**COMPILED, **OTHERS}[name]
    compiled = tatara.compile(program, dynamic=True)
    with counts() as grown:
        for rows in (3, 3, 3):
            x = torch.randn(rows, 4, requires_grad=needs)
            expected, actual = _outcome(program, x), _outcome(compiled, x)
            assert len(expected) == len(actual)
            for a, e in zip(actual, expected):
                if isinstance(e, str):
                    assert a == e
                else:
                    torch.testing.assert_close(a, e)
                    assert a.stride() == e.stride()
    assert grown["fallbacks"] == 0
    if name in COMPILED:
        assert grown["breaks"] == 0 and grown["graphs"] == 1
        assert grown["kernels_launched"] > 0 and grown["host_calls"] == 0
