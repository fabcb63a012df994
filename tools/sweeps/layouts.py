"""`make opinfo-layouts`: every OpInfo entry on operands that the suite's own samples do not have, beside eager's.

Each column changes the samples in another way:

- strided: every operand with gaps between its elements and an offset, turned round, or expanded from one row;
- empty: a dimension of every operand that has it is 0;
- zero_dim: the first operand, the others, or all of them are one number without dimensions;
- alias: operands are the same tensor, or see one storage at different offsets;
- out: `out=` of the right kind, of another shape, dtype or layout, and the first operand itself;
- inplace: the in-place method on views (every second element, turned round, a row, another dtype), whose base is read afterwards;
- promote: pairs of dtypes, with and without dimensions.

Compared is what `make opinfo` compares, in the call that captures and in two later ones.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import samples
import sweep

CALLS = 3
MOST = 4  # samples of an entry where --samples does not say
PROMOTED = (
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
)

Change = Callable[[torch.Tensor], torch.Tensor]
Way = tuple[str, Callable[..., Any], Any]


def _gaps(t: torch.Tensor) -> torch.Tensor:
    """The same values with every second element, behind two others."""
    if not t.dim():
        return torch.stack([t, t, t])[2]
    wide = torch.stack([t, t.roll(1)], -1).flatten(-2)
    return torch.cat([wide[:1], wide])[1:][..., ::2]


def _turned(t: torch.Tensor) -> torch.Tensor:
    return t.permute(*reversed(range(t.dim()))).contiguous().permute(*reversed(range(t.dim())))


def _expanded(t: torch.Tensor) -> torch.Tensor:
    return t[:1].expand(t.shape) if t.dim() and t.shape[0] else t


def _first(t: torch.Tensor) -> torch.Tensor:
    return t.flatten()[0].clone() if t.numel() else t


def _mapped(sample: Any, change: Callable[[int, torch.Tensor], torch.Tensor]) -> Any:
    """The sample's arguments with other tensors; `change` is told the place of each among the tensors."""
    leaves, spec = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    for n, place in enumerate(places):
        if leaves[place].layout == torch.strided:
            leaves[place] = change(n, leaves[place])
    return tree_unflatten(leaves, spec)


def _tensors(sample: Any) -> list[torch.Tensor]:
    return samples.leaves((sample.input, tuple(sample.args), dict(sample.kwargs)))


def _strided(op: Any, sample: Any) -> Iterator[Way]:
    for name, change in (("gaps", _gaps), ("turned", _turned), ("expanded", _expanded)):
        yield name, op.op, _mapped(sample, lambda _, t, change=change: change(t))
    yield "first turned", op.op, _mapped(sample, lambda n, t: _turned(t) if n == 0 else t)


def _empty(op: Any, sample: Any) -> Iterator[Way]:
    tensors = _tensors(sample)
    for size in sorted({s for s in tensors[0].shape if s}) if tensors else []:

        def emptied(_: int, t: torch.Tensor, size: int = size) -> torch.Tensor:
            for d, s in enumerate(t.shape):
                if s == size:
                    t = t.narrow(d, 0, 0)
            return t.clone()

        yield f"{size} to 0", op.op, _mapped(sample, emptied)
    yield "first", op.op, _mapped(sample, lambda n, t: t.narrow(0, 0, 0).clone() if n == 0 and t.dim() else t)


def _zero_dim(op: Any, sample: Any) -> Iterator[Way]:
    yield "all", op.op, _mapped(sample, lambda _, t: _first(t))
    if len(_tensors(sample)) > 1:
        yield "first", op.op, _mapped(sample, lambda n, t: _first(t) if n == 0 else t)
        yield "others", op.op, _mapped(sample, lambda n, t: _first(t) if n else t)


def _shared(tensors: list[torch.Tensor], offset: int) -> list[torch.Tensor]:
    """Tensors of equal dtype as views of one storage, each `offset` elements behind the one before."""
    made: list[torch.Tensor] = []
    for dtype in {t.dtype for t in tensors}:
        group = [t for t in tensors if t.dtype == dtype]
        longest = max((t.numel() for t in group), default=0)
        whole = torch.cat([t.flatten() for t in group] + [torch.ones(1, dtype=dtype)])
        whole = whole.repeat(1 + (longest + offset * len(group)) // max(1, whole.numel()))
        made += [whole[i * offset :][: t.numel()].view(t.shape) for i, t in enumerate(group)]
    order = [t for dtype in {t.dtype for t in tensors} for t in tensors if t.dtype == dtype]
    by_id = {id(t): m for t, m in zip(order, made, strict=True)}
    return [by_id[id(t)] for t in tensors]


def _alias(op: Any, sample: Any) -> Iterator[Way]:
    tensors = [t for t in _tensors(sample) if t.layout == torch.strided]
    if len(tensors) < 2 or len({id(t) for t in tensors}) < len(tensors):
        return
    same: dict[Any, torch.Tensor] = {}
    for t in tensors:
        same.setdefault((t.shape, t.dtype), t)
    if len(same) < len(tensors):
        yield "same", op.op, _mapped(sample, lambda _, t: same[t.shape, t.dtype])
    for offset in (0, 1):
        views = _shared(tensors, offset)
        numbers = {id(t): v for t, v in zip(tensors, views, strict=True)}
        yield f"offset {offset}", op.op, _mapped(sample, lambda _, t, numbers=numbers: numbers[id(t)])


def _like(value: Any, change: Change) -> Any:
    leaves, spec = tree_flatten(value)
    made = tree_unflatten([change(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec)
    return tuple(made) if isinstance(made, tuple) else made  # out= is seldom one of torch.return_types


def _blank(t: torch.Tensor) -> torch.Tensor:
    """Values that are no result."""
    return torch.zeros_like(t, memory_format=torch.preserve_format)


def _out(op: Any, sample: Any) -> Iterator[Way]:
    if not op.supports_out:
        return
    try:
        torch.manual_seed(0)
        result = op.op(samples.clone(sample.input), *samples.clone(sample.args), **samples.clone(sample.kwargs))
    except Exception:  # noqa: BLE001 - a sample of an error needs no out=
        return
    plain = _mapped(sample, lambda _, t: t)
    # Not floats: the last bits would be compared by the wider dtype's tolerance.
    wider = {torch.int64: torch.float32, torch.bool: torch.int64}
    kinds: list[tuple[str, Change]] = [
        ("as the result", _blank),
        ("empty", lambda t: t.new_empty(0)),
        ("of another shape", lambda t: t.new_zeros((3, *t.shape))),
        ("turned", lambda t: _turned(_blank(t))),
        ("with gaps", lambda t: _gaps(_blank(t))),
        ("wider", lambda t: _blank(t).to(wider.get(t.dtype, t.dtype))),
        ("of integers", lambda t: torch.zeros(t.shape, dtype=torch.int32)),
    ]
    if not samples.leaves(result) or not all(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(result)[0]):
        return

    def fits(out: Any) -> bool:
        """Whether eager gives the same values with this out=, or an error. Some of its kernels take every out= for dense."""
        value, args, kwargs = samples.clone((plain[0], plain[1], {**plain[2], "out": out}))
        torch.manual_seed(0)
        try:
            op.op(value, *args, **kwargs)
        except Exception:  # noqa: BLE001 - the exception is compared
            return True
        same = [
            torch.allclose(a.to(b.dtype), b, equal_nan=True, rtol=1e-3, atol=1e-3)
            for a, b in zip(samples.leaves(kwargs["out"]), samples.leaves(result))
        ]
        return all(same)

    for name, change in kinds:
        value, args, kwargs = plain
        out = _like(result, change)
        if fits(out):
            yield name, op.op, (value, args, {**kwargs, "out": out})
    first = sample.input
    same = isinstance(first, torch.Tensor) and isinstance(result, torch.Tensor) and first.shape == result.shape
    if same and first.dtype == result.dtype:
        value, args, kwargs = samples.clone(plain)
        try:
            torch.manual_seed(0)
            op.op(value, *args, **kwargs, out=value)
            if not torch.allclose(value, result, equal_nan=True, rtol=1e-3, atol=1e-3):
                return  # eager's kernel reads what it has written
        except Exception:  # noqa: BLE001 - the exception is compared
            pass

        def into_itself(value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return op.op(
                value, *args, **kwargs, out=value
            ), value + value if value.dtype != torch.bool else value | value

        yield "the first operand", into_itself, plain


def _inplace(op: Any, sample: Any) -> Iterator[Way]:
    method = op.inplace_variant
    first = sample.input
    if method is None or not isinstance(first, torch.Tensor) or first.layout != torch.strided:
        return
    # An alias of another name is given as a wrapper at times; then it has no view to be told of.
    views: list[tuple[str, Change, Change]] = [
        ("every second", lambda t: torch.stack([t, t], -1), lambda b: b[..., 0]),
        (
            "turned",
            lambda t: t.transpose(0, -1).contiguous() if t.dim() else t,
            lambda b: b.transpose(0, -1) if b.dim() else b,
        ),
        ("a row", lambda t: torch.stack([t, t, t]), lambda b: b[1]),
        ("flat", lambda t: t.flatten(), lambda b, shape=first.shape: b.view(shape)),  # type: ignore[misc]
        (
            "expanded",
            lambda t: t[:1].clone() if t.dim() and t.shape[0] else t,
            lambda b, shape=first.shape: b.expand(shape),
        ),  # type: ignore[misc]
        ("of integers", lambda t: t.real.to(torch.int32) if t.is_complex() else t.to(torch.int32), lambda b: b[...]),
    ]
    for name, base, view in views:

        def on_view(base: torch.Tensor, *args: Any, view: Change = view, **kwargs: Any) -> Any:
            made = view(base)
            result = method(made, *args, **kwargs)
            read = base.logical_not() if base.dtype == torch.bool else base + base
            return result, read, base[...]

        value, args, kwargs = _mapped(sample, lambda _, t: t)
        yield name, on_view, (base(first).clone(), args, kwargs)


def _converted(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (t.real if t.is_complex() and not dtype.is_complex else t).to(dtype)


def _promote(op: Any, sample: Any) -> Iterator[Way]:
    tensors = _tensors(sample)
    if len(tensors) < 2 or len(tensors) > 4:
        return
    for left, right in itertools.product(PROMOTED, PROMOTED):
        if left == right:
            continue
        yield (
            f"{left}, {right}",
            op.op,
            _mapped(sample, lambda n, t, left=left, right=right: _converted(t, right if n else left)),
        )
    for dtype in PROMOTED:
        yield (
            f"number of {dtype}",
            op.op,
            _mapped(sample, lambda n, t, dtype=dtype: _first(_converted(t, dtype)) if n else t),
        )
        yield (
            f"first a number of {dtype}",
            op.op,
            _mapped(sample, lambda n, t, dtype=dtype: t if n else _first(_converted(t, dtype))),
        )


WAYS: dict[str, Callable[[Any, Any], Iterator[Way]]] = {
    "strided": _strided,
    "empty": _empty,
    "zero_dim": _zero_dim,
    "alias": _alias,
    "out": _out,
    "inplace": _inplace,
    "promote": _promote,
}
DTYPES = ("float32", "int64", "complex64", "bool")
MANY = ("promote", "out", "inplace")  # have many ways for each sample, which differ little between dtypes


def _dtypes(op: Any, column: str) -> list[torch.dtype]:
    supported = [d for d in (getattr(torch, name) for name in DTYPES) if d in op.supported_dtypes("cpu")]
    return supported[:1] if column in MANY else supported[:3]


def _ways(op: Any, column: str, limit: int | None) -> Iterator[Any]:
    for dtype in _dtypes(op, column):
        torch.manual_seed(0)
        most = 1 if column == "promote" else limit or MOST
        made = list(op.sample_inputs("cpu", dtype, requires_grad=False))
        # From everywhere: the first ones have no dimensions at times.
        chosen = made if len(made) <= most else [made[(2 * i + 1) * len(made) // (2 * most)] for i in range(most)]
        for number, sample in enumerate(chosen):
            ways = iter(WAYS[column](op, sample))
            while True:
                try:
                    what, function, (value, args, kwargs) = next(ways)
                except StopIteration:
                    break
                except Exception:  # noqa: BLE001 - this sample cannot be changed in this way
                    break
                yield SimpleNamespace(
                    what=f"{dtype} {number} {what}", function=function, input=value, args=args, kwargs=kwargs
                )


def check_entry(op: Any, column: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Runs the changed samples of an entry."""

    def check(sample: Any, number: int, row: dict[str, Any]) -> str | None:
        entry = SimpleNamespace(op=sample.function, name=op.name)
        problem = samples._check(entry, sample, number, row, progress, CALLS)
        return f"{sample.what}: {problem}" if problem else None

    return samples.run_samples(op.formatted_name, column, _ways(op, column, limit), check, 16)


def _has(op: Any, column: str) -> bool:
    if column == "out":
        return bool(op.supports_out)
    return column != "inplace" or op.inplace_variant is not None


if __name__ == "__main__":
    arguments = sweep.parser_of(__doc__, list(WAYS), "build/opinfo-layouts.jsonl").parse_args()
    sys.exit(sweep.run_having(_has, arguments, check_entry, "layouts.py"))
