"""Unsigned integers of 16, 32 and 64 bits, with which torch hardly computes, as bits in int64."""

from __future__ import annotations

import torch

from tatara.array_api._torch.operands import bits

_SIGN_BIT = -(2**63)


def quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The bits of a quotient; operands are of one wide unsigned type."""
    if a.dtype is not torch.uint64:
        return torch.floor_divide(bits(a), bits(b))
    return _divided(bits(a), bits(b))[0]


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The bits of a remainder; operands are of one wide unsigned type."""
    if a.dtype is not torch.uint64:
        return torch.remainder(bits(a), bits(b))
    return _divided(bits(a), bits(b))[1]


def _divided(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Half the dividend fits int64: twice its quotient is right or one too small. A divisor with the sign bit goes in
    # once or not at all.
    big = b < 0
    half = shifted_right(a, 1)
    guess = torch.floor_divide(half, torch.where(big, 1, b)) << 1
    guess = torch.where(big, 0, guess)
    rest = a - guess * b
    once_more = (rest ^ _SIGN_BIT) >= (b ^ _SIGN_BIT)
    return guess + once_more.to(torch.int64), torch.where(once_more, rest - b, rest)


def shifted_right(a: torch.Tensor, count: torch.Tensor | int) -> torch.Tensor:
    """A shift of 64 bits that fills with zeros."""
    if isinstance(count, int):
        return torch.bitwise_right_shift(a, min(count, 63)) & ((2**64 - 1) >> count) if count else a
    # One shift that drops the sign bit, then the rest.
    shifted = torch.bitwise_right_shift(shifted_right(a, 1), torch.clamp(count - 1, min=0))
    return torch.where(count == 0, a, shifted)
