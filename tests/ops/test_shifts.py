"""Shifts of integers by what tensors say, whatever that is: past the width of the type and negative numbers as well."""

from __future__ import annotations

import pytest
import torch

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def numbers(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """What is shifted, and by how much."""
    info = torch.iinfo(dtype)
    amounts = [*range(-3, info.bits + 4), info.min, info.min + 1, 127, 128, 255, info.max]
    values = [0, 1, 2, 3, 5, 77, 100, 200, -1, -2, -77, info.min, info.max, info.max - 1]
    inside = [[n for n in some if info.min <= n <= info.max] for some in (values, amounts)]
    return torch.tensor(inside[0], dtype=dtype), torch.tensor(inside[1], dtype=dtype)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_number_of_places(dtype: torch.dtype, left: bool) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shifted = a[:, None] << b if left else a[:, None] >> b
        return shifted, shifted.flatten() + 1, (a << b[5]) if left else (a >> b[5])

    compiled = tatara.compile(program)
    given = numbers(dtype)
    for _ in range(3):
        with tatara.kernel_history() as history:
            found = compiled(*given)
    assert not history.host_calls and history.launches
    for ours, theirs in zip(found, program(*given), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_promotion_and_writes() -> None:
    def program(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        c <<= a
        return a >> b, torch.bitwise_left_shift(b, a), c

    compiled = tatara.compile(program)
    a, b = torch.arange(8, dtype=torch.uint8), torch.arange(-4, 4, dtype=torch.int32)
    for _ in range(3):
        ours, theirs = (f(a, b, torch.ones(8, dtype=torch.int64)) for f in (compiled, program))
        for x, y in zip(ours, theirs, strict=True):
            assert x.dtype == y.dtype and torch.equal(x, y)
