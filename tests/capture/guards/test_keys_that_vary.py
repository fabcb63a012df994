"""Ints that vary as keys of OrderedDicts: numbers of hooks, for one. What a dict decides by a key is guarded, and no more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tatara  # noqa: E402
from counters import counts  # noqa: E402

VALUES = [3, 4, 5, 9, 7, 11, 12, 7, 40, 41]


def _read_back(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    r = d[k] * 2
    del d[k]
    return r


def _other_key(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    found = 7 in d
    del d[k]
    return x + (1 if found else 2)


def _other_item(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    r = d[7] if 7 in d else x - 1
    del d[k]
    return r + 1


def _length(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    n = len(d)
    del d[k]
    return x * n


def _two_keys(d: Any, k: Any, x: Any) -> Any:
    d[k], d[k + 1] = x, x + 1
    r = sum(v for v in d.values())
    del d[k]
    return r, k in d, k + 1 in d, d.pop(k + 1)


def _items(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    r = [(a, b * 2) for a, b in (*d.items(),)]
    del d[k]
    return r


def _loop(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    r = [(a, d[a] + 1) for a in d]
    del d[k]
    return r


def _copied(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    e = dict(d)
    del d[k]
    return e.get(7), 7 in e, x + 1


def _spread(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    e = {**d}
    del d[k]
    return list(e), 9 in e, x + 1


def _compared(d: Any, k: Any, x: Any) -> Any:
    d[k] = 1
    same = d == {7: 1}
    del d[k]
    return x + (1 if same else 2)


def _views(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    r = 7 in d.keys(), sorted(d.keys() & {3, 7}), d.get(7) is None  # noqa: SIM118
    del d[k]
    return r, x + 1


def _hash(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    del d[k]
    return hash(k), {k: 1}, x + 1


def _default(d: Any, k: Any, x: Any) -> Any:
    d[k] = x
    r = d.setdefault(7, x + 5), d.get(7)
    d.pop(7)
    d.pop(k, None)
    return r


def _moved(d: Any, k: Any, x: Any) -> Any:
    d[100] = x
    d[k] = x
    d.move_to_end(k, last=False)
    r = list(d)
    del d[k], d[100]
    return r, x + 1


def _missing(d: Any, k: Any, x: Any) -> Any:
    d[k], r = x, None
    try:
        d[k + 1]
    except KeyError as error:
        r = error.args
    del d[k]
    return r, x + 1


def _stays(d: Any, k: Any, x: Any) -> Any:
    d[k] = x + 1
    return x * 2


BODIES = [
    _read_back,
    _other_key,
    _other_item,
    _length,
    _two_keys,
    _items,
    _loop,
    _copied,
    _spread,
    _compared,
    _views,
    _hash,
    _default,
    _moved,
    _missing,
    _stays,
]


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [type(value).__name__, [(type(k).__name__, k, _plain(v)) for k, v in value.items()]]
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(_plain, value)]
    return type(value).__name__, value


@pytest.mark.parametrize("held", [[], [2], [7, 30]])
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_as_eager(body: Callable[..., Any], held: list[int]) -> None:
    def calls(wrap: Callable[..., Any]) -> list[Any]:
        d: OrderedDict[int, Any] = OrderedDict((k, torch.full((2,), float(k))) for k in held)

        class Counter:
            number = 0

        def run(x: Any) -> Any:
            Counter.number += 1
            return body(d, Counter.number, x)

        run, seen = wrap(run), []
        for value in VALUES:
            Counter.number = value
            seen.append(_plain([run(torch.arange(2.0) + value), d]))
        return seen

    assert calls(tatara.compile) == calls(lambda f: f)


def test_hooks_put_on_in_each_call() -> None:
    def calls(wrap: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        net[2].register_forward_hook(lambda m, a, o: o + 1)

        def step(x: Any) -> Any:
            store: dict[str, Any] = {}
            handles = [
                m.register_forward_hook(lambda m, a, o, name=name: store.__setitem__(name, o))
                for name, m in net.named_children()
            ]
            handles.append(net[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,)))
            y = net(x)
            for h in handles:
                h.remove()
            loss = y.sum() + sum(v.abs().mean() for v in store.values())
            net.zero_grad()
            loss.backward()
            return [loss.detach(), *[p.grad.clone() for p in net.parameters()], len(net[0]._forward_hooks)]

        step = wrap(step)
        return [step(torch.arange(6.0).view(2, 3) + i) for i in range(6)]

    expected = calls(lambda f: f)
    with counts() as count:
        got = calls(tatara.compile)
    for a, b in zip(got, expected, strict=True):
        assert a[-1] == b[-1]
        for s, t in zip(a[:-1], b[:-1], strict=True):
            torch.testing.assert_close(s, t)
    assert count["breaks"] == 0
    assert count["graphs"] <= 2


def test_hooks_that_stay() -> None:
    def calls(wrap: Callable[..., Any]) -> list[Any]:
        net, handles = nn.Linear(2, 2), []
        nn.init.ones_(net.weight)
        nn.init.zeros_(net.bias)

        def step(x: Any) -> Any:
            handles.append(net.register_forward_hook(lambda m, a, o: o * 2))
            if len(handles) > 3:
                handles.pop(0).remove()
            return net(x)

        step = wrap(step)
        first = torch.utils.hooks.RemovableHandle.next_id
        return [
            [step(torch.ones(2)).tolist(), [k - first for k in net._forward_hooks], [h.id - first for h in handles]]
            for _ in range(7)
        ]

    assert calls(tatara.compile) == calls(lambda f: f)


def test_breaks_while_hooks_are_on() -> None:
    """What comes behind a break would find other keys in each call: such a function is left to eager after a while."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def f(x: Any) -> Any:
        store: list[Any] = []
        handle = net[0].register_forward_hook(lambda m, a, o: store.append(o))
        h = net(x)
        shown = str(h.tolist())
        y = net(h @ torch.ones(2, 3))
        handle.remove()
        return y, len(shown) > 0, store

    compiled = tatara.compile(f)
    with torch.no_grad():
        for i in range(24):
            x = torch.arange(6.0).view(2, 3) + i
            ours, theirs = compiled(x), f(x)
            torch.testing.assert_close(ours, theirs)
        with counts() as count:
            for _ in range(4):
                torch.testing.assert_close(compiled(x), f(x))
    assert count["graphs"] == 0
