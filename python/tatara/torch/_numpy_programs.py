"""Functions of tensors made of NumPy programs (`tatara.wrap_numpy`).

The program is captured on arrays that stand for the tensors: same shapes and element types, other values. What the core makes of
its calls (`Graph.numpy_program()`) becomes a function of torch calls, one a step, which is called on the tensors. So everything
that torch calls have holds for it: gradients, transforms, autocast, devices, and capture within compiled code.
"""

from __future__ import annotations

import ast
import functools
import inspect
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch

import numpy as np
from tatara import _core
from tatara._errors import Unsupported
from tatara.torch._numpy_calls import CALLS, Fit, fitted

_KEPT = 64  # signatures of a function whose programs are kept
_ATTEMPTS = 2  # to capture a function for operands of one kind
_WIDE_UNSIGNED = ("uint16", "uint32", "uint64")  # for which torch has no arithmetic


class Value:
    """A value of a program, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Output:
    """Stands for an output of a program in the function's result."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


class Operand:
    """Stands for a tensor among the function's arguments, in these and in its result."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


def _itself(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x)


def _copied(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.clone()


def _kept(x: torch.Tensor, *operands: torch.Tensor) -> torch.Tensor:
    """What an argument holds before the call writes to it: gradients read it later."""
    wanted = torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)
    return x.clone() if wanted else x


def _indexed(x: torch.Tensor, places: list[torch.Tensor | None]) -> torch.Tensor:
    return x[tuple(slice(None) if place is None else place for place in places)]


# Operators that torch spells otherwise, or where its function wants a layout that the tensors need not have.
_SPELLED: dict[str, Callable[..., Any]] = {
    "alias": _itself,
    "arange.step": torch.arange,
    "cast": torch.Tensor.to,
    "conj_complex": torch.conj_physical,
    "index": _indexed,
    "relayout": _copied,
    "reshape_copy": torch.reshape,
    "view": torch.reshape,
}


@functools.cache
def _spelling(operator: str, names: str) -> Callable[..., Any]:
    """The torch function that means an operator of the registry."""
    if operator in _SPELLED:
        return _SPELLED[operator]
    words = [name for name in names.split() if name.startswith("torch.")]
    for name in sorted(words, key=lambda word: word.startswith("torch.Tensor.")):
        found: Any = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    raise Unsupported(f"no torch function for the operator {operator}")


class _Writer:
    """Writes the source of a program."""

    def __init__(self, data: dict[str, Any], operands: list[int], arrays: dict[int, np.ndarray[Any, Any]]) -> None:
        self.data = data
        self.names: dict[int, str] = {}
        self.dtypes: dict[int, str] = {}
        self.scope: dict[str, Any] = {"torch": torch}
        self.constants: list[torch.Tensor] = []
        self.lines: list[tuple[str, int]] = []
        self.files: set[str] = set()
        self.taken = [(value, operands[at]) for value, at in data["inputs"] if operands[at] >= 0]
        for value, place in self.taken:
            self.names[value.number] = f"x{place}"
        for value, at in data["inputs"]:
            if operands[at] < 0:
                self._hold(value.number, arrays[at])
        self.held = set(data["constants"])
        for number, array in data["constants"].items():
            self._hold(number, np.asarray(array))

    def _hold(self, number: int, array: np.ndarray[Any, Any]) -> None:
        """A tensor in the array's memory: the program sees what is written there later."""
        self.names[number] = f"c{len(self.constants)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an array that is not writeable: nothing here writes
            try:
                self.constants.append(torch.from_numpy(array))
            except (TypeError, ValueError) as error:
                raise Unsupported(f"an array that torch cannot share memory with: {error}") from None

    def _given(self, value: Any) -> str:
        """The source of an object; numbers and texts as they are, all else by a name."""
        if isinstance(value, Value):
            return self.names[value.number]
        if type(value) in (bool, int, str, type(None)):
            return repr(value)
        if type(value) is tuple:
            return "(" + "".join(self._given(item) + ", " for item in value) + ")"
        if type(value) is list:
            return "[" + ", ".join(self._given(item) for item in value) + "]"
        if type(value) is slice:
            return f"slice({self._given(value.start)}, {self._given(value.stop)}, {self._given(value.step)})"
        name = f"k{len(self.scope)}"
        self.scope[name] = value
        return name

    def _argument(self, kind: str, value: Any) -> str:
        if kind == "dtype":
            return f"torch.{value}"
        if kind == "device":
            return "device"
        if kind == "text" and str(value).endswith("_format"):
            return f"torch.{value}"
        return self._given(value)

    def _operator(self, operator: str, names: str, arguments: list[tuple[str, bool, str, Any]]) -> str:
        function = _spelling(operator, names)
        given: list[str] = []
        by_name = operator == "clone"  # whose function takes all but the tensor by name
        for index, (name, keyword, kind, value) in enumerate(arguments):
            if kind == "none" or (operator == "expand" and name == "implicit"):
                by_name = True
                continue
            text = self._argument(kind, value)
            given.append(f"{name}={text}" if keyword or (by_name and index > 0) else text)
        return f"{self._given(function)}({', '.join(given)})"

    def _call(self, name: str, call: tuple[Any, Any], results: list[tuple[Value, str, tuple[int, ...]]]) -> str:
        found = CALLS.get(name)
        if found is None:
            raise Unsupported(f"numpy's {name} has no meaning for tensors here")
        function, promotes = found
        args, kwargs = call
        try:
            inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise Unsupported(f"numpy's {name}: {error}") from None
        given = [self._cast(item, results[0][1]) if promotes else self._given(item) for item in args]
        given += [f"{key}={self._given(item)}" for key, item in kwargs.items()]
        wanted = [Fit(getattr(torch, dtype), shape) for _, dtype, shape in results]
        return f"{self._given(fitted)}({self._given(function)}({', '.join(given)}), {self._given(wanted)})"

    def _cast(self, item: Any, dtype: str) -> str:
        """NumPy casts the operands of products to the type of the result."""
        if isinstance(item, Value):
            return f"{self._given(item)}.to(torch.{dtype})"
        if type(item) in (tuple, list) and any(isinstance(each, Value) for each in item):
            return "[" + ", ".join(self._cast(each, dtype) for each in item) + "]"
        return self._given(item)

    def _wanted(self) -> list[Any]:
        """The steps that results need."""
        wanted = {value.number for value in self.data["outputs"]} | {value.number for _, value in self.data["writes"]}

        def note(item: Any) -> None:
            if isinstance(item, Value):
                wanted.add(item.number)
            elif isinstance(item, tuple | list):
                for each in item:
                    note(each)
            elif isinstance(item, dict):
                note(list(item.values()))
            elif isinstance(item, slice):
                note((item.start, item.stop, item.step))

        kept = []
        for step in reversed(self.data["steps"]):
            if any(value.number in wanted for value, _, _ in step[3]):
                kept.append(step)
                note(step[2])
        return kept[::-1]

    def places(self) -> list[int]:
        """The operands that the program takes, in its order."""
        return sorted({place for _, place in self.taken})

    def write(self) -> Callable[..., Any]:
        taken = [f"x{place}" for place in self.places()]
        targets: list[tuple[str, Any]] = []
        for index, value in self.data["writes"]:
            given = self.data["inputs"][index][0].number
            target, kept = self.names[given], f"w{len(targets)}"
            targets.append((target, value))
            self.scope["_kept"] = _kept
            self.lines.append((f"{kept} = _kept({', '.join([target, *taken])})", 0))
            self.names[given] = kept
        for operator, names, arguments, results, file, line in self._wanted():
            made = [f"v{value.number}" for value, _, _ in results]
            try:
                text = (
                    self._call(names, arguments, results)
                    if operator is None
                    else self._operator(operator, names, arguments)
                )
            except Unsupported as error:
                raise Unsupported(f"{file}:{line}: {error}") from None
            for value, name in zip(results, made, strict=True):
                self.names[value[0].number] = name
            self.lines.append((f"{', '.join(made)}{',' if operator is None else ''} = {text}", line))
            self.files.add(file)
        self.lines += [(f"{target}.copy_({self.names[value.number]})", 0) for target, value in targets]
        outputs = [
            self.names[value.number] + (".clone()" if value.number in self.held else "")
            for value in self.data["outputs"]
        ]
        self.lines.append((f"return ({''.join(text + ', ' for text in outputs)})", 0))
        parameters = ["device", *taken, *(f"c{k}" for k in range(len(self.constants)))]
        tree = ast.parse(f"def numpy_program({', '.join(parameters)}):\n    pass")
        body = []
        for text, line in self.lines:
            (statement,) = ast.parse(f"def f():\n    {text}").body[0].body  # type: ignore[attr-defined]
            for node in ast.walk(statement):
                if isinstance(node, ast.stmt | ast.expr | ast.keyword):
                    node.lineno = node.end_lineno = max(line, 1)
            body.append(statement)
        tree.body[0].body = body  # type: ignore[attr-defined]
        # In tracebacks and reports a step stands where the program has its call.
        file = next(iter(self.files)) if len(self.files) == 1 else "<NumPy program>"
        exec(compile(tree, file, "exec"), self.scope)
        return self.scope["numpy_program"]  # type: ignore[no-any-return]


def device_of(tensors: list[torch.Tensor]) -> torch.device:
    """Where the results are; numbers of NumPy's among the tensors are on the CPU."""
    return next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), torch.device("cpu"))


class Program:
    """What one way through a NumPy function does, as a function of tensors."""

    def __init__(self, data: dict[str, Any], operands: list[int], arrays: dict[int, np.ndarray[Any, Any]]) -> None:
        for _, _, _, results, file, line in data["steps"]:
            if any(dtype in _WIDE_UNSIGNED for _, dtype, _ in results):
                raise Unsupported(f"{file}:{line}: a result of an unsigned type that torch's operators lack")
        writer = _Writer(data, operands, arrays)
        self.function = writer.write()
        self.takes = writer.places()
        self.constants = tuple(writer.constants)
        self.writes = bool(data["writes"])  # to arguments
        self.steps = len(data["steps"])

    def __call__(self, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        device = device_of(tensors)
        constants = [tensor.to(device) for tensor in self.constants]
        return self.function(device, *[tensors[place] for place in self.takes], *constants)  # type: ignore[no-any-return]


class Way:
    """A program, and the structure of the result around what it computes."""

    def __init__(self, program: Program | None, result: Any) -> None:
        self.program = program
        self.result = result


class _Here(threading.local):
    stand_ins: list[Any] | None = None  # of the call that is looked at
    program: Program | None = None  # that it has come to
    traced = False  # it was new


_here = _Here()


def _backend(graph: Any, examples: list[Any]) -> Callable[..., Any]:
    if graph.effects:
        raise Unsupported(f"a NumPy function that writes to objects from before the call ({', '.join(graph.effects)})")
    _here.traced = True
    places = {id(array): place for place, array in enumerate(_here.stand_ins or [])}
    operands = [places.get(id(array), -1) for array in examples]
    program = Program(graph.numpy_program(Value), operands, dict(enumerate(examples)))
    outputs = [Output(place) for place in range(len(graph.outputs))]

    def run(*_: Any) -> list[Output]:
        _here.program = program
        return outputs

    return run


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An array to capture on: its values let the usual calls go through (a matrix has an inverse, a logarithm its number)."""
    if dtype.kind not in "fc":
        return np.zeros(shape, dtype)
    size = int(np.prod(shape))
    array = np.linspace(0.25, 0.75, size, dtype=dtype).reshape(shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        array = array * 0.125 + np.eye(shape[-1], dtype=dtype) * shape[-1]
        array = (array + np.swapaxes(array, -1, -2)) / 2
    return np.ascontiguousarray(array, dtype)


def replaced(item: Any, change: Callable[[Any], Any]) -> Any:
    """The structure with `change` done to each leaf."""
    if type(item) in (tuple, list):
        return type(item)([replaced(each, change) for each in item])
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*[replaced(each, change) for each in item])
    if type(item) is dict:
        return {key: replaced(each, change) for key, each in item.items()}
    return change(item)


def _same(a: Any, b: Any) -> bool:
    """Whether two results are one structure of the same objects; outputs and operands by their places."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(_same, a.values(), b.values()))
    if isinstance(a, Output | Operand):
        return bool(a.place == b.place)
    if a is b:
        return True
    return type(a) in (int, float, str, bool, complex) and bool(a == b)


class _Captured:
    """A NumPy function for operands of one kind."""

    def __init__(self, function: Any, kinds: tuple[tuple[tuple[int, ...], str], ...]) -> None:
        self.compiled = _core.CompiledFunction(function, _backend, True, None, False)
        self.kinds = kinds
        # Calls that find their program look at no element: this memory is never touched.
        self.empty: list[Any] = [np.empty(shape, dtype) for shape, dtype in kinds]
        self.known = False
        self.refusals: list[str] = []  # why the last attempts failed
        self.ways: list[Way] = []
        self.latest: tuple[Any, Any, Any] = (None, None, None)  # arrays, structure, and what they are together

    def _together(self, arrays: list[Any], structure: Any) -> Any:
        """Compiled code comes with the same objects again and again."""
        if self.latest[0] is not arrays or self.latest[1] is not structure:
            made = replaced(structure, lambda leaf: arrays[leaf.place] if isinstance(leaf, Operand) else leaf)
            self.latest = (arrays, structure, made)
        return self.latest[2]

    def _call(self, arrays: list[Any], structure: Any) -> Any:
        args, kwargs = self._together(arrays, structure)
        before, _here.stand_ins, _here.program, _here.traced = _here.stand_ins, arrays, None, False
        try:
            with np.errstate(all="ignore"):
                return self.compiled(*args, **kwargs)
        finally:
            _here.stand_ins = before

    def _entries(self) -> int:
        """How often the function was captured, or found again."""
        entries = self.compiled._report()["entries"]
        return len(entries) + sum(int(entry["hits"]) for entry in entries)

    def find(self, structure: Any) -> Way:
        """The same object for the same way through the function."""
        if not self.known:
            self._call([_filled(shape, np.dtype(dtype)) for shape, dtype in self.kinds], structure)
            self.known = True
        try:
            result = self._call(self.empty, structure)
        except Unsupported:
            # Captured on memory as it was, which a call may not like.
            self._call([_filled(shape, np.dtype(dtype)) for shape, dtype in self.kinds], structure)
            result = self._call(self.empty, structure)
        if _here.traced:
            result = self._call(self.empty, structure)
        if _here.program is None:
            before = self._entries()
            result = self._call(self.empty, structure)
            if self._entries() == before or _here.traced:
                raise Unsupported("the function is not captured")
        return self._way(result, _here.program)

    def _way(self, result: Any, program: Program | None) -> Way:
        places = {id(array): place for place, array in enumerate(self.empty)}
        result = replaced(result, lambda leaf: Operand(places[id(leaf)]) if id(leaf) in places else leaf)
        for way in self.ways:
            if way.program is program and _same(way.result, result):
                return way
        self.ways.append(Way(program, result))
        return self.ways[-1]


class Finder:
    """Finds the programs of a function by what its operands are."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.captured: OrderedDict[Hashable, _Captured] = OrderedDict()
        self.lock = threading.RLock()
        self.latest: tuple[Any, Any, Any] = (None, None, None)  # kinds, structure, and what was captured for them
        self.find = functools.partial(self._find)  # one object, which compiled code calls again

    def _find(self, kinds: tuple[tuple[tuple[int, ...], str], ...], structure: Any) -> Way | str:
        """A way, or why there is none."""
        with self.lock:
            if self.latest[0] is not kinds or self.latest[1] is not structure:
                self.latest = (kinds, structure, self._captured(kinds, structure))
            captured: _Captured = self.latest[2]
            if len(captured.refusals) == _ATTEMPTS:
                return captured.refusals[-1]
            try:
                return captured.find(structure)
            except Unsupported as error:
                captured.refusals.append(str(error))
                return captured.refusals[-1]

    def _captured(self, kinds: tuple[tuple[tuple[int, ...], str], ...], structure: Any) -> _Captured:
        constants: list[Hashable] = []
        replaced(structure, lambda leaf: constants.append(_constant(leaf)))
        key = (kinds, tuple(constants))
        captured = self.captured.get(key)
        if captured is None:
            captured = self.captured[key] = _Captured(self.function, kinds)
            if len(self.captured) > _KEPT:
                self.captured.popitem(last=False)
        self.captured.move_to_end(key)
        return captured


def _constant(leaf: Any) -> Any:
    """What tells plain arguments apart; the guards of the capture see to others."""
    if isinstance(leaf, Operand):
        return leaf.place
    return (type(leaf), repr(leaf)) if type(leaf) in (bool, int, float, complex, str, type(None)) else type(leaf)
