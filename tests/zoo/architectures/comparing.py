"""What differs between a compiled result and eager's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

# A difference is measured as a share of the largest value of its tensor. What is over the tolerance is compared with a run in
# float64: it is right when it is at most so many times as far from that as eager is.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
TIMES_EAGER = 8.0
GRADIENT_TIMES = 10.0  # sums over all of a batch


def leaves(value: Any, path: str = "", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Tensors and plain values with their places, and the type of each container before what is in it."""
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    if id(value) in seen:
        return
    seen |= {id(value)}
    if isinstance(value, dict):
        yield path, (type(value), list(value))
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key), seen)
    elif isinstance(value, list | tuple):
        yield path, (type(value), len(value))
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]", seen)
    elif dataclasses.is_dataclass(value) or (
        hasattr(value, "__dict__") and not isinstance(value, type | torch.nn.Module) and not callable(value)
    ):
        yield path, type(value)
        yield from leaves(vars(value), path, seen)
    else:
        yield path, value


def floats(value: Any) -> list[torch.Tensor]:
    """All floating tensors of a result."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _apart(x: torch.Tensor, y: torch.Tensor, scale: float) -> float:
    """The largest difference as a share of scale; inf where one is finite and the other is not, or infinities differ."""
    x, y = x.detach().double(), y.detach().double()
    finite = y.isfinite()
    if not torch.equal(finite, x.isfinite()) or not torch.equal(
        x[~finite].nan_to_num(nan=0.5), y[~finite].nan_to_num(nan=0.5)
    ):
        return math.inf
    return float((x[finite] - y[finite]).abs().max()) / scale if finite.any() else 0.0


def _largest(value: torch.Tensor) -> float:
    value = value.detach().double()
    value = value[value.isfinite()]
    return float(value.abs().max()) if value.numel() else 0.0


@dataclasses.dataclass
class Comparison:
    """What a comparison found."""

    problems: list[str]
    difference: float
    """the largest"""


def _seen(tensor: torch.Tensor, strides: bool) -> tuple[Any, ...]:
    kind = (str(tensor.dtype), tuple(tensor.shape), str(tensor.device.type), tensor.requires_grad)
    return (*kind, tensor.stride()) if strides else kind


def compare(
    ours: Any,
    theirs: Any,
    reference: Callable[[], Any],
    what: str,
    coarse: torch.dtype | None = None,
    strides: bool = True,
    times: float = 1.0,
) -> Comparison:
    """All that differs. `reference()` gives the result in float64, or raises; it is asked for where values differ by more than
    the tolerance. `coarse` is the dtype whose tolerance counts at least (autocast).
    """
    mine, expected = list(leaves(ours)), list(leaves(theirs))
    problems: list[str] = []
    worst = 0.0
    exact: list[tuple[str, Any]] | None = None
    largest = max(
        (_largest(y) for _, y in expected if isinstance(y, torch.Tensor) and y.is_floating_point()), default=0.0
    )
    if [path for path, _ in mine] != [path for path, _ in expected]:
        missing = sorted({p for p, _ in expected} ^ {p for p, _ in mine})[:3]
        return Comparison([f"{what}: fields differ: {', '.join(missing)}"], math.inf)
    for index, ((path, x), (_, y)) in enumerate(zip(mine, expected, strict=True)):
        place = f"{what} {path}".strip()
        if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
            if isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor) or type(x) is not type(y) or x != y:
                problems.append(f"{place}: {_short(x)}, eager {_short(y)}")
            continue
        if _seen(x, strides) != _seen(y, strides):
            problems.append(f"{place}: {_seen(x, strides)}, eager {_seen(y, strides)}")
            continue
        if not y.is_floating_point():
            if not torch.equal(x, y):
                problems.append(f"{place}: {int((x != y).sum())} of {y.numel()} values differ")
            continue
        scale = max(_largest(y), 1e-4 * largest, 1e-6)
        tolerance = times * max(TOLERANCES.get(y.dtype, 1e-4), TOLERANCES.get(coarse, 0.0) if coarse else 0.0)
        apart = _apart(x, y, scale)
        worst = max(worst, apart)
        if apart <= tolerance:
            continue
        beside = ""
        try:
            exact = exact if exact is not None else list(leaves(reference()))
            true = exact[index][1]
            our_error, their_error = _apart(x, true, scale), _apart(y, true, scale)
            if our_error <= max(TIMES_EAGER * their_error, tolerance) and math.isfinite(our_error):
                continue
            beside = f" (from float64 {our_error:.1e}, eager {their_error:.1e})"
        except Exception as error:
            beside = f" (no float64 run: {type(error).__name__})"
        problems.append(f"{place}: off by {apart:.1e} of its largest value{beside}")
    return Comparison(problems, worst)


def _short(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:80]
