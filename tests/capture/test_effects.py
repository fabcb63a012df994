"""Writes to objects that existed before the call: replayed after the graph, as eager leaves them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from tatara._report import report_of  # noqa: E402

X = torch.arange(12.0).reshape(3, 4)


@pytest.fixture(autouse=True, params=["eager", "tatara"])
def backend(request: Any) -> Iterator[str]:
    tatara.reset()
    with torch.no_grad():
        yield request.param
    tatara.reset()


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
