"""Python constructs inside a compiled function: one graph, no break, as eager."""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import math
import operator
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Optional

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh", "no_grad")

X = torch.arange(12.0).reshape(3, 4)


def generator(x: Any) -> Any:
    def rows() -> Iterator[Any]:
        for i in range(3):
            yield x[i] * i

    return sum(rows()) + sum(r.sum() for r in rows())


def generator_protocol(x: Any) -> Any:
    def steps() -> Any:
        total = x
        try:
            while True:
                total = total + (yield total)
        except GeneratorExit:
            pass
        finally:
            total = total * 2

    it = steps()
    next(it)
    y = it.send(1)
    z = it.send(2.5)
    it.close()
    return y, z


def yield_from(x: Any) -> Any:
    def inner() -> Any:
        yield x
        return x * 3

    def outer() -> Any:
        last = yield from inner()
        yield last + 1

    return [y + 1 for y in outer()]


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by
        self.depth = 0

    def __enter__(self) -> Scale:
        self.depth += 1
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.depth -= 1
        return kind is ValueError


def context_manager(x: Any) -> Any:
    with Scale(2) as scale, contextlib.nullcontext(3) as three:
        y = x * scale.by + scale.depth + three
    with scale:
        y = y + 1
        raise ValueError("swallowed")
    return y + scale.depth


@contextlib.contextmanager
def scaled(x: Any, by: float) -> Iterator[Any]:
    try:
        yield x * by
    finally:
        by = 0


def context_manager_function(x: Any) -> Any:
    with scaled(x, 3) as y, contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
        z = stack.enter_context(scaled(y, 2))
        raise KeyError("no matter")
    return y + z


class Wrong(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__("wrong")
        self.value = value


def exceptions(x: Any) -> Any:
    def check(n: int) -> Any:
        if n > 1:
            raise Wrong(x * n)
        return x

    y = check(1)
    try:
        y = y + check(2)
    except Wrong as error:
        y = y + error.value
    else:
        y = y * 100
    finally:
        y = y + 1
    try:
        {}["a"]
    except (IndexError, KeyError) as error:
        y = y + len(error.args)
    try:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise TypeError("outer") from error
    except TypeError as error:
        y = y * (2 if isinstance(error.__cause__, ValueError) else 3)
    return y


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 2
    tags: list[str] = dataclasses.field(default_factory=list)

    def total(self) -> Any:
        return self.x + self.y


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    n: int = 3


def dataclass(x: Any) -> Any:
    p = Point(x, tags=["a"])
    q = dataclasses.replace(p, y=x * 2)
    p.tags.append("b")
    f = Frozen(x)
    names = [f.name for f in dataclasses.fields(p)]
    return p.total() + q.total() * f.n + len(p.tags) + len(names), p


class Mode(enum.Enum):
    DOUBLE = 2
    TRIPLE = 3

    @property
    def factor(self) -> int:
        return self.value


class Bits(enum.IntFlag):
    A = 1
    B = 2


def enumeration(x: Any) -> Any:
    y = x * Mode.DOUBLE.factor
    if Mode(3) is Mode.TRIPLE and Mode["DOUBLE"] != Mode.TRIPLE:
        y = y + len(list(Mode))
    if Bits.A in (Bits.A | Bits.B):
        y = y - int(Bits.B)
    return y


class Pair(NamedTuple):
    first: Any
    second: Any = 1

    def swap(self) -> Pair:
        return Pair(self.second, self.first)


Old = collections.namedtuple("Old", ["a", "b"])


def named_tuples(x: Any) -> Any:
    p = Pair(x).swap()
    q = Old(x, b=x * 2)._replace(a=3)
    first, second = p
    return p, q, first + second + q.b + sum(q._asdict()["b"])


def ordered_dict(x: Any) -> Any:
    d = collections.OrderedDict(a=x, b=x + 1)
    d.move_to_end("a")
    d["c"] = d.pop("b") * 2
    first = next(iter(d))
    return d, first, sum(v.sum() for v in d.values())


def collections_of_the_library(x: Any) -> Any:
    counts = collections.Counter("hello")
    groups = collections.defaultdict(list)
    for i in range(4):
        groups[i % 2].append(x[:, i])
    queue = collections.deque([x, x + 1], maxlen=2)
    queue.append(x + 2)
    chain = collections.ChainMap({"a": 1}, {"b": 2})
    return sum(groups[0]) * counts["l"] + sum(groups[1]), queue.popleft() + chain["b"]


def add(x: Any, y: Any, *, scale: float = 1) -> Any:
    return (x + y) * scale


@functools.lru_cache(maxsize=None)
def cached(n: int) -> int:
    return n * n


@functools.singledispatch
def kind(value: Any) -> Any:
    return 0


@kind.register
def _(value: int) -> Any:
    return value + 1


@kind.register(list)
def _(value: list[Any]) -> Any:
    return len(value) * 10


def wrapped(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs) + 1

    return call


@wrapped
def decorated(x: Any) -> Any:
    """Doubles."""
    return x * 2


def functools_(x: Any) -> Any:
    twice = functools.partial(add, x, scale=2)
    y = functools.reduce(operator.add, [x, twice(1), twice(y=x)])
    y = y + cached(3) + kind(3) + kind([1, 2])
    order = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
    return decorated(y) + order[0] + len(decorated.__name__)


def itertools_(x: Any) -> Any:
    y = x
    for i, j in itertools.product(range(2), repeat=2):
        y = y + i * x + j
    for a, b in itertools.zip_longest([1, 2], [3], fillvalue=0):
        y = y * (a + b)
    for value in itertools.chain([x], itertools.islice(itertools.count(2), 2), itertools.repeat(1, 2)):
        y = y + value
    for _, group in itertools.groupby([1, 1, 2], key=lambda v: v % 2):
        y = y + len(list(group))
    y = y + sum(itertools.accumulate([1, 2, 3])) + len(list(itertools.combinations(range(4), 2)))
    return y + sum(a for a, b in zip(*[iter([1, 2, 3, 4])] * 2))


def signature(x: Any) -> Any:
    parameters = inspect.signature(add).parameters
    bound = inspect.signature(add).bind(x, 1)
    bound.apply_defaults()
    return x * len(parameters) + bound.args[1] + bound.kwargs["scale"] + inspect.isfunction(add)


def pytrees(x: Any) -> Any:
    import torch.utils._pytree as pytree

    leaves, spec = pytree.tree_flatten({"a": [x, x + 1], "b": (x * 2, 3)})
    tree = pytree.tree_unflatten([leaf * 2 for leaf in leaves], spec)
    return pytree.tree_map(lambda v: v + 1, tree)


class Unit:
    """Descriptors."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else getattr(owner, self.name) * self.by

    def __set__(self, owner: Any, value: Any) -> None:
        setattr(owner, self.name, value)


class Base:
    factor: ClassVar[int] = 2

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def double(self) -> Any:
        return self.value * 2

    @double.setter
    def double(self, value: Any) -> None:
        self.value = value / 2

    @classmethod
    def make(cls, value: Any) -> Any:
        return cls(value * cls.factor)

    @staticmethod
    def plus(value: Any) -> Any:
        return value + 1

    def step(self) -> Any:
        return self.value

    def __call__(self, x: Any) -> Any:
        return x + self.value

    def __getitem__(self, index: int) -> Any:
        return self.value[index]

    def __len__(self) -> int:
        return 3

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("times_"):
            return self.value * int(name[6:])
        raise AttributeError(name)

    def __add__(self, other: Any) -> Any:
        return type(self)(self.value + other.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Base) and self.value is other.value

    def __hash__(self) -> int:
        return 1


class Derived(Base):
    factor = 3
    unit = Unit(10)

    def step(self) -> Any:
        self.unit = 1
        return super().step() + self.unit

    @functools.cached_property
    def once(self) -> Any:
        return self.value + 100


def properties(x: Any) -> Any:
    b = Base(x)
    b.double = b.double + 4
    return b.double


def descriptors(x: Any) -> Any:
    d = Derived(x)
    d.unit = x
    return d.unit + d.once + d.once


def super_calls(x: Any) -> Any:
    return Derived.make(x).step() + Derived.plus(x) + super(Derived, Derived(x)).step()


def special_methods(x: Any) -> Any:
    b = Base(x)
    y = b(x) + b[0].sum() + len(b) + b.times_3 + (b + b).value
    if b and b == Base(x) and hasattr(b, "times_2") and not hasattr(b, "other"):
        y = y + 1
    return y * {b: 3}[b]


class Slotted:
    __slots__ = ("value", "count")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.count = 0


def slots(x: Any) -> Any:
    s = Slotted(x)
    s.count += 2
    s.value = s.value * s.count
    return s.value


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, x: Any) -> Any: ...


class Square(Shape):
    def area(self, x: Any) -> Any:
        return x * x


def abstract_classes(x: Any) -> Any:
    s = Square()
    return s.area(x) if isinstance(s, Shape) and issubclass(Square, Shape) else x


def strings(x: Any) -> Any:
    name = f"{x.dim()}-{tuple(x.shape)!r:>10}-{3.14159:.2f}-{'a'!s}"
    text = "{0} {key}".format(1, key="b") + "%d %s" % (2, "c") + ",".join(["d", "e"])
    return x + len(name) + len(text.upper().split()) + int("3"), name, text


def matching(x: Any) -> Any:
    y = x
    for value in [1, (2, 3), {"k": 4}, Point(5), [6, 7, 8], "s"]:
        match value:
            case int(n):
                y = y + n
            case (a, b):
                y = y * a + b
            case {"k": k}:
                y = y - k
            case Point(x=p):
                y = y + p
            case [first, *rest]:
                y = y + first + len(rest)
            case _:
                y = y + 0.5
    return y


def closures(x: Any) -> Any:
    total = 0

    def bump(n: int) -> Any:
        nonlocal total
        total += n
        return lambda y: y + total + n

    return bump(1)(x) + bump(2)(x)


def comprehensions(x: Any) -> Any:
    rows = [row * 2 for row in x if row.shape[0] == 4]
    table = {i: row for i, row in enumerate(rows)}
    names = {n % 2 for n in range(5)}
    return sum(table.values()) + len(names), [a + b for a, b in zip(rows, reversed(rows))]


def unpacking(x: Any) -> Any:
    first, *rest = x.unbind(0)
    (a, b), c = (1, 2), 3
    merged = {**{"scale": 2}, "y": a + b}
    return add(*[first], **merged), [*rest, c]


def walrus_and_loops(x: Any) -> Any:
    n = 0
    while (n := n + 1) < 10:
        if n == 2:
            continue
        if n > 4:
            break
        x = x + n
    else:
        x = x * 100
    for _ in []:
        pass
    else:
        x = x + 0.5
    return x


def classes_made_here(x: Any) -> Any:
    class Local:
        by = 3

        def run(self, y: Any) -> Any:
            return y * self.by

    dynamic = type("Dynamic", (Local,), {"by": 4})
    return Local().run(x) + dynamic().run(x)


def builtins(x: Any) -> Any:
    values = sorted([3, 1, 2], reverse=True) + list(map(abs, [-1])) + list(filter(None, [0, 5]))
    y = x + max(values) + min(values, default=0) + sum(values) + len(range(3)) + divmod(7, 2)[1] + round(2.6)
    y = y + any(v > 2 for v in values) + all(values) + ord("a") + int(chr(51)) + hash((1, 2)) % 3 + pow(2, 3)
    return y + getattr(x, "ndim") + (3 if callable(builtins) else 0) + isinstance(x, torch.Tensor)  # noqa: B009


def modules_of_c(x: Any) -> Any:
    heap = [3, 1]
    heapq.heappush(heap, 2)
    y = x + heapq.heappop(heap) + bisect.bisect([1, 3], 2) + math.sqrt(16) + math.prod([2, 3])
    return y + operator.itemgetter(1)([4, 5]) + operator.attrgetter("ndim")(x) + operator.mul(2, 3)


def copies(x: Any) -> Any:
    table = {"a": [1, 2]}
    deep, flat = copy.deepcopy(table), copy.copy(table)
    table["a"].append(3)
    return x + len(deep["a"]) + len(flat["a"])


def namespace(x: Any) -> Any:
    n = types.SimpleNamespace(a=x, b=2)
    n.c = n.a * n.b
    return n.c + len(vars(n))


def warnings_caught(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x + 1
    return y


class Hooked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.ReLU()])
        self.table = torch.nn.ModuleDict({"a": torch.nn.Tanh()})
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.inner.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        self.inner.register_forward_hook(lambda m, args, out: out * 2)
        self.inner.register_forward_hook(self.late, with_kwargs=True)

    def late(self, module: Any, args: Any, kwargs: Any, out: Any) -> Any:
        return out + len(args)

    @property
    def size(self) -> int:
        return self.scale.numel()

    def forward(self, x: Any) -> Any:
        y = self.inner(x) * self.scale
        for layer in self.layers:
            y = layer(y)
        for name, child in self.named_children():
            y = y + len(name) * (child is self.inner)
        for p in self.parameters():
            y = y + p.sum()
        return self.table["a"](y) + self.size + self.training


torch.manual_seed(0)
HOOKED = Hooked()


def module_with_hooks(x: Any) -> Any:
    return HOOKED(x)


TABLE = [
    generator,
    generator_protocol,
    yield_from,
    context_manager,
    context_manager_function,
    exceptions,
    dataclass,
    enumeration,
    named_tuples,
    ordered_dict,
    collections_of_the_library,
    functools_,
    itertools_,
    signature,
    pytrees,
    properties,
    descriptors,
    super_calls,
    special_methods,
    slots,
    abstract_classes,
    strings,
    matching,
    closures,
    comprehensions,
    unpacking,
    walrus_and_loops,
    classes_made_here,
    builtins,
    modules_of_c,
    copies,
    namespace,
    module_with_hooks,
]


@pytest.mark.parametrize("f", TABLE, ids=lambda f: f.__name__)
def test_one_graph(f: Any) -> None:
    f(X)  # fills the caches of the library
    compiled = tatara.compile(f)
    for i in range(3):
        same(compiled(X + i), f(X + i))
    report = report_of(compiled)
    assert report.breaks == []
    assert len(report.graphs) == 1
    assert tatara.stats()["guard_hits"] == 2


def test_annotations_by_name_break_nothing() -> None:
    """Python compiles them when somebody first asks, as torch's profiler does in an optimizer's first step."""

    def f(x: torch.Tensor) -> torch.Tensor:
        hint = Optional["torch.Tensor"]
        return x * 2 if hint is not None else x

    for clean in typing._cleanups:  # caches of such annotations
        clean()
    x = torch.randn(3)
    assert torch.equal(tatara.compile(f, fullgraph=True)(x), x * 2)
