"""`make overloads`: what compiled code takes the results of the dispatcher's operators to be, beside what they are.

A row is an overload of an operator whose name the registry serves (torch.ops.aten.max.dim). Its samples are the calls that
reach it when the samples of every OpInfo entry run, forward and backward, and those that take an entry's sample as it is.
Each is called by the overload as it was, and with each optional argument left out, all left out, each given as its default,
None, and by keyword. Compared with eager in three calls: the exception; types of results and the names of their fields;
dtype, sizes, strides, whether gradients are asked, as the program reads them while it is traced and as it gets them; who has a
history; which results are arguments or share memory; values; what became of the arguments; the generator of random numbers.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "ops"))

import torch
from reference import library
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import samples
import sweep
import tatara

DTYPES = ["float32", "int64", "bool", "complex64", "float16"]
MOST_NUMBERS = 3000  # elements of an argument
MOST_CALLS = (
    300  # that a worker takes of an overload in a dtype, each in all its variants: every entry slices and makes ones
)
CALLS = ("first", "second", "third")

# Operators whose values are whatever lies in memory: everything else is compared.
UNSPECIFIED = {*samples.UNSPECIFIED, "new_empty", "resize", "resize_as", "empty_quantized"}

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def served() -> dict[str, Any]:
    """The overloads on tensors of operators that the registry has a name for, by their names."""
    lib = ctypes.CDLL(library() or "libtatara_reference.so")
    lib.tatara_reference_ops.restype = ctypes.c_char_p
    names = set()
    for line in lib.tatara_reference_ops().decode().splitlines():
        operator, _, functions = line.split("\t")[:3]
        names.add(operator.split(".")[0])
        for function in functions.split():
            dotted = function.removeprefix("torch.").removesuffix(".__get__")
            names |= {dotted.rsplit(".", 1)[-1], dotted.replace(".", "_")}
    found = {}
    for name in sorted(names):
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            for overload in (getattr(packet, each) for each in packet.overloads()):
                if any("Tensor" in str(result.type) for result in overload._schema.returns):
                    found[str(overload)] = overload
    return found


class Recorder(TorchDispatchMode):
    """Notes the calls that reach the dispatcher, with their arguments as they were."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        super().__init__()
        self.wanted = wanted
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if str(func) in self.wanted and _plain((args, kwargs)):
            self.calls.append((func, *samples.clone((tuple(args), dict(kwargs)))))
        return func(*args, **kwargs)


def _plain(arguments: Any) -> bool:
    """Whether the registry has to do with these operands."""
    operands = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return all(t.layout is torch.strided and t.device.type == "cpu" and t.numel() <= MOST_NUMBERS for t in operands)


def _recorded(function: Any, arguments: Any, wanted: dict[str, Any]) -> list[Call]:
    value, args, kwargs = tree_map(_asking, samples.clone(arguments))
    with Recorder(wanted) as recorder:
        try:
            results = samples.leaves(function(value, *args, **kwargs))
            asked = [r for r in results if r.requires_grad]
            if asked:
                torch.autograd.backward(asked, [torch.ones_like(r) for r in asked])
        except Exception:  # noqa: BLE001 - what it asked for until then counts
            pass
    return recorder.calls


def _asking(value: Any) -> Any:
    """Gradients are asked of every tensor that can have one."""
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        return value.detach().requires_grad_()
    return value


def asking(overload: Any, args: Any, kwargs: Any) -> Arguments:
    """The arguments with gradients asked of them, where they are not written to."""
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments)
    return (args, kwargs) if writes else tree_map(_asking, (args, kwargs))


def calls_of(op: Any, sample: Any, wanted: dict[str, Any]) -> Iterator[Call]:
    """What a sample asks of the dispatcher, and the overloads that take it as it is."""
    arguments = (sample.input, sample.args, sample.kwargs)
    for function in (op.op, op.inplace_variant):
        if function is not None:
            yield from _recorded(function, arguments, wanted)
    # Operators that are made of others do not reach the dispatcher as such.
    given = (sample.input, *sample.args)
    names = {str(op.aten_name or op.name), op.name, *(alias.name for alias in op.aliases)}
    names = {part for name in names for part in (name.replace(".", "_"), name.split(".")[-1])}
    for name in sorted(names | {name + "_" for name in names}):
        packet = getattr(torch.ops.aten, name, None)
        for each in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            overload = getattr(packet, each)
            if str(overload) in wanted and _plain((given, sample.kwargs)):
                yield from _taken(overload, given, sample.kwargs)


def _taken(overload: Any, given: Any, kwargs: Any) -> Iterator[Call]:
    """The sample's call of the overload, if there is one; for its results' memory (out=) there is some of another size."""
    outs = {a.name: torch.empty(0, dtype=_first_dtype(given)) for a in overload._schema.arguments if a.is_out}
    try:
        result = overload(*samples.clone(given), **samples.clone(kwargs), **outs)
    except Exception:  # noqa: BLE001 - it does not take them
        return
    made = samples.leaves(result)
    if outs and len(made) == len(outs):
        outs = {name: torch.empty_like(each) for name, each in zip(outs, made, strict=True)}
    yield overload, tuple(given), dict(kwargs) | outs


def _first_dtype(given: Any) -> torch.dtype:
    return next((t.dtype for t in samples.leaves(given)), torch.float32)


def variants(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Arguments]:
    """The call as it was, with optional arguments left out, and given otherwise."""
    specs = [a for a in overload._schema.arguments if not a.is_out]
    outs = {a.name: kwargs[a.name] for a in overload._schema.arguments if a.is_out and a.name in kwargs}
    given = dict(zip((a.name for a in specs), args, strict=False)) | {k: v for k, v in kwargs.items() if k not in outs}
    needed = [a.name for a in specs if not a.has_default_value()]
    if any(name not in given for name in needed):
        return

    def call(values: dict[str, Any], positional: int) -> Arguments:
        front, rest = [], dict(values)
        for spec in specs[:positional]:
            if spec.kwarg_only or spec.name not in rest:
                break
            front.append(rest.pop(spec.name))
        return tuple(front), rest | outs

    everything = len(specs)
    yield call(given, everything)
    yield call({name: given[name] for name in needed}, everything)
    for place, spec in enumerate(specs):
        if not spec.has_default_value():
            continue
        if spec.name in given:
            yield call({n: v for n, v in given.items() if n != spec.name}, everything)
            yield call(given, place)
        else:
            yield call(given | {spec.name: spec.default_value}, everything)
        if isinstance(spec.type, torch.OptionalType):
            yield call(given | {spec.name: None}, everything)


# ---- What a program sees -----------------------------------------------------------------------------------------------


def seen(result: Any, given: list[Any]) -> Any:
    """Types and layouts of a result, and which argument it is, as the program reads them."""
    if isinstance(result, torch.Tensor):
        same = [i for i, tensor in enumerate(given) if result is tensor]
        return ("tensor", type(result), result.dtype, tuple(result.shape), result.stride(), result.requires_grad, same)
    if isinstance(result, tuple | list):
        return (type(result), [seen(item, given) for item in result])
    return (type(result), result)


def _without_idle_strides(tree: Any) -> Any:
    """A stride that no element is reached by is nobody's."""
    if isinstance(tree, tuple) and tree[0] == "tensor":
        kind, shape, strides = tree[1:3], tree[3], tree[4]
        used = () if 0 in shape else tuple(s for s, n in zip(strides, shape, strict=True) if n > 1)
        return (*kind, shape, used, *tree[5:])
    if isinstance(tree, tuple | list):
        return [_without_idle_strides(item) for item in tree]
    return tree


def _histories(result: Any) -> list[tuple[bool, bool, bool]]:
    return [(r.requires_grad, r.grad_fn is not None, r.is_leaf) for r in samples.leaves(result)]


class Run:
    """One call: what it gave or raised, its arguments afterwards, and the state of the generator."""

    def __init__(self, function: Callable[..., Any], arguments: Any, seed: int) -> None:
        torch.manual_seed(seed)
        args, kwargs = self.inputs = samples.fresh(arguments)
        self.result: Any = None
        self.read: Any = None
        self.error: BaseException | None = None
        try:
            self.result, self.read = function(args, kwargs)
        except Exception as raised:  # noqa: BLE001 - the exception is the result that is compared
            self.error = raised
        self.state = torch.get_rng_state()

    def differs(self, theirs: Run, exact: Callable[[], Run], values: bool) -> str | None:
        if problem := samples.same_error(self.error, theirs.error):
            return problem
        if not torch.equal(self.state, theirs.state):
            return "the state of the random generator"
        if theirs.error is None:
            if _without_idle_strides(self.read) != _without_idle_strides(theirs.read):
                return f"taken for {self.read} instead of {theirs.read}"
            mine, other = seen(self.result, []), seen(theirs.result, [])
            if _without_idle_strides(mine) != _without_idle_strides(other):
                return f"gave {mine} instead of {other}"
            if _histories((self.result, self.inputs)) != _histories((theirs.result, theirs.inputs)):
                return "history: other results or arguments have one"
            if samples._aliases(self.result, self.inputs) != samples._aliases(theirs.result, theirs.inputs):
                return "aliasing: other results share memory"
            if problem := samples.compare(self.result, theirs.result, lambda: exact().result, values):
                return problem
        problem = samples.compare(self.inputs, theirs.inputs, lambda: exact().inputs, values)
        return f"arguments afterwards: {problem}" if problem else None


def check(overload: Any, arguments: Arguments, seed: int, backend: str = "tatara") -> str | None:
    """A call in eager and three times compiled. None: no difference, or eager does not take such arguments at all."""

    def call(args: Any, kwargs: Any) -> Any:
        result = overload(*args, **kwargs)
        return result, seen(result, [*args, *kwargs.values()])

    def exact() -> Run:
        return Run(call, samples.fresh_wide(arguments), seed)

    theirs = Run(call, arguments, seed)
    if isinstance(theirs.error, TypeError) or (theirs.error and "expected at most" in str(theirs.error)):
        return None
    values = overload._opname not in UNSPECIFIED
    compiled = tatara.compile(call, backend=backend)
    for number in CALLS:
        if problem := Run(compiled, arguments, seed).differs(theirs, exact, values):
            return f"{number} call: {problem}"
    return None


def _shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        grad = " grad" if value.requires_grad else ""
        return f"<{str(value.dtype)[6:]}{list(value.shape)}{list(value.stride())}{grad}>"
    return f"{type(value).__name__} {value}" if isinstance(value, torch.Size) else repr(value)


def text_of(overload: Any, arguments: Arguments) -> str:
    """The call in words; the same for calls that differ in nothing that a type is inferred from."""
    args, kwargs = tree_map(_shown, arguments)
    parts = [str(a).replace("'", "") for a in args] + [f"{k}={v}".replace("'", "") for k, v in kwargs.items()]
    return f"{overload}({', '.join(parts)})"


class Checker:
    """Checks calls, each once; a worker has one."""

    def __init__(self) -> None:
        self.wanted = served()
        self.known: set[str] = set()
        self.taken: Counter[tuple[str, str]] = Counter()

    def of_call(self, call: Call, row: dict[str, Any]) -> Iterator[str]:
        overload, args, kwargs = call
        name = str(overload)
        asks = (args, kwargs)
        if self.taken[name, row["dtype"]] % 2:  # gradients are asked of every second call
            asks = asking(overload, args, kwargs)
        if text_of(overload, asks) in self.known or self.taken[name, row["dtype"]] >= MOST_CALLS:
            return
        self.taken[name, row["dtype"]] += 1
        for arguments in variants(overload, *asks):
            text = text_of(overload, arguments)
            if text in self.known:
                continue
            self.known.add(text)
            row["samples"] += 1
            row["overloads"][name] += 1
            if problem := check(overload, arguments, len(self.known)):
                yield f"{text}: {problem}"


_checker: Checker | None = None


def check_entry(op: Any, dtype_name: str, limit: int | None, progress: Callable[[int], None]) -> dict[str, Any]:
    """Checks the calls of an entry's samples (at most `limit`), in all variants."""
    global _checker
    _checker = _checker or Checker()
    start = time.monotonic()
    row: dict[str, Any] = {"name": op.formatted_name, "dtype": dtype_name, "state": "native", "samples": 0, "wrong": []}
    row |= {"overloads": Counter(), "counts": Counter(), "reasons": Counter()}
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", getattr(torch, dtype_name), requires_grad=False)
    for number, sample in enumerate(itertools.islice(made, limit)):
        progress(number)
        for call in list(calls_of(op, sample, _checker.wanted)):
            row["wrong"] += _checker.of_call(call, row)
        if number % 8 == 7:
            tatara.reset()
    tatara.reset()
    row["state"] = "wrong" if row["wrong"] else "native" if row["samples"] else "raised"
    row["seconds"] = round(time.monotonic() - start, 3)
    return row


def _has(op: Any, dtype: str) -> bool:
    return getattr(torch, dtype) in op.supported_dtypes("cpu")


def main() -> int:
    parser = sweep.parser_of(__doc__, DTYPES, "build/overloads.jsonl")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    entries = sweep.entries_by_name()
    tasks = [
        (name, dtype)
        for dtype in arguments.dtypes
        for name, op in entries.items()
        if _has(op, dtype) and sweep.selected(name, arguments.entries)
    ]
    rows = sweep.run_all(tasks, entries, arguments, check_entry)
    calls: Counter[str] = Counter()
    for row in rows:
        calls.update(row.get("overloads", {}))
    missing = sorted(set(served()) - set(calls))
    wrong = sum(len(row["wrong"]) for row in rows)
    print("overloads that no sample reaches:", ", ".join(missing) or "none")
    print(f"{len(calls)} overloads of {len(calls) + len(missing)}, {sum(calls.values())} calls, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
