"""Writes to objects that existed before the call: replayed after the graph, as eager leaves them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

X = torch.arange(12.0).reshape(3, 4)


pytestmark = pytest.mark.usefixtures("fresh", "no_grad", "backend")


def rounded(values: Any) -> Any:
    return [rounded(v) for v in values] if isinstance(values, list) else round(values, 4)


def plain(value: Any) -> Any:
    """What can be compared with ==, with types; identity of tensors is not in it."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), value.stride(), rounded(value.tolist()), plain(vars(value)))
    if isinstance(value, (list, tuple, collections.deque)):
        return (type(value).__name__, [plain(v) for v in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(plain(k), plain(v)) for k, v in value.items()])
    if isinstance(value, torch.nn.Module):
        return (type(value).__name__, {k: plain(v) for k, v in vars(value).items() if not k.endswith("_hooks")})
    if hasattr(value, "__dict__") and not callable(value):
        return (type(value).__name__, plain(vars(value)))
    return value


class State:
    """Plain attributes."""

    def __init__(self) -> None:
        self.last: Any = None
        self.items: list[Any] = []
        self.table: dict[Any, Any] = {"a": 1}
        self.seen: set[Any] = {1}
        self.ring: collections.deque[Any] = collections.deque([0], maxlen=3)
        self.slots = [torch.zeros(3), torch.ones(3)]
        self.h = torch.zeros(3, 4)
        self.flag = False


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.h = torch.zeros(3, 4)
        self.register_buffer("total", torch.zeros(()))
        self.weight = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.items: list[Any] = []

    def forward(self, x: Any) -> Any:
        raise NotImplementedError


def attribute(m: Any, x: Any) -> Any:
    m.state.last = x * 2
    return m.state.last + 1


def attribute_twice(m: Any, x: Any) -> Any:
    m.state.last = x * 2
    m.state.last = m.state.last + 1
    m.state.extra = 5
    return x - 1


def delete_attribute(m: Any, x: Any) -> Any:
    m.state.extra = x + 1
    y = m.state.extra * 2
    del m.state.extra
    return y


def constant_attribute(m: Any, x: Any) -> Any:
    m.state.flag = True
    return x + 1


def hidden_state(m: Any, x: Any) -> Any:
    m.h = torch.tanh(m.h + x)
    return m.h * 2


def buffer(m: Any, x: Any) -> Any:
    m.total = m.total + x.sum()
    return x / 2


def buffer_in_place(m: Any, x: Any) -> Any:
    m.total += x.sum()
    return x / 2


def parameter_data(m: Any, x: Any) -> Any:
    m.weight = torch.nn.Parameter(m.weight.detach(), requires_grad=False)
    return x * m.weight


def append(m: Any, x: Any) -> Any:
    m.items.append(x + 1)
    m.items.append(3)
    return x


def extend(m: Any, x: Any) -> Any:
    m.items.extend([x, x * 2])
    m.items += (1, 2)
    return x + 1


def insert_pop(m: Any, x: Any) -> Any:
    m.items.insert(0, x + 1)
    m.items.append(7)
    return x * m.items.pop()


def clear_and_fill(m: Any, x: Any) -> Any:
    m.items.clear()
    m.items.append(x * 3)
    return m.items[0]


def list_item(m: Any, x: Any) -> Any:
    m.state.slots[1] = m.state.slots[1] + x.sum()
    m.state.slots[-2] = m.state.slots[0] * 2
    return x + 1


def dict_items(m: Any, x: Any) -> Any:
    m.state.table["y"] = x + 1
    m.state.table[3] = "three"
    m.state.table["a"] = m.state.table["y"] * 2
    return m.state.table["a"]


def dict_methods(m: Any, x: Any) -> Any:
    m.state.table.update({"k": x, "l": 2})
    m.state.table.update(m=x + 1)
    m.state.table.setdefault("n", x * 3)
    del m.state.table["l"]
    return x + len(m.state.table.pop("m"))


def set_add(m: Any, x: Any) -> Any:
    m.state.seen.add("x")
    m.state.seen |= {4, 5}
    m.state.seen.discard(1)
    return x * 2


def ring(m: Any, x: Any) -> Any:
    m.state.ring.append(x + 1)
    return x


def aliases(m: Any, x: Any) -> Any:
    both = [x + 1]
    m.state.last = both
    m.items.append(both)
    both.append(x * 2)
    return both


def through_dict(m: Any, x: Any) -> Any:
    m.state.__dict__["last"] = x + 1
    vars(m.state)["flag"] = 2
    setattr(m.state, "other", x * 2)  # noqa: B010
    return m.state.last


def register(m: Any, x: Any) -> Any:
    m.register_buffer("fresh", x.sum())
    return x + m.fresh


TABLE = [
    attribute,
    attribute_twice,
    delete_attribute,
    constant_attribute,
    hidden_state,
    buffer,
    buffer_in_place,
    append,
    extend,
    clear_and_fill,
    list_item,
    dict_items,
    dict_methods,
    set_add,
    ring,
    aliases,
    through_dict,
]


def run_both(
    f: Callable[..., Any], make: Callable[[], Any], backend: str, calls: int = 4, fullgraph: bool = True
) -> Any:
    compiled = tatara.compile(f, backend=backend, fullgraph=fullgraph)
    ours, eager = make(), make()
    for i in range(calls):
        assert plain(compiled(ours, X + i)) == plain(f(eager, X + i))
        assert plain(ours) == plain(eager)
    return compiled


@pytest.mark.parametrize("f", TABLE, ids=lambda f: f.__name__)
def test_write(f: Any, backend: str) -> None:
    compiled = run_both(f, Holder, backend)
    assert report_of(compiled).breaks == []
    assert len(report_of(compiled).graphs) <= 2


@pytest.mark.parametrize("f", [insert_pop, register, parameter_data], ids=lambda f: f.__name__)
def test_write_that_depends_on_contents(f: Any, backend: str) -> None:
    run_both(f, Holder, backend, fullgraph=False)


@pytest.mark.parametrize("f", TABLE, ids=lambda f: f.__name__)
def test_write_to_argument(f: Any, backend: str) -> None:
    """The same writes to an object that differs from call to call."""
    compiled = tatara.compile(f, backend=backend)

    class Both:
        def __init__(self) -> None:
            self.state = State()
            del self.state.seen, self.state.ring  # guarded by identity
            self.items: list[Any] = []
            self.h = torch.zeros(3, 4)
            self.total = torch.zeros(())

    if f in (set_add, ring):
        pytest.skip("writes to what is guarded by identity")
    for i in range(3):
        ours, eager = Both(), Both()
        assert plain(compiled(ours, X + i)) == plain(f(eager, X + i))
        assert plain(ours) == plain(eager)
    assert report_of(compiled).breaks == []
    assert len(report_of(compiled).graphs) == 1


COUNT = 0
TABLE_OF_COUNTS = {"calls": 0, "rows": 0}


def count_global(m: Any, x: Any) -> Any:
    global COUNT
    COUNT += 1
    return x + 1


def count_in_dict(m: Any, x: Any) -> Any:
    TABLE_OF_COUNTS["calls"] += 1
    TABLE_OF_COUNTS["rows"] += x.shape[0]
    return x * TABLE_OF_COUNTS["calls"]


def count_on_module(m: Any, x: Any) -> Any:
    m.steps += 1
    return x * 2


def count_and_use(m: Any, x: Any) -> Any:
    y = x * m.steps + m.steps
    m.steps = m.steps + 2
    return y


def count_down(m: Any, x: Any) -> Any:
    m.left -= 1
    return x - m.left


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.left = 100

    def forward(self, x: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("make", [Counting])
@pytest.mark.parametrize("f", [count_on_module, count_and_use, count_down, count_global, count_in_dict])
def test_counters_do_not_recompile_for_ever(f: Any, make: Any, backend: str) -> None:
    global COUNT

    def reset() -> None:
        global COUNT
        COUNT = 0
        TABLE_OF_COUNTS.update(calls=0, rows=0)

    compiled = tatara.compile(f, backend=backend, fullgraph=True)
    results = []
    for call in (compiled, f):
        reset()
        state = make()
        outs = [plain(call(state, X + i)) for i in range(9)]
        results.append((outs, state.steps, state.left, COUNT, dict(TABLE_OF_COUNTS)))
        assert type(state.steps) is int
        assert type(COUNT) is int
    assert results[0] == results[1]
    assert len(report_of(compiled).graphs) <= 3
    reset()


def count_and_branch(m: Any, x: Any) -> Any:
    m.steps += 1
    return x * 2 if m.steps % 3 == 0 else x + 1


def test_branch_on_a_counter(backend: str) -> None:
    compiled = tatara.compile(count_and_branch, backend=backend, fullgraph=True)
    ours, eager = Counting(), Counting()
    for i in range(15):
        assert plain(compiled(ours, X + i)) == plain(count_and_branch(eager, X + i))
    assert ours.steps == eager.steps == 15
    assert len(report_of(compiled).graphs) <= 6


class SlotState:
    __slots__ = ("value", "count")

    def __init__(self) -> None:
        self.value = torch.ones(3, 4)
        self.count = 2


def writes_slots(s: Any, x: Any) -> Any:
    s.value = s.value + x
    s.count = "done"
    return s.value * 2


@pytest.mark.smoke
def test_slots(backend: str) -> None:
    compiled = tatara.compile(writes_slots, backend=backend, fullgraph=True)
    ours, eager = SlotState(), SlotState()
    for i in range(4):
        assert plain(compiled(ours, X + i)) == plain(writes_slots(eager, X + i))
        assert plain(ours.value) == plain(eager.value)
        assert ours.count == eager.count == "done"
    assert len(report_of(compiled).graphs) == 1


def test_values_read_from_outside_are_guarded(backend: str) -> None:
    """What is not found by walking the arguments: slots, sets, deques, attributes of functions and tensors."""
    slotted, names, queue = SlotState(), {"a"}, collections.deque([1])

    def helper(y: Any) -> Any:
        return y

    helper.scale = 2  # type: ignore[attr-defined]

    def f(box: Any, t: Any) -> Any:
        y = t * slotted.count + helper.scale + len(box["names"]) + box["queue"][0]  # type: ignore[attr-defined]
        if "b" in box["names"]:
            y = y * 3
        return y + getattr(t, "extra", 0)

    compiled = tatara.compile(f, backend=backend)
    box = {"names": names, "queue": queue}
    t = X.clone()

    def agree() -> None:
        for _ in range(2):
            assert plain(compiled(box, t)) == plain(f(box, t))

    agree()
    slotted.count = 5
    agree()
    helper.scale = 7  # type: ignore[attr-defined]
    agree()
    names.add("b")
    agree()
    queue.appendleft(9)
    agree()
    t.extra = 4
    agree()
    t = X.clone()
    agree()


def writes_tensor_attribute(m: Any, x: Any) -> Any:
    y = x + 1
    y.tag = "made"
    m.weight.uses = getattr(m.weight, "uses", "") + "!"
    return y, y * 2


def test_attributes_of_tensors(backend: str) -> None:
    compiled = tatara.compile(writes_tensor_attribute, backend=backend, fullgraph=True)
    ours, eager = Holder(), Holder()
    for i in range(3):
        a, b = compiled(ours, X + i), writes_tensor_attribute(eager, X + i)
        assert plain(a) == plain(b)
        assert a[0].tag == "made"
        assert ours.weight.uses == eager.weight.uses


def test_function_attributes_and_closures(backend: str) -> None:
    def make() -> Any:
        last: Any = None
        history: list[Any] = []

        def f(x: Any) -> Any:
            nonlocal last
            y = x + 1 if last is None else x + last
            last = y * 2
            history.append(last)
            f.calls = "some"  # type: ignore[attr-defined]
            return y

        return f, lambda: (last, history, getattr(f, "calls", None))

    (ours, our_state), (eager, eager_state) = make(), make()
    compiled = tatara.compile(ours, backend=backend, fullgraph=True)
    for i in range(5):
        assert plain(compiled(X + i)) == plain(eager(X + i))
        assert plain(our_state()) == plain(eager_state())
    assert len(report_of(compiled).graphs) <= 3


class Checked:
    """Writes that run the program's own code."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._value: Any = None

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self.log.append("set")
        self._value = value + 1

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "other":
            self.__dict__["count"] = "one"


def test_setattr_and_properties(backend: str) -> None:
    def f(c: Any, x: Any) -> Any:
        c.value = x * 2
        c.other = c.value
        return c.value

    compiled = tatara.compile(f, backend=backend, fullgraph=True)
    for i in range(3):
        ours, eager = Checked(), Checked()
        assert plain(compiled(ours, X + i)) == plain(f(eager, X + i))
        assert plain(ours) == plain(eager)
    assert len(report_of(compiled).graphs) == 1


@pytest.mark.smoke
def test_graph_break_between_writes(backend: str, capsys: Any) -> None:
    def f(m: Any, x: Any) -> Any:
        m.state.last = x + 1
        print("between")
        m.items.append(m.state.last * 2)
        return m.state.last

    compiled = tatara.compile(f, backend=backend)
    ours, eager = Holder(), Holder()
    for i in range(4):
        assert plain(compiled(ours, X + i)) == plain(f(eager, X + i))
        assert plain(ours) == plain(eager)
    assert len(capsys.readouterr().out.splitlines()) == 8


@pytest.mark.parametrize("what", ["class attribute", "generator", "C descriptor"])
def test_reasons(what: str) -> None:
    class Kind:
        count: Any = 0

    turn = (n for n in range(1, 7))

    def f(x: Any) -> Any:
        if what == "class attribute":
            Kind.count = x
        elif what == "generator":
            x = x + next(turn)
        else:
            x.data = x.clone()
        return x + 1

    compiled = tatara.compile(f, fullgraph=True)
    with pytest.raises(tatara.Unsupported) as error:
        compiled(X.clone())
    wanted = {"class attribute": "type", "generator": "iterator", "C descriptor": "attribute data"}[what]
    assert wanted in str(error.value)
    assert "test_effects.py" in str(error.value)


def test_exception_in_the_graph_leaves_objects_alone(backend: str) -> None:
    """An operator that fails when the graph runs fails before the writes that came after it."""

    def f(m: Any, table: Any, index: Any) -> Any:
        y = table[index]
        m.state.last = y
        return y

    compiled = tatara.compile(f, backend=backend)
    ours = Holder()
    table = torch.arange(4.0)
    compiled(ours, table, torch.tensor([1, 2]))
    compiled(ours, table, torch.tensor([3, 2]))
    with pytest.raises(IndexError):
        compiled(ours, table, torch.tensor([9, 2]))
    assert plain(ours.state.last) == plain(table[torch.tensor([3, 2])])
