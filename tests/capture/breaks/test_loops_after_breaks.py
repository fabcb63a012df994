"""Loops that go on after a graph break, and other iterators from before a trace: moved on by it as in eager, without a break."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:tatara")


class _Pair(NamedTuple):
    a: int
    b: int


def _moved(iterator: Iterator[Any], steps: int = 1) -> Iterator[Any]:
    for _ in range(steps):
        next(iterator, None)
    return iterator


_DICT = {"a": 2, "b": 3, "c": 5, "d": 7}
# What is read exactly: these break no graph.
_MAKE: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter([2, 3, 5, 7]),
    "list moved": lambda: _moved(iter([2, 3, 5, 7])),
    "list at its end": lambda: _moved(iter([2, 3]), 2),
    "list ended": lambda: _moved(iter([2, 3]), 3),
    "tuple": lambda: iter((2, 3, 5, 7)),
    "named tuple": lambda: iter(_Pair(2, 3)),
    "str": lambda: iter("abcd"),
    "str beyond ascii": lambda: _moved(iter("äbcd")),
    "bytes": lambda: iter(b"abcd"),
    "range": lambda: _moved(iter(range(1, 12, 2)), 2),
    "range ended": lambda: _moved(iter(range(3)), 5),
    "long range": lambda: _moved(iter(range(2**70, 2**70 + 4))),
    "reversed list": lambda: _moved(reversed([2, 3, 5, 7])),
    "reversed tuple": lambda: _moved(reversed((2, 3, 5, 7))),
    "reversed range": lambda: _moved(reversed(range(4))),
    "keys": lambda: _moved(iter(dict(_DICT))),
    "values": lambda: _moved(iter(dict(_DICT).values()), 2),
    "items": lambda: iter(dict(_DICT).items()),
    "items ended": lambda: _moved(iter(dict(_DICT).items()), 5),
    "enumerate": lambda: _moved(enumerate([2, 3, 5, 7], 3)),
    "zip": lambda: _moved(zip([2, 3, 5], "abc", enumerate((7, 11)))),
    "zip of one": lambda: (lambda it: zip(it, it))(iter([2, 3, 5, 7, 11])),
    "zip strict": lambda: zip([2, 3, 5], (2, 3, 5), strict=True),
}
# And these do, as before.
_OTHERS: dict[str, Callable[[], Iterator[Any]]] = {
    "generator": lambda: (i for i in (2, 3, 5, 7)),
    "map": lambda: map(int, "2357"),
    "set": lambda: iter({2, 3, 5, 7}),
    "dict with holes": lambda: (lambda d: (d.pop("a"), d.update(e=11), _moved(iter(d)))[2])(dict(_DICT)),
    "zip of unequal lengths": lambda: zip([2, 3, 5], (2, 3), strict=True),
    "reversed of a class": lambda: reversed(_Sequence()),
}


class _Sequence:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        return i + 1


def _weight(v: Any) -> Any:
    if isinstance(v, tuple):
        return sum(_weight(each) for each in v)
    if isinstance(v, str):
        return float(ord(v))
    return float(v % 1000)


def _break(x: Any) -> Any:
    (x.sum() < 1e9).float().item()  # breaks the graph of whatever calls this
    return x


class _Attributes:
    def __init__(self, **values: int) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__


class _Items(dict[str, int]):
    def __init__(self, **values: int) -> None:
        super().__init__(values)
        self.__dict__.update(values)


class _Holder:
    it: Iterator[Any]


class _Module(torch.nn.Module):
    it: Iterator[Any]

    def forward(self, x: Any) -> Any:
        for v in self.it:
            x = x * 0.5 + _weight(v)
        return x


def _argument(x: Any, it: Any) -> Any:
    for v in it:
        x = x * 0.5 + _weight(v)
    return x


def _two_steps(x: Any, it: Any) -> Any:
    return x * _weight(next(it, 4)) + _weight(next(it, (5, 6)))


def _attribute(x: Any, it: Any) -> Any:
    holder = _Holder()
    holder.it = it
    return _read_attribute(_break(x), holder)


def _read_attribute(x: Any, holder: Any) -> Any:
    for v in holder.it:
        x = x * 0.5 + _weight(v)
    return x


def _closure(x: Any, it: Any) -> Any:
    def inner(y: Any) -> Any:
        for v in it:
            y = y * 0.5 + _weight(v)
        return y

    _break(x)
    return inner(x)


def _after_a_break(x: Any, it: Any) -> Any:
    x = x + _weight(next(it, 1))
    _break(x)
    for v in it:
        x = x * 0.5 + _weight(v)
    return x


def _break_in_each_turn(x: Any, it: Any) -> Any:
    for v in it:
        x = _break(x * 0.5 + _weight(v))
    return x


def _two_names(x: Any, it: Any) -> Any:
    pair = [it, it]
    _break(x)
    for v in pair[0]:
        x = x * 0.5 + _weight(v) - _weight(next(pair[1], 1))
    return x


def _second_loop(x: Any, it: Any) -> Any:
    for v in it:
        x = x * 0.5 + _weight(v)
        if v == 3:
            _break(x)
            break
    for v in it:
        x = x * 0.25 - _weight(v)
    return x


def _step_and_break(x: Any, it: Any) -> Any:
    v = next(it, 4)
    _break(x)
    return x * 0.5 + _weight(v) - _weight(next(it, 1))


def _broken_in_the_callee(x: Any, it: Any) -> Any:
    x = x + _weight(next(it, 1))
    x = _step_and_break(x, it)
    x = _step_and_break(x, it)
    return x + _weight(next(it, 1))


def _in_a_generator(x: Any, it: Any) -> Any:
    _break(x)
    for w in (_weight(v) for v in it):
        x = x * 0.5 + w
    return x


def _comprehension(x: Any, it: Any) -> Any:
    _break(x)
    return [x * _weight(v) for v in it]


_PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    f.__name__[1:]: f
    for f in (
        _argument,
        _two_steps,
        _attribute,
        _closure,
        _after_a_break,
        _break_in_each_turn,
        _two_names,
        _second_loop,
        _broken_in_the_callee,
        _in_a_generator,
        _comprehension,
    )
}


def _outcome(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    try:
        return f(*args), None
    except Exception as error:
        return None, (type(error), str(error))


def _rest(it: Any) -> tuple[Any, Any]:
    return _outcome(list, it)


@pytest.mark.parametrize("program", list(_PROGRAMS))
@pytest.mark.parametrize("made", [*_MAKE, *_OTHERS])
def test_as_in_eager(made: str, program: str) -> None:
    f = _PROGRAMS[program]
    make = {**_MAKE, **_OTHERS}[made]
    compiled = tatara.compile(f)
    for call in range(4):
        x = torch.randn(3)
        ours, eagers = make(), make()
        if call == 3:  # from outside
            next(ours, None)
            next(eagers, None)
        (got, error), (expected, eagers_error) = _outcome(compiled, x, ours), _outcome(f, x, eagers)
        assert error == eagers_error
        torch.testing.assert_close(got, expected)
        assert _rest(ours) == _rest(eagers)


@pytest.mark.parametrize("made", list(_MAKE))
def test_no_break_of_its_own(made: str) -> None:
    for f in (_argument, _two_steps):
        compiled = tatara.compile(f, fullgraph=True)
        for _ in range(3):
            x, ours, eagers = torch.randn(3), _MAKE[made](), _MAKE[made]()
            torch.testing.assert_close(compiled(x, ours), f(x, eagers))
            assert list(ours) == list(eagers)
        assert len(compiled._report()["recompiles"]) == 0


@pytest.mark.smoke
def test_attribute_of_a_module() -> None:
    module = _Module()
    compiled = tatara.compile(module)
    for _ in range(3):
        x = torch.randn(3)
        module.it = iter([2, 3, 5])
        expected = module(x)
        module.it = it = iter([2, 3, 5])
        torch.testing.assert_close(compiled(x), expected)
        assert list(it) == []
        torch.testing.assert_close(compiled(x), x)  # it is at its end
    it = module.it = iter([1, 2])
    torch.testing.assert_close(compiled(x), (x * 0.5 + 1) * 0.5 + 2)
    assert next(it, None) is None


def test_one_iterator_across_calls() -> None:
    def f(x: Any, it: Any) -> Any:
        return x + next(it)

    compiled = tatara.compile(f)
    it = iter(range(40))
    for expected in range(40):
        assert float(compiled(torch.zeros(()), it)) == expected
    with pytest.raises(StopIteration):
        compiled(torch.zeros(()), it)
    # A few entries by place, then one for all places, which breaks.
    assert len(compiled._report()["recompiles"]) <= 6


class _Layer(torch.nn.Module):
    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.breaks = breaks

    def forward(self, x: Any) -> Any:
        if self.breaks:
            (x.sum() < 1e9).float().item()
        return self.linear(x).relu()


class _Model(torch.nn.Module):
    def __init__(self, turns: int, breaking: set[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(_Layer(i in breaking) for i in range(turns))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def _counted(f: Callable[[], Any]) -> tuple[int, int]:
    with counts() as grown:
        f()
    return grown["graphs"], grown["breaks"]


# Graphs and breaks of the first call and of the second, in which layers that break are roots from their own beginning.
_COUNTS: dict[str, tuple[set[int], list[tuple[int, int]]]] = {
    "none": (set(), [(1, 0), (0, 0)]),
    "third": ({2}, [(3, 1), (1, 1)]),  # up to its break, the rest of the layer, the rest of the loop
    "first and last": ({0, 11}, [(3, 2), (2, 2)]),
    "last": ({11}, [(2, 1), (1, 1)]),
    "all": (set(range(12)), [(12, 12), (12, 12)]),
}


@pytest.mark.parametrize("which", list(_COUNTS))
def test_layers(which: str) -> None:
    breaking, expected_counts = _COUNTS[which]
    model = _Model(12, breaking).eval()
    compiled = tatara.compile(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        expected = model(x)
        counted = [_counted(lambda: torch.testing.assert_close(compiled(x), expected)) for _ in range(4)]
    assert counted == [*expected_counts, (0, 0), (0, 0)]


def test_turns_that_differ_in_the_place_alone() -> None:
    def f(x: Any) -> Any:
        for _ in range(48):
            x = _break(x * 0.9)
        return x

    compiled = tatara.compile(f)
    x = torch.randn(4)
    graphs, _ = _counted(lambda: torch.testing.assert_close(compiled(x), f(x)))
    # Up to the first break, three turns that each know their place (one before its number varies), then all later ones.
    assert graphs <= 8
    for _ in range(2):
        assert _counted(lambda: torch.testing.assert_close(compiled(x), f(x))) == (0, 0)


def test_changed_while_iterated() -> None:
    def append(x: Any, items: list[int]) -> Any:
        for v in items:
            x = _break(x * 0.5 + v)
            if len(items) < 6:
                items.append(v + 1)
        return x

    def insert(x: Any, items: dict[Any, int]) -> Any:
        for k in items:
            x = _break(x * 0.5 + items[k])
            if len(items) == 3:
                items[k + 5] = 1
        return x

    def replace(x: Any, items: dict[Any, int]) -> Any:
        _break(x)
        it = iter(items)
        _break(x)
        for k in it:
            items[k] += 1
            x = x * 0.5 + items[k]
        return x

    def attributes(x: Any, items: Any) -> Any:
        it = iter(items.__dict__.items())
        _break(x)
        for k, v in it:
            setattr(items, k, v + 1)
            x = x * 0.5 + v
        return x + items.a

    def clear(x: Any, items: list[int]) -> Any:
        it = iter(items)
        _break(x)
        x = x + next(it)
        items.clear()
        return x + next(it, 100), it

    programs: list[tuple[Callable[..., Any], Callable[[], Any]]] = [
        (append, lambda: [1, 2, 3]),
        (insert, lambda: {1: 2, 2: 3, 3: 4}),
        (replace, lambda: {1: 2, 2: 3, 3: 4}),
        (attributes, lambda: _Attributes(a=1, b=2)),
        (attributes, lambda: _Items(a=1, b=2)),
        (clear, lambda: [1, 2, 3]),
    ]
    for f, make in programs:
        compiled = tatara.compile(f)
        for _ in range(3):
            x, ours, eagers = torch.randn(3), make(), make()
            (got, error), (expected, eagers_error) = _outcome(compiled, x, ours), _outcome(f, x, eagers)
            assert error == eagers_error
            if isinstance(got, tuple):
                assert list(got[1]) == list(expected[1])
                got, expected = got[0], expected[0]
            torch.testing.assert_close(got, expected)
            assert ours == eagers
            assert getattr(ours, "__dict__", 0) == getattr(eagers, "__dict__", 0)


def test_changed_before_the_steps() -> None:
    """What the items hold is written in the trace before the iterator is looked at."""

    class Item:
        def __init__(self) -> None:
            self.n = 1

    def f(x: Any, item: Any, it: Any) -> Any:
        item.n += 1
        for each in it:
            x = x * each.n
        return x

    compiled = tatara.compile(f)
    for _ in range(4):
        x, item, second = torch.randn(3), Item(), Item()
        second.n = 3
        it = iter([item, second])
        torch.testing.assert_close(compiled(x, item, it), x * 2 * 3)
        assert item.n == 2 and next(it, None) is None


def test_errors() -> None:
    def at_once(x: Any, it: Any) -> Any:
        for v in it:
            x = x.view(v, -1)
        return x

    def when_it_runs(x: Any, it: Any) -> Any:
        for v in it:
            x = x + x[torch.tensor([v])]
        return x

    def handled(x: Any, it: Any) -> Any:
        try:
            while True:
                x = x * next(it)
        except StopIteration:
            return x

    for f, items in ((at_once, [2, 4, 5, 2]), (when_it_runs, [1, 2, 90, 3]), (handled, [1, 2, 3])):
        compiled = tatara.compile(f)
        for _ in range(3):
            x, ours, eagers = torch.randn(8), iter(items), iter(items)
            (got, error), (expected, eagers_error) = _outcome(compiled, x, ours), _outcome(f, x, eagers)
            assert (error is None) == (eagers_error is None)
            assert error is None or error[0] is eagers_error[0]
            torch.testing.assert_close(got, expected)
            assert list(ours) == list(eagers)


def test_two_that_become_one() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        for v, w in a:
            x = x * 0.5 + v * next(b, (0, 10))[1] - w
        return x

    def cases(i: int) -> tuple[Any, Any]:
        first, second = iter([2, 3, 5, 7, 11]), iter([2, 3, 5, 7, 11])
        if i == 0:
            return enumerate(first), enumerate(second)
        if i == 1:
            return enumerate(first), enumerate(first)
        if i == 2:
            both = enumerate(first)
            return both, both
        return zip(first, second), zip(second, first)

    compiled = tatara.compile(f)
    for i in (0, 1, 2, 3, 0, 1, 2, 3):
        x, ours, eagers = torch.randn(3), cases(i), cases(i)
        torch.testing.assert_close(compiled(x, *ours), f(x, *eagers))
        assert [list(it) for it in ours] == [list(it) for it in eagers]


def test_tensors_that_are_iterated() -> None:
    def f(x: Any, it: Any, other: Any) -> Any:
        for t in it:
            x = x * t + (t is other)
            t.add_(1)
        return x

    compiled = tatara.compile(f)
    for call in range(5):
        tensors = [torch.randn(3) for _ in range(3)]
        copies = [t.clone() for t in tensors]
        x = torch.randn(3)
        which = call % 3
        got = compiled(x, iter(tensors), tensors[which])
        expected = f(x, iter(copies), copies[which])
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(tensors, copies)


def test_tensors_that_require_grad() -> None:
    def f(x: Any, it: Any) -> Any:
        _break(x)
        for t in it:
            x = x * t
        return x.sum()

    compiled = tatara.compile(f)
    for _ in range(4):
        tensors = [torch.randn(3, requires_grad=True), torch.randn(3).clone(), torch.randn(3, requires_grad=True) * 2]
        x, it = torch.randn(3), iter(tensors)
        (expected,) = torch.autograd.grad(f(x, iter(tensors)), tensors[0], retain_graph=True)
        (got,) = torch.autograd.grad(compiled(x, it), tensors[0], retain_graph=True)
        torch.testing.assert_close(got, expected)
        assert next(it, None) is None
    assert {b["reason"] for b in compiled._report()["breaks"]} == {"call of item"}


def test_sizes_that_vary() -> None:
    compiled = tatara.compile(lambda x, it: sum(t.sum() for t in it) + x)
    for n in range(2, 20):
        tensors = [torch.ones(n), torch.ones(n, n)]
        torch.testing.assert_close(compiled(torch.zeros(1), iter(tensors)), torch.full((1,), float(n + n * n)))
    assert len(compiled._report()["recompiles"]) <= 8


def test_training() -> None:
    def f(x: Any, it: Any) -> Any:
        for layer in it:
            x = layer(x).relu()
        return x.sum()

    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    compiled = tatara.compile(f, fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 4)
        f(x, iter(layers)).backward()
        expected = [layer.weight.grad.clone() for layer in layers]
        for layer in layers:
            layer.zero_grad()
        it = iter(layers)
        compiled(x, it).backward()
        torch.testing.assert_close([layer.weight.grad for layer in layers], expected)
        assert next(it, None) is None
        for layer in layers:
            layer.zero_grad()


def test_nothing_is_kept_alive() -> None:
    class Item:
        def __init__(self, n: int) -> None:
            self.n = n

    compiled = tatara.compile(lambda x, it: x * next(it).n)
    item = Item(3)
    reference = weakref.ref(item)
    torch.testing.assert_close(compiled(torch.ones(2), iter([item])), torch.full((2,), 3.0))
    del item
    gc.collect()
    assert reference() is None


def test_other_objects_of_a_module_list() -> None:
    """The rebuilt frame's iterator goes over the very dict: a layer that is put there between two calls is met."""
    model = _Model(4, {1}).eval()
    compiled = tatara.compile(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for i in range(5):
            torch.testing.assert_close(compiled(x), model(x))
            if i == 2:
                model.layers[3] = _Layer(False).eval()
            if i == 3:
                model.layers.append(_Layer(False).eval())


def test_iterator_of_a_dict_across_a_break() -> None:
    def f(x: Any, d: dict[str, int]) -> Any:
        it = iter(d.values())
        x = x * next(it)
        return _break(x), it

    compiled = tatara.compile(f)
    for _ in range(3):
        d = {"a": 2, "b": 3, "c": 4}
        _, it = compiled(torch.ones(2), d)
        assert type(it) is type(iter(d.values()))
        assert next(it) == 3
        d["d"] = 5
        with pytest.raises(RuntimeError, match="changed size"):
            next(it)


def test_threads() -> None:
    model = _Model(6, {2}).eval()
    compiled = tatara.compile(model)
    x = torch.randn(2, 4)
    expected = model(x).detach()
    wrong: list[Any] = []

    def work() -> None:
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(compiled(x), expected, atol=1e-5):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


_STATE = {"k": 0, "scale": 2.0}


@pytest.mark.parametrize("scaled", [False, True])
def test_numbers_that_vary_before_a_step(scaled):
    """A number that varies is an input of the trace, and comes behind what the guard speaks of: its place must stay its own."""

    def function(x: Any) -> Any:
        y = x + 1
        for step in [1, 2, 3]:
            print(end="")  # the graph breaks here
            _STATE["k"] += step
            if scaled:
                _STATE["scale"] *= 1.5
                y = y * _STATE["k"] + _STATE["scale"]
        return torch.sin(y)

    compiled = tatara.compile(function)
    for call in range(6):
        x = torch.full((3,), float(call))
        before = dict(_STATE)
        expected = function(x)
        after = dict(_STATE)
        _STATE.update(before)
        torch.testing.assert_close(compiled(x), expected)
        assert _STATE == after
