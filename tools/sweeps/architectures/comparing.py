"""What differs between a compiled result and eager's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

# A difference is measured as a share of the largest value of its tensor. What is over the tolerance is compared with how far
# eager's own result moves: in float64, and with parameters changed by a rounding (a unit of a ReLU may then be on the other
# side of zero). It is right when it is at most so many times as far.
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


def _largest(value: torch.Tensor) -> torch.Tensor:
    """The largest finite magnitude of a tensor, 0 for one that is not floating."""
    if not value.is_floating_point() or not value.numel():
        return torch.zeros((), dtype=torch.float64, device=value.device)
    value = value.detach().double()
    return torch.where(value.isfinite(), value.abs(), 0.0).amax()


def _difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of floating tensors the largest difference (inf where one is finite and the other is not, or infinities differ), of
    others how many values differ. It does not wait for the device.
    """
    if not y.numel():
        return torch.zeros((), dtype=torch.float64, device=y.device)
    if not y.is_floating_point():
        return (x != y).sum().double()
    x, y = x.detach().double(), y.detach().double()
    same = (x == y) | (x.isnan() & y.isnan())
    return torch.where(same, 0.0, (x - y).abs()).nan_to_num(nan=math.inf, posinf=math.inf).amax()


def _read(values: list[torch.Tensor]) -> list[float]:
    """All values at once: to wait for each of some hundred takes seconds where processes share a device."""
    by_device: dict[torch.device, list[int]] = {}
    for index, value in enumerate(values):
        by_device.setdefault(value.device, []).append(index)
    read = [0.0] * len(values)
    for indices in by_device.values():
        for index, number in zip(indices, torch.stack([values[i] for i in indices]).tolist(), strict=True):
            read[index] = number
    return read


@dataclasses.dataclass
class Comparison:
    """What a comparison found."""

    problems: list[str]
    difference: float
    """the largest"""


def _seen(tensor: torch.Tensor, strides: bool) -> tuple[Any, ...]:
    kind = (str(tensor.dtype), tuple(tensor.shape), str(tensor.device.type), tensor.requires_grad)
    return (*kind, tensor.stride()) if strides else kind


def _comparable(x: Any, y: Any, strides: bool) -> bool:
    return isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and _seen(x, strides) == _seen(y, strides)


def compare(
    ours: Any,
    theirs: Any,
    others: Callable[[], list[Any]],
    what: str,
    coarse: torch.dtype | None = None,
    strides: bool = True,
    times: float = 1.0,
) -> Comparison:
    """All that differs. `others()` gives results that eager might have given as well; it is asked for where values differ by
    more than the tolerance. `coarse` is the dtype whose tolerance counts at least (autocast).
    """
    mine, expected = list(leaves(ours)), list(leaves(theirs))
    found = Comparison([], 0.0)
    alternatives: list[list[tuple[str, Any]]] | None = None
    if [path for path, _ in mine] != [path for path, _ in expected]:
        missing = sorted({p for p, _ in expected} ^ {p for p, _ in mine})[:3]
        return Comparison([f"{what}: fields differ: {', '.join(missing)}"], math.inf)
    pairs = [(x, y) if _comparable(x, y, strides) else None for (_, x), (_, y) in zip(mine, expected, strict=True)]
    apart_of = iter(_read([_difference(*pair) for pair in pairs if pair]))
    largest_of = _read([_largest(y) if isinstance(y, torch.Tensor) else torch.zeros(()).double() for _, y in expected])
    largest = max(largest_of, default=0.0)
    for index, ((path, x), (_, y)) in enumerate(zip(mine, expected, strict=True)):
        place = f"{what} {path}".strip()
        if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
            if isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor) or type(x) is not type(y) or x != y:
                found.problems.append(f"{place}: {_short(x)}, eager {_short(y)}")
            continue
        if _seen(x, strides) != _seen(y, strides):
            found.problems.append(f"{place}: {_seen(x, strides)}, eager {_seen(y, strides)}")
            continue
        scale = max(largest_of[index], 1e-4 * largest, 1e-6) if y.is_floating_point() else 1.0
        tolerance = times * max(TOLERANCES.get(y.dtype, 1e-4), TOLERANCES.get(coarse, 0.0) if coarse else 0.0)
        apart = next(apart_of) / scale
        if y.is_floating_point():
            found.difference = max(found.difference, apart)
        if apart <= tolerance * y.is_floating_point():
            continue
        if alternatives is None:
            alternatives = [list(leaves(other)) for other in others()]
        same_shape = [a[index][1] for a in alternatives if len(a) == len(expected) and a[index][1].shape == y.shape]
        moves = max(_read([_difference(other, y) for other in same_shape]), default=0.0) / scale
        if apart <= TIMES_EAGER * moves and (math.isfinite(apart) or math.isinf(moves)):
            continue  # eager's own is infinite as well, and elsewhere (an overflow of half types)
        beside = f"eager's own moves by {moves:.1e}" if same_shape else "nothing to compare with"
        kind = "of its largest value" if y.is_floating_point() else f"of {y.numel()} values"
        found.problems.append(f"{place}: off by {apart:.1e} {kind} ({beside})")
    return found


def _short(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:80]
