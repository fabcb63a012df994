"""Runs a program twice, in eager and compiled, and compares all that anybody could see after each of its steps.

A program is the source of a module that defines a function `f` and the state around it, and steps: expressions (calls of `f`)
and statements (changes from outside) that are run in that module one after the other. After each step these must agree:
the step's result or exception (type, arguments, cause, context, the lines it went through), what was printed and warned,
every object that can be reached from the module's names (types, values, order, identities among all of them), and the
states of the random number generators.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import io
import linecache
import random
import sys
import traceback
import types
import warnings
import weakref
from typing import Any

import numpy as np
import tatara

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Token = tuple[Any, ...]
COMPILED = type(tatara.compile(lambda: None))


@dataclasses.dataclass(frozen=True)
class Program:
    """A module's source, which defines `f`, and what is done with it."""

    source: str
    steps: tuple[str, ...]
    seed: int = 0  # of the generators of random numbers, before the module runs
    options: tuple[tuple[str, Any], ...] = ()  # of tatara.compile

    def text(self) -> str:
        """The program as one would read it."""
        return self.source.rstrip() + "\n\n" + "\n".join(f">>> {step}" for step in self.steps) + "\n"


class Differs(AssertionError):
    """The compiled program did something else."""


class _Walk:
    """A list of tokens for the graph of objects that is reached from some roots: equal lists, equal graphs."""

    def __init__(self, hidden: set[int], given: dict[int, Any] | None = None) -> None:
        self.tokens: list[Token] = []
        self.labels: dict[int, int] = {}
        self.memory: dict[int, int] = {}  # storages of tensors and arrays
        self.alive: list[Any] = []
        self.tensors: list[tuple[str, Any]] = []
        self.given = given or {}  # weak references to tensors that were there before the first step
        self.hidden = hidden  # identities of the programs' own modules' objects that differ by design

    def add(self, o: Any, path: str) -> None:
        out = self.tokens.append
        o = getattr(o, "_tatara_function", o) if isinstance(o, COMPILED) else o
        if (
            o is None
            or isinstance(o, bool)
            or type(o) in (int, str, bytes, complex)
            or o is Ellipsis
            or o is NotImplemented
        ):
            out((path, type(o).__name__, o))
            return
        if type(o) is float:
            out((path, "float", o))
            return
        if id(o) in self.hidden:
            out((path, "the compiled function"))
            return
        if id(o) in self.labels:
            out((path, "seen", self.labels[id(o)]))
            return
        self.labels[id(o)] = len(self.labels)
        self.alive.append(o)
        name = f"{type(o).__module__}.{type(o).__qualname__}"
        if torch is not None and isinstance(o, torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():  # what the program's own tensors say of calls
                self.tensor(o, name, path)
        elif isinstance(o, np.ndarray | np.generic):
            self.array(o, name, path)
        elif isinstance(o, types.ModuleType):
            out((path, "module", o.__name__))
        elif isinstance(o, enum.Enum):
            out((path, name, o.name))
            if o.__module__ == "program":
                self.add(o.value, path + ".value")
        elif isinstance(o, type):
            self.type(o, path)
        elif isinstance(o, types.FunctionType):
            self.function(o, path)
        elif isinstance(o, types.CellType):
            out((path, "cell"))
            with contextlib.suppress(ValueError):
                self.add(o.cell_contents, path + "()")
        elif isinstance(o, types.MethodType):
            out((path, "method"))
            self.add(o.__func__, path + ".__func__")
            self.add(o.__self__, path + ".__self__")
        elif isinstance(o, types.BuiltinFunctionType):
            out((path, name, o.__name__))
            if o.__self__ is not None and not isinstance(o.__self__, types.ModuleType):
                self.add(o.__self__, path + ".__self__")
        elif isinstance(o, weakref.ref):
            target = o()
            out((path, name, target is not None))
            if target is not None:
                self.add(target, path + "()")
        elif isinstance(o, BaseException):
            self.exception(o, path)
        elif isinstance(o, functools.partial):
            out((path, name))
            for part in ("func", "args", "keywords"):
                self.add(getattr(o, part), f"{path}.{part}")
        elif isinstance(o, types.MappingProxyType):
            out((path, name, len(o)))
            for k, key in enumerate(list(o)):
                self.add(key, f"{path} key {k}")
                self.add(o[key], f"{path}[{_shown(key, k)}]")
        elif isinstance(o, dict):
            out((path, name, len(o)))
            for k, key in enumerate(list(o)):
                self.add(key, f"{path} key {k}")
                self.add(dict.__getitem__(o, key), f"{path}[{_shown(key, k)}]")
            if isinstance(o, collections.defaultdict):
                self.add(o.default_factory, path + ".default_factory")
            self.attributes(o, path)
        elif isinstance(o, list | tuple | collections.deque):
            out((path, name, len(o), getattr(o, "maxlen", None)))
            for k, item in enumerate(list(o)):
                self.add(item, f"{path}[{k}]")
            self.attributes(o, path)
        elif isinstance(o, set | frozenset):
            out((path, name, len(o)))
            for k, item in enumerate(sorted(o, key=lambda v: (type(v).__name__, _no_addresses(repr(v))))):
                self.add(item, f"{path} item {k}")
            self.attributes(o, path)
        elif isinstance(o, range | bytearray):
            out((path, name, repr(o)))
        elif isinstance(o, slice):
            out((path, name))
            for part in ("start", "stop", "step"):
                self.add(getattr(o, part), f"{path}.{part}")
        elif isinstance(o, property | staticmethod | classmethod):
            out((path, name))
            for part in ("fget", "fset", "fdel", "__func__"):
                if hasattr(o, part):
                    self.add(getattr(o, part), f"{path}.{part}")
        elif isinstance(o, random.Random):
            out((path, name, o.getstate()))
        elif torch is not None and isinstance(o, torch.Generator):
            out((path, name, o.get_state().numpy().tobytes()))
        elif isinstance(o, np.random.Generator | np.random.RandomState):
            state = o.bit_generator.state if isinstance(o, np.random.Generator) else o.get_state(legacy=False)
            out((path, name, repr(state)))
        elif type(o).__module__ in ("program", "types", "collections"):
            out((path, name))
            self.attributes(o, path)
        else:
            # Of anybody else's: what it says of itself, where that is no address.
            try:
                text = repr(o)
            except Exception as error:
                text = f"its repr raises {type(error).__name__}"
            out((path, name, text if " at 0x" not in text else None))

    def names(self, names: dict[str, Any]) -> None:
        for name in list(names):
            if not name.startswith("__"):
                self.add(names[name], name)

    def bases(self) -> None:
        """Which tensors are views of which, as far as both were reached."""
        for path, tensor in self.tensors:
            base = self.labels.get(id(tensor._base)) if tensor._base is not None else None
            if base is not None:
                self.tokens.append((path, "is a view of", base))

    def attributes(self, o: Any, path: str) -> None:
        own = getattr(o, "__dict__", None)
        if isinstance(own, dict) and own:
            self.tokens.append((path, "attributes", tuple(own)))
            for key in list(own):
                if str(key).startswith("_torchdynamo"):  # identities
                    continue
                self.add(own[key], f"{path}.{key}")
        for cls in type(o).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if slot not in ("__dict__", "__weakref__") and hasattr(o, slot):
                    self.add(getattr(o, slot), f"{path}.{slot}")

    def history(self, o: Any, storage: Any) -> tuple[Any, Any]:
        """Bytes of the memory of tensors that the calls did not make, and whether anything was written to it."""
        if id(o) not in self.given or self.given[id(o)]() is not o:
            return None, None
        return storage.nbytes(), None if o.is_inference() else o._version > 0

    def tensor(self, o: Any, name: str, path: str) -> None:
        if o.layout is not torch.strided:
            dense = o.to_dense().detach().clone().as_subclass(torch.Tensor)
            self.tokens.append((path, name, o.dtype, o.shape, str(o.layout), dense))
            return
        try:
            storage = o.untyped_storage()
            place = storage.data_ptr()
        except (RuntimeError, NotImplementedError):
            storage = None
        if storage is None or torch._C._functorch.is_functorch_wrapped_tensor(o):  # it outlived its level
            self.tokens.append((path, name, "of a transform", str(o.dtype), tuple(o.shape)))
            return
        try:
            leaf = o.is_leaf
        except RuntimeError as error:  # a view that may no longer be used
            self.tokens.append((path, name, tuple(o.shape), str(error)))
            return
        self.alive.append(storage)
        label = self.memory.setdefault(place or id(o), len(self.memory))
        self.tensors.append((path, o))
        seen = (str(o.dtype), tuple(o.shape), o.stride(), o.storage_offset(), o.requires_grad, leaf, label,
                *self.history(o, storage), o.is_conj(), o.is_neg(), o.is_inference(),
                o.grad_fn is not None, o.retains_grad, len(o._backward_hooks or ()))  # fmt: skip
        with torch.no_grad():
            try:
                value = o.detach().resolve_conj().resolve_neg().clone().as_subclass(torch.Tensor)
            except RuntimeError:  # of a level of torch.func that has ended: its sizes are whatever is in memory
                value = None
            self.tokens.append((path, name, *seen, value))
        if (o.is_leaf or o.retains_grad) and o.grad is not None:
            self.add(o.grad, path + ".grad")
        self.attributes(o, path)

    def array(self, o: Any, name: str, path: str) -> None:
        if isinstance(o, np.generic):
            self.tokens.append((path, name, np.asarray(o)))
            return
        base = o
        while isinstance(base.base, np.ndarray):
            base = base.base
        self.alive.append(base)
        label = self.memory.setdefault(base.__array_interface__["data"][0], len(self.memory))
        self.tokens.append((path, name, str(o.dtype), o.shape, o.strides, o.flags.writeable, label, o.copy()))

    def type(self, o: type, path: str) -> None:
        self.tokens.append((path, "class", o.__module__, o.__qualname__))
        if o.__module__ != "program":
            return
        skipped = ("__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl")
        for key, value in list(vars(o).items()):
            if key not in skipped and not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
                self.add(value, f"{path}.{key}")

    def function(self, o: Any, path: str) -> None:
        self.tokens.append((path, "function", o.__module__, o.__qualname__, o.__code__.co_firstlineno))
        if (
            o.__module__ != "program" or "/torch/_" in o.__code__.co_filename
        ):  # a compiler's wrapper of one of the program's
            return
        self.add(o.__defaults__, path + ".__defaults__")
        self.add(o.__kwdefaults__, path + ".__kwdefaults__")
        for cell in o.__closure__ or ():
            self.add(cell, path + " cell")
        self.attributes(o, path)

    def exception(self, o: BaseException, path: str) -> None:
        args = tuple(a if not isinstance(a, str) else _no_addresses(a) for a in o.args)
        self.tokens.append((path, "exception", type(o).__module__, type(o).__qualname__, len(args)))
        for k, arg in enumerate(args):
            self.add(arg, f"{path}.args[{k}]")
        lines = [(f.name, f.lineno) for f in traceback.extract_tb(o.__traceback__) if f.filename.startswith("<program")]
        self.tokens.append((path, "lines", tuple(lines)))
        self.add(getattr(o, "__notes__", None), path + ".__notes__")
        for part in ("__cause__", "__context__"):
            self.add(getattr(o, part), f"{path}.{part}")
        self.attributes(o, path)


def _shown(key: Any, place: int) -> str:
    """A key of a dict, as a part of a path."""
    return repr(key) if isinstance(key, str | int | float | bytes) else f"item {place}"


def _no_addresses(text: str) -> str:
    words = text.split(" ")
    return " ".join(word if not word.startswith("0x") else "0x" for word in words)


def _within(a: Token, b: Token, noisy: list[Token]) -> bool:
    """Whether two results differ by no more than the single precision that they come from makes of them in eager."""
    results = [t[-1] for t in (a, b, *noisy) if isinstance(t[-1], torch.Tensor) and t[:-1] == a[:-1]]
    if len(results) < 3 or not (results[0].is_floating_point() or results[0].is_complex()):
        return False
    error, *roundings = ((other - a[-1]).abs().max().item() for other in results[1:])
    return bool(error <= 1e-4 * max(1.0, a[-1].abs().max().item()) and error <= 32 * max(roundings))


def _same_leaf(a: Any, b: Any) -> bool:
    if torch is not None and isinstance(a, torch.Tensor):
        if not (a.is_floating_point() or a.is_complex()):
            return bool(torch.equal(a, b))
        tolerance = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 2e-5, torch.complex64: 2e-5}.get(
            a.dtype, 2e-2
        )
        return torch.equal(a, b) or bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
    if isinstance(a, np.ndarray):
        if a.dtype.kind in "fc":
            tolerance = 1e-9 if a.dtype.itemsize >= 8 and a.dtype.kind == "f" or a.dtype.itemsize == 16 else 2e-5
            return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
        return bool(np.array_equal(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or a != a and b != b or abs(a - b) <= 2e-5 * max(1.0, abs(a))
    if isinstance(a, complex) and isinstance(b, complex):
        return _same_leaf(a.real, b.real) and _same_leaf(a.imag, b.imag)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_same_leaf(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def _reset(seed: int) -> None:
    """What one program leaves behind in the process is not the next one's start."""
    random.seed(seed)
    np.random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
        torch.set_grad_enabled(True)
        with warnings.catch_warnings(action="ignore"):
            torch.zeros(1).storage()  # warns once a process


def _random_states() -> tuple[Any, ...]:
    legacy = np.random.get_state(legacy=False)
    states: tuple[Any, ...] = (hash(random.getstate()), repr(legacy))
    if torch is not None:
        states += (torch.get_rng_state().numpy().tobytes(),)
    return states


def _modes() -> tuple[Any, ...]:
    """Switches of the process that a program may leave in another state."""
    handled = repr(sys.exception())
    if torch is None:
        return (repr(np.geterr()), handled)
    return (
        repr(np.geterr()),
        handled,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        str(torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled(),
        torch._C._len_torch_function_stack(),
    )


def _once_a_process(message: str) -> bool:
    """Warnings that torch gives for the first of all programs only."""
    return "(Triggered internally at" in message or "torch.jit.script` is deprecated" in message


def _as_it_is(function: Any) -> Any:
    return function


def _forget_imports() -> None:
    """torch.compile imports the modules of what it compiles once, by name, and keeps them in those that use them."""
    dynamo = sys.modules.get("torch._dynamo.symbolic_convert")
    if dynamo is None:
        return
    dynamo._import_module.cache_clear()
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            vars(module).pop("__import_program", None)


def _rounding(seed: int) -> Any:
    """A mode in which every operator's results in single precision are off by one in their last binary place."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Rounding(TorchDispatchMode):
        random = np.random.default_rng(seed)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            fresh = not any(result.alias_info for result in func._schema.returns)
            for result in (out if isinstance(out, tuple | list) else [out]) if fresh else []:
                single = isinstance(result, torch.Tensor) and result.dtype in (torch.float32, torch.complex64)
                if single and not result._is_zerotensor():  # which has no memory
                    result.mul_(1 + self.random.choice([-1, 1]) * 2.0**-23)
            return out

    return Rounding()


def observe(program: Program, compiled: bool, rounding: int | None = None) -> list[tuple[list[Token], tuple[Any, ...]]]:
    """Runs the program from its start; what was to be seen after each step."""
    filename = f"<program {id(program)}>"
    text = program.source + "\n"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    module = types.ModuleType("program")
    names = module.__dict__
    seen = []
    before = sys.modules.get("program")
    sys.modules["program"] = module  # other compilers import it by its name, and dataclasses look it up
    try:
        _reset(program.seed)
        # The program's own decorator for functions that `f` calls, and for those that call it.
        names["compiled"] = tatara.compile if compiled else _as_it_is
        exec(compile(text, filename, "exec", dont_inherit=True), names)
        plain = names["f"]
        if compiled:
            names["f"] = tatara.compile(plain, **dict(program.options))
        hidden = {id(names["f"]), id(plain), id(names["compiled"])}
        walk = _Walk(hidden)
        with torch._C.DisableTorchFunction():
            walk.names(names)
        given = {id(t): weakref.ref(t) for _, t in walk.tensors}
        del walk
        for k, step in enumerate(program.steps):
            linecache.cache[f"<program step {k}>"] = (len(step), None, [step], f"<program step {k}>")
            out, outcome = io.StringIO(), None
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(out),
                warnings.catch_warnings(record=True) as told,
                contextlib.nullcontext() if rounding is None else _rounding(rounding),
            ):
                warnings.simplefilter("always")
                try:
                    try:
                        outcome = eval(compile(step, f"<program step {k}>", "eval", dont_inherit=True), names)
                    except SyntaxError:
                        exec(compile(step, f"<program step {k}>", "exec", dont_inherit=True), names)
                except BaseException as error:
                    outcome = error
                states = (_random_states(), _modes())
            walk = _Walk(hidden, given)
            with torch._C.DisableTorchFunction():
                walk.add(outcome, "result")
                walk.names(names)
                walk.bases()
            # Which functions are compiled how often is no part of what they do.
            said = tuple(
                (w.category.__name__, _no_addresses(str(w.message)))
                for w in told
                # Which functions are compiled how often is no part of what they do.
                if not _once_a_process(str(w.message)) and not str(w.message).startswith("tatara: compiled")
            )
            walk.tokens.append(("output", _no_addresses(out.getvalue())))
            walk.tokens.append(("warnings", said))
            seen.append((walk.tokens, states))
            # What walked stays alive until here, so that no identity is used twice.
            del walk, outcome
    finally:
        linecache.cache.pop(filename, None)
        sys.modules.pop("program", None)
        if before is not None:
            sys.modules["program"] = before
        _forget_imports()
    return seen


def _told(tokens: list[Token], at: int) -> str:
    """What the exception at this place says; empty for all else."""
    if "exception" not in tokens[at][1:2]:
        return ""
    return " of " + ", ".join(repr(token[-1]) for token in tokens[at + 1 : at + 1 + tokens[at][4]])


def compare(program: Program) -> None:
    """Raises Differs where the compiled program is not eager's."""
    theirs = observe(program, compiled=False)
    ours = observe(program, compiled=True)
    noise: list[list[tuple[list[Token], tuple[Any, ...]]]] = []
    for k, ((expected, states), (found, our_states)) in enumerate(zip(theirs, ours, strict=True)):
        where = f"after step {k} ({program.steps[k]})"
        for at, (a, b) in enumerate(zip(expected, found, strict=False)):
            if not _same_leaf(a, b):
                if torch is not None and isinstance(a[-1], torch.Tensor):
                    noise = noise or [observe(program, compiled=False, rounding=n) for n in range(4)]
                    if _within(a, b, [run[k][0][at] for run in noise if at < len(run[k][0])]):
                        continue
                again = observe(program, compiled=False)[k][0]
                if at >= len(again) or not _same_leaf(a, again[at]):
                    return  # eager's own outcome is another each time: it reads what is in memory by chance
                errors = [_told(tokens, at) for tokens in (expected, found)]
                raise Differs(f"{where}: eager {a!r}{errors[0]}, compiled {b!r}{errors[1]}")
        if len(expected) != len(found):
            raise Differs(f"{where}: eager has {len(expected)} observations, compiled {len(found)}")
        for name, a, b in zip(("random state", "modes"), states, our_states, strict=True):
            if a != b:
                raise Differs(f"{where}: another {name}: eager {str(a)[:200]}, compiled {str(b)[:200]}")
