"""Calls of torch's in other words, while a compiled function is traced: by calls that graphs have."""

from __future__ import annotations

from typing import Any

import torch


def seed() -> int:
    """torch.seed(), which looks at the stack while CUDA has not begun."""
    number: int = torch.default_generator.seed()
    torch.manual_seed(number)  # of the other devices
    return number


def new_tensor(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Tensor.new_tensor of data in Python."""
    data = args[0] if args else kwargs.get("data")
    known = {"data", "dtype", "device", "requires_grad", "pin_memory"}
    simple = type(self) in (torch.Tensor, torch.nn.Parameter) and self.layout is torch.strided
    if (
        len(args) > 1
        or not simple
        or not isinstance(data, int | float | complex | list | tuple)
        or not known >= set(kwargs)
    ):
        return torch.Tensor.new_tensor(self, *args, **kwargs)
    options = {name: value for name, value in kwargs.items() if name != "data" and value is not None}
    options.setdefault("dtype", self.dtype)
    options.setdefault("device", self.device)
    return torch.tensor(data, **options)


def fill_diagonal_(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Tensor.fill_diagonal_ of a matrix."""
    simple = type(self) in (torch.Tensor, torch.nn.Parameter) and self.layout is torch.strided and self.dim() == 2
    if not simple or len(args) != 1 or kwargs:
        return torch.Tensor.fill_diagonal_(self, *args, **kwargs)
    self.diagonal().fill_(args[0])
    return self


def einsum(equation: str, operands: Any) -> torch.Tensor:
    """torch.einsum of one operand: diagonals, dimensions in another order, a sum. What torch would refuse goes to torch's own."""
    x = operands[0]
    places = None if torch.is_autocast_enabled(x.device.type) else _places(equation, x.dim())
    if places is None or 0 in x.shape:
        return torch._VF.einsum(equation, operands)
    order, kept = places
    at: dict[Any, int] = {}
    for label in order[0]:
        if label not in at:
            at[label] = len(at)
        elif x.shape[at[label]] != x.shape[len(at)]:
            return torch._VF.einsum(equation, operands)
        else:
            x = x.diagonal(0, at[label], len(at)).movedim(-1, at[label])
    x = x.permute([at[label] for label in order[1]])
    return x.sum(list(range(kept, len(order[1])))) if kept < len(order[1]) else x


def _places(equation: str, rank: int) -> tuple[tuple[list[Any], list[Any]], int] | None:
    """Labels of the operand and in the order of the result, with those that are summed behind its own; how many these are.
    Dimensions of an ellipsis are numbers. None: torch's own says what is wrong.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    missing = rank - len(left.replace("...", ""))
    own = _labels(left, missing)
    if own is None or len(own) != rank or missing < 0:
        return None
    dots = [label for label in own if isinstance(label, int)]
    letters = [chr(code) for code in range(ord("A"), ord("z") + 1) if chr(code) in left]
    if arrow:
        result = _labels(right, len(dots))
        if result is None or len(set(result)) != len(result) or not set(result) <= set(own):
            return None
    else:
        result = dots + [letter for letter in letters if left.count(letter) == 1]
    behind = [label for label in dots + letters if label not in result]
    return (own, result + behind), len(result)


def _labels(text: str, dots: int) -> list[Any] | None:
    before, ellipsis, behind = text.partition("...")
    if not (before + behind).isascii() or not (before + behind + "a").isalpha():
        return None
    return [*before, *range(dots), *behind] if ellipsis else [*before]
