"""Numbers inside the arguments (attributes, items) that vary from call to call: one entry for all, as for number arguments."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402


@dataclasses.dataclass
class State:
    step: int = 5
    rate: float = 0.5
    sizes: list[int] = dataclasses.field(default_factory=lambda: [4, 7])
    table: dict[str, Any] = dataclasses.field(default_factory=lambda: {"a": 3, "b": {"c": 11}})
    same: int = 9
    log: list[Any] = dataclasses.field(default_factory=list)


def step(x: Any, s: Any) -> Any:
    s.step += 1
    return x * s.step


def returned(x: Any, s: Any) -> Any:
    s.step += 2
    return x + s.step, s.step, s


def item(x: Any, s: Any) -> Any:
    s.sizes[0] += 1
    return x * s.sizes[0] + s.sizes[-1]


def key(x: Any, s: Any) -> Any:
    s.table["a"] += 3
    s.table["b"]["c"] -= 100
    return x * s.table["a"] - s.table["b"]["c"]


def rate(x: Any, s: Any) -> Any:
    s.rate *= 0.5
    return x * s.rate


def shape(x: Any, s: Any) -> Any:
    s.step += 1
    return x.new_ones(s.step, 2) * x.sum()


def whole(x: Any, s: Any) -> Any:
    s.step += 1
    s.log.append(s.step)
    return x * sum(s.sizes) + len(s.log)


def through_c(x: Any, s: Any) -> Any:
    s.step += 1
    return x * operator.attrgetter("step")(s) + getattr(s, "step") + vars(s)["step"] + max(s.sizes)  # noqa: B009


def copied(x: Any, s: Any) -> Any:
    s.step += 1
    other = copy.copy(s)
    return x * other.step, dataclasses.replace(s, same=3).step, list(s.sizes), dict(s.table)


def text(x: Any, s: Any) -> Any:
    s.step += 1
    return x * 2, f"{s.step} {s}"


def branch(x: Any, s: Any) -> Any:
    s.step += 1
    return x + 1 if s.step < 9 else x * s.step


def breaks(x: Any, s: Any) -> Any:
    s.step += 1
    y = x * s.step
    if float(y.sum()) > -1e9:
        s.step += 1
    return y + s.step


def raises(x: Any, s: Any) -> Any:
    s.step += 1
    try:
        raise ValueError(s.step)
    except ValueError as error:
        return x * error.args[0]


PROGRAMS = [step, returned, item, key, rate, shape, whole, through_c, copied, text, branch, breaks, raises]


def _after(s: Any) -> Any:
    # Types too: no placeholder is left behind.
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, list):
            return [plain(v) for v in value]
        assert type(value) in (int, float)
        assert type(value) is not int or value + 0 is not None and value.bit_length() >= 0
        return (type(value), value)

    return plain(vars(s))


@pytest.mark.filterwarnings("ignore:tatara")
@pytest.mark.parametrize("change", ["itself", "outside", "new"])
@pytest.mark.parametrize("f", PROGRAMS, ids=operator.attrgetter("__name__"))
def test_as_eager(f: Callable[..., Any], change: str) -> None:
    compiled = tatara.compile(f)
    ours, eagers = State(), State()
    for i in range(7):
        x = torch.randn(3)
        got, expected = compiled(x, ours), f(x, eagers)
        if f is returned:
            assert got[2] is ours and got[1] == expected[1] and type(got[1]) is int
            got, expected = got[0], expected[0]
        torch.testing.assert_close(got, expected) if f is not text else None
        if f is text:
            torch.testing.assert_close(got[0], expected[0])
            assert got[1] == expected[1]
        assert _after(ours) == _after(eagers)
        if change == "outside":
            for s in (ours, eagers):
                s.step, s.sizes[1], s.table["a"], s.rate = 3 * i, i, -i, i / 7
        elif change == "new":
            ours, eagers = (State(step=i * i + 2, rate=i / 3, sizes=[i, 2 * i]) for _ in range(2))


@pytest.mark.parametrize("f", [step, item, key, returned], ids=operator.attrgetter("__name__"))
def test_no_recompiles(f: Callable[..., Any]) -> None:
    compiled = tatara.compile(f, fullgraph=True)
    state, x = State(), torch.randn(3)
    compiled(x, state)
    compiled(x, state)
    with counts() as grown:
        for _ in range(10):
            compiled(x, state)
    assert grown["recompiles"] == 0
    assert len(compiled._report()["entries"]) == 2


def test_number_and_list_arguments() -> None:
    compiled = tatara.compile(lambda x, numbers, table: x * numbers[0] + table["n"], fullgraph=True)
    for i in range(8):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x, [i + 5, 2], {"n": i + 20}), x * (i + 5) + i + 20)
    assert len(compiled._report()["entries"]) == 2


def test_float_attribute() -> None:
    compiled = tatara.compile(lambda x, s: x * s.rate + s.rate, fullgraph=True)
    for i in range(8):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x, State(rate=i / 7)), x * (i / 7) + i / 7)
    assert len(compiled._report()["entries"]) == 2


def test_shared_between_arguments() -> None:
    compiled = tatara.compile(lambda x, a, b: (a.__dict__.update(step=a.step + 1), x * b.step)[1])
    one, two = State(), State()
    for i in range(5):
        x = torch.randn(2)
        torch.testing.assert_close(compiled(x, one, one), x * (6 + i))
        torch.testing.assert_close(compiled(x, two, one), x * (6 + i))


def test_dynamic() -> None:
    compiled = tatara.compile(step, dynamic=True)
    state, x = State(), torch.randn(3)
    for i in range(6):
        torch.testing.assert_close(compiled(x, state), x * (6 + i))
    assert len(compiled._report()["entries"]) <= 2


def test_training_beside_numbers() -> None:
    class Step:
        count = 0

    def f(x: Any, w: Any, s: Any) -> Any:
        s.count += 1
        return (x @ w).tanh().sum()

    compiled = tatara.compile(f)
    state = Step()
    for i in range(6):
        x, w = torch.randn(3, 4), torch.randn(4, 2, requires_grad=True)
        with torch.enable_grad():
            compiled(x, w, state).backward()
        ours, w.grad = w.grad, None
        f(x, w, Step()).backward()
        torch.testing.assert_close(ours, w.grad)
        assert state.count == i + 1 and torch.is_grad_enabled()
    entry = compiled._report()["entries"][-1]
    assert entry["hits"] >= 2 and not entry["problem"] and not entry["fallback"]
