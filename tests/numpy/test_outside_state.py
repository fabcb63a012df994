"""State that compiled code reads from outside and that something else changes: never what it was when it was traced."""

from __future__ import annotations

import array
import bisect
import collections
import contextvars
import copy
import csv
import datetime
import decimal
import functools
import gc
import heapq
import io
import itertools
import operator
import os
import queue
import random
import re
import string
import sys
import threading
import time
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import numpy as np
import tatara

GG = 0


class Box:
    def m(self):
        return 1


class Weak(weakref.ref):
    def __call__(self):
        return super().__call__()


def cases():
    out = {}

    def case(name, read, step):  # read() inside, step() outside between calls; read twice outside gives expected
        out[name] = (read, step)

    ba = bytearray(b"\x01\x02")
    case("bytearray", lambda: ba[0], lambda i: ba.__setitem__(0, i + 5))
    ar = array.array("i", [1, 2])
    case("array", lambda: ar[0], lambda i: ar.__setitem__(0, i + 5))
    mv = memoryview(bytearray(b"abc"))
    case("memoryview", lambda: mv[0], lambda i: mv.__setitem__(0, i + 5))
    dq = collections.deque([1, 2])
    case("deque item", lambda: dq[0], lambda i: dq.__setitem__(0, i + 5))
    case("deque len", lambda: len(dq), lambda i: dq.append(1))
    case("deque iter", lambda: sum(dq), lambda i: dq.append(i))
    ct = collections.Counter(a=1)
    case("Counter", lambda: ct["a"], lambda i: ct.update(a=1))
    case("Counter total", lambda: sum(ct.values()), lambda i: ct.update(b=2))
    od = collections.OrderedDict(a=1)
    case("OrderedDict", lambda: od["a"], lambda i: od.__setitem__("a", i + 9))
    case("od order", lambda: list(od).index("a"), lambda i: (od.__setitem__(str(i), 1), od.move_to_end("a")))
    cm = collections.ChainMap({"a": 1})
    case("ChainMap", lambda: cm["a"], lambda i: cm.__setitem__("a", i + 3))
    ud = collections.UserDict(a=1)
    case("UserDict", lambda: ud["a"], lambda i: ud.__setitem__("a", i + 3))
    dd = collections.defaultdict(int, a=1)
    case("defaultdict", lambda: dd["a"], lambda i: dd.__setitem__("a", i + 3))
    cv = contextvars.ContextVar("cv", default=1)
    case("ContextVar", lambda: cv.get(), lambda i: cv.set(i + 3))
    tl = threading.local()
    tl.v = 1
    case("threading.local", lambda: tl.v, lambda i: setattr(tl, "v", i + 3))
    case("environ", lambda: int(os.environ.get("TT", "1")), lambda i: os.environ.__setitem__("TT", str(i + 3)))
    case("getenv", lambda: int(os.getenv("TU", "1")), lambda i: os.environ.__setitem__("TU", str(i + 3)))
    case("decimal prec", lambda: decimal.getcontext().prec, lambda i: setattr(decimal.getcontext(), "prec", i + 9))
    case("recursionlimit", lambda: sys.getrecursionlimit(), lambda i: sys.setrecursionlimit(2000 + i))
    sn = types.SimpleNamespace(a=1)
    case("SimpleNamespace", lambda: sn.a, lambda i: setattr(sn, "a", i + 3))
    case("getattr", lambda: getattr(sn, "a", 0), lambda i: setattr(sn, "a", i + 30))
    case("vars", lambda: vars(sn)["a"], lambda i: setattr(sn, "a", i + 30))
    case("hasattr", lambda: int(hasattr(sn, "b3")), lambda i: setattr(sn, "b" + str(i), 1))
    case("dict len", lambda: len(sn.__dict__), lambda i: setattr(sn, "c" + str(i), 1))
    b = Box()
    b.l = [1, 2]
    case("list in", lambda: int(7 in b.l), lambda i: b.l.append(i + 5))
    case("list index", lambda: b.l.index(2), lambda i: b.l.insert(0, 9))
    case("list sum", lambda: sum(b.l), lambda i: b.l.append(1))
    case("list max", lambda: max(b.l), lambda i: b.l.append(100 + i))
    case("sorted", lambda: sorted(b.l)[0], lambda i: b.l.append(-i))
    case("list count", lambda: b.l.count(1), lambda i: b.l.append(1))
    case("list slice", lambda: b.l[-1:][0], lambda i: b.l.append(i * 3))
    case("list eq", lambda: int(b.l == [1]), lambda i: (b.l.clear(), b.l.append(i)))
    b.s = {1}
    case("set len", lambda: len(b.s), lambda i: b.s.add(i + 10))
    case("set in", lambda: int(2 in b.s), lambda i: b.s.add(i + 1))
    case("set op", lambda: len(b.s | {1, 2}), lambda i: b.s.add(i + 20))
    case("set le", lambda: int(b.s <= {1, 2}), lambda i: b.s.add(i + 2))
    b.d = {"a": 1}
    case("dict get", lambda: b.d.get("z", 0), lambda i: b.d.__setitem__("z", i))
    case("dict keys", lambda: len(b.d.keys()), lambda i: b.d.__setitem__(i, i))
    case("dict items", lambda: sum(v for k, v in b.d.items()), lambda i: b.d.__setitem__(i, i))
    case("dict eq", lambda: int(b.d == {"a": 1}), lambda i: b.d.__setitem__("q", 1))
    case("dict or", lambda: len(b.d | {"x": 1}), lambda i: b.d.__setitem__(("t", i), 1))
    case("dict copy", lambda: len(b.d.copy()), lambda i: b.d.__setitem__(("u", i), 1))
    case("dict(d)", lambda: len(dict(b.d)), lambda i: b.d.__setitem__(("v", i), 1))
    case("dict min", lambda: len(str(min(map(str, b.d)))), lambda i: b.d.__setitem__("", i))
    case("copy.copy", lambda: copy.copy(b.l)[-1], lambda i: b.l.append(i))
    case("deepcopy", lambda: copy.deepcopy(b.l)[-1], lambda i: b.l.append(i + 7))
    case("bisect", lambda: bisect.bisect(b.l, 50), lambda i: b.l.insert(0, 0))
    case("heapq", lambda: heapq.nlargest(1, b.l)[0], lambda i: b.l.append(500 + i))
    case("join", lambda: len("".join(map(str, b.l))), lambda i: b.l.append(1))
    case("str()", lambda: len(str(b.l)), lambda i: b.l.append(1))
    case("repr", lambda: len(repr(b.d)), lambda i: b.d.__setitem__(("w", i), 1))
    case("format", lambda: len(f"{b.l}"), lambda i: b.l.append(1))
    case("tuple()", lambda: tuple(b.l)[-1], lambda i: b.l.append(i))
    case("star", lambda: max(*b.l, 0), lambda i: b.l.append(900 + i))
    case("unpack", lambda: [*b.l][-1], lambda i: b.l.append(i))
    case("zip", lambda: len(list(zip(b.l, b.l))), lambda i: b.l.append(1))
    case("any", lambda: int(any(v == 77 + 1 for v in b.l)), lambda i: b.l.append(77 + i))
    case("reduce", lambda: functools.reduce(lambda p, q: p + q, b.l), lambda i: b.l.append(1))
    case("len", lambda: len(b.l), lambda i: b.l.append(1))
    case("bool", lambda: int(bool(b.e)) if hasattr(b, "e") else -1, lambda i: setattr(b, "e", [] if i % 2 else [1]))
    nA = np.arange(3)
    case("np int()", lambda: int(nA[0]), lambda i: nA.__setitem__(0, i + 4))
    case("np sum", lambda: float(nA.sum()), lambda i: nA.__setitem__(0, i + 4))
    case("np tolist", lambda: nA.tolist()[0], lambda i: nA.__setitem__(0, i + 8))
    case("np arr", lambda: nA, lambda i: nA.__setitem__(0, i + 14))
    sio = io.StringIO("".join(chr(65 + i) for i in range(40)))
    case("tell", lambda: sio.tell(), lambda i: sio.seek(i + 1))
    case("getvalue", lambda: len(sio.getvalue()), lambda i: (sio.seek(0, 2), sio.write("x")))
    q = queue.Queue()
    case("qsize", lambda: q.qsize(), lambda i: q.put(1))
    lk = threading.Lock()
    case("locked", lambda: int(lk.locked()), lambda i: lk.acquire(False) if i % 2 == 0 else lk.release())
    ev = threading.Event()
    case("event", lambda: int(ev.is_set()), lambda i: ev.set() if i % 2 == 0 else ev.clear())
    h = Box()
    h.t = Box()
    r = weakref.ref(h.t)
    case("weakref", lambda: int(r() is None), lambda i: h.__dict__.clear() if i == 1 else None)
    wd = weakref.WeakValueDictionary()
    h2 = [Box()]
    wd["a"] = h2[0]
    case("weakdict", lambda: len(wd), lambda i: h2.clear() if i == 1 else None)

    @functools.lru_cache
    def lc(a):
        return a

    case("cache_info", lambda: lc.cache_info().currsize, lambda i: lc(i))
    cl = type("C", (), {"v": 1})
    case("class attr", lambda: cl.v, lambda i: setattr(cl, "v", i + 3))
    ci = cl()
    case("inst class attr", lambda: ci.v, lambda i: setattr(cl, "v", i + 13))

    class Sl:
        __slots__ = ("v",)

    sl = Sl()
    sl.v = 1
    case("slots", lambda: sl.v, lambda i: setattr(sl, "v", i + 3))

    def fn():
        return 0

    fn.v = 1
    case("func attr", lambda: fn.v, lambda i: setattr(fn, "v", i + 3))

    def g(a=1):
        return a

    case("defaults", lambda: g(), lambda i: setattr(g, "__defaults__", (i + 3,)))
    pt = functools.partial(lambda a, b: a + b, 1)
    case("partial", lambda: pt(2), None)

    class Dy:
        def __getattr__(self, n):
            return dyn[0]

    dyn = [1]
    dy = Dy()
    case("__getattr__", lambda: dy.foo, lambda i: dyn.__setitem__(0, i + 3))

    class Pr:
        @property
        def p(self):
            return dyn[0] + 1

    pr = Pr()
    case("property", lambda: pr.p, lambda i: dyn.__setitem__(0, i + 3))
    mo = types.ModuleType("mo")
    mo.v = 1
    case("module attr", lambda: mo.v, lambda i: setattr(mo, "v", i + 3))
    sys.modules["mo_test"] = mo

    def imp():
        import mo_test

        return mo_test.v

    case("import", imp, lambda i: setattr(mo, "v", i + 13))
    case("gc count", lambda: len(sys.modules) and 1, None)
    case("globals()", lambda: globals()["GG"], lambda i: globals().__setitem__("GG", i))
    case("str.format", lambda: len("{} {!r}".format(b.l, b.d)), lambda i: b.l.append(1))
    case("format !r", lambda: len(f"{b.l!r}"), lambda i: b.l.append(1))
    case("format !s", lambda: len(f"{b.s!s:>99}".strip()), lambda i: b.s.add(i + 100))
    case("format !a", lambda: len(f"{b.d!a}"), lambda i: b.d.__setitem__(("x", i), 1))
    held = [Box(), Box()]
    wm, ws = weakref.WeakMethod(held[0].m), Weak(held[1])
    case("WeakMethod", lambda: int(wm() is None), lambda i: held.__setitem__(0, None) if i == 1 else None)
    case("weakref subclass", lambda: int(ws() is None), lambda i: held.__setitem__(1, None) if i == 1 else None)
    case("locals cell", (lambda cell: lambda: cell[0])(dyn), lambda i: dyn.__setitem__(0, i + 23))
    return out


def star_cases():
    """The same classes of state, read by calls with * and **."""
    out = {}

    def case(name, read, step):
        out[name] = (read, step)

    none, named = (), {}
    ba, ar, mv = bytearray(b"\x01\x02"), array.array("i", [1, 2]), memoryview(bytearray(b"abc"))
    case("bytearray", lambda: operator.getitem(*(ba, 0)), lambda i: ba.__setitem__(0, i + 5))
    case("array", lambda: list(*[ar])[0], lambda i: ar.__setitem__(0, i + 5))
    case("array itself", lambda: max(*ar), lambda i: ar.__setitem__(0, i + 5))
    case("memoryview", lambda: mv.tolist(*none)[0], lambda i: mv.__setitem__(0, i + 5))
    dq = collections.deque([1, 2])
    case("deque count", lambda: dq.count(*(1,)), lambda i: dq.append(1))
    case("deque len", lambda: len(*[dq]), lambda i: dq.append(1))
    case("deque itself", lambda: max(*dq), lambda i: dq.append(i + 3))
    ct = collections.Counter(a=1)
    case("Counter get", lambda: ct.get(*("a", 0), **named), lambda i: ct.update(a=1))
    od = collections.OrderedDict(a=1)
    case("OrderedDict", lambda: od.get(*["a"]), lambda i: od.__setitem__("a", i + 9))
    case("OrderedDict itself", lambda: len("".join([*od])) + len(max(*od, "")), lambda i: od.__setitem__("z" * i, 1))
    cm, ud = collections.ChainMap({"a": 1}), collections.UserDict(a=1)
    case("ChainMap", lambda: cm.get(*("a",)), lambda i: cm.__setitem__("a", i + 3))
    case("UserDict", lambda: ud.get(*("a",), **named), lambda i: ud.__setitem__("a", i + 3))
    cv, cw = contextvars.ContextVar("cv", default=1), contextvars.ContextVar("cw")
    case("ContextVar", lambda: cv.get(*none), lambda i: cv.set(i + 3))
    case("ContextVar default", lambda: cw.get(*(7,)), lambda i: cw.set(i + 3))
    case("ContextVar method", lambda: contextvars.ContextVar.get(*[cv], **named), lambda i: cv.set(i + 13))
    tl = threading.local()
    tl.v = 1
    case("threading.local", lambda: getattr(*(tl, "v")), lambda i: setattr(tl, "v", i + 3))
    case("environ", lambda: int(os.environ.get(*("TT", "1"))), lambda i: os.environ.__setitem__("TT", str(i + 3)))
    case("getenv", lambda: int(os.getenv(**{"key": "TU", "default": "1"})), lambda i: os.environ.update(TU=str(i + 3)))
    case("decimal", lambda: decimal.getcontext(*none).prec, lambda i: setattr(decimal.getcontext(), "prec", i + 9))
    case("recursionlimit", lambda: sys.getrecursionlimit(*none), lambda i: sys.setrecursionlimit(2000 + i))
    sn = types.SimpleNamespace(a=1)
    case("getattr", lambda: getattr(*(sn, "a"), **named), lambda i: setattr(sn, "a", i + 30))
    case("vars", lambda: vars(*[sn])["a"], lambda i: setattr(sn, "a", i + 30))
    case("hasattr", lambda: int(hasattr(*(sn, "b3"))), lambda i: setattr(sn, "b" + str(i), 1))
    b = Box()
    b.l, b.s, b.d = [1, 2], {1}, {"a": 1}
    case("list index", lambda: b.l.index(*(2,)), lambda i: b.l.insert(0, 9))
    case("list index unbound", lambda: list.index(*[b.l, 2]), lambda i: b.l.insert(0, 9))
    case("list wrapper", lambda: b.l.__len__(*none), lambda i: b.l.insert(0, 9))
    case("list count", lambda: b.l.count(*[1]), lambda i: b.l.append(1))
    case("list copy", lambda: b.l.copy(*none)[-1], lambda i: b.l.append(i))
    case("sum", lambda: sum(*(b.l,)), lambda i: b.l.append(1))
    case("sum start", lambda: sum(*(b.l,), **{"start": 2}), lambda i: b.l.append(1))
    case("max", lambda: max(*[b.l], **{"default": 0}), lambda i: b.l.append(100 + i))
    case("items", lambda: max(*b.l), lambda i: b.l.append(200 + i))
    case("sorted", lambda: sorted(*(b.l,), **{"reverse": True})[0], lambda i: b.l.append(300 + i))
    case("len", lambda: len(*(b.l,)), lambda i: b.l.append(1))
    case("list()", lambda: list(*[b.l])[-1], lambda i: b.l.append(i))
    case("tuple()", lambda: tuple(*[b.l])[-1], lambda i: b.l.append(i))
    case("zip", lambda: len(list(zip(*(b.l, b.l)))), lambda i: b.l.append(1))
    case("map", lambda: len(list(map(*(str, b.l)))), lambda i: b.l.append(1))
    case("set len", lambda: len(*[b.s]), lambda i: b.s.add(i + 10))
    case("set op", lambda: len(b.s.union(*[{1, 2}])), lambda i: b.s.add(i + 20))
    case("set le", lambda: int(b.s.issubset(*({1, 10, 20, 11},))), lambda i: b.s.add(i + 10))
    case("set itself", lambda: max(*b.s, 0), lambda i: b.s.add(i + 40))
    case("dict get", lambda: b.d.get(*("z", 0)), lambda i: b.d.__setitem__("z", i))
    case("dict get unbound", lambda: dict.get(*(b.d, "z", 0)), lambda i: b.d.__setitem__("z", i))
    case("dict keys", lambda: len(b.d.keys(*none)), lambda i: b.d.__setitem__(str(i), i))
    case("dict itself", lambda: len(max(*b.d, "")), lambda i: b.d.__setitem__("z" * i, i))
    case("dict keywords", lambda: len(dict(**b.d)), lambda i: b.d.__setitem__("k" + str(i), i))
    case("dict copy", lambda: len(b.d.copy(*none)), lambda i: b.d.__setitem__("u" + str(i), 1))
    case("copy.copy", lambda: copy.copy(*(b.l,))[-1], lambda i: b.l.append(i))
    case("bisect", lambda: bisect.bisect(*(b.l, 50)), lambda i: b.l.insert(0, 0))
    case("heapq", lambda: heapq.nlargest(*(1, b.l))[0], lambda i: b.l.append(500 + i))
    case("join", lambda: len("".join(*[map(str, b.l)])), lambda i: b.l.append(1))
    case("str()", lambda: len(str(*(b.l,))), lambda i: b.l.append(1))
    case("format", lambda: len("{} {k}".format(*(b.l,), **{"k": b.d})), lambda i: b.l.append(1))
    case("reduce", lambda: functools.reduce(*(operator.add, b.l)), lambda i: b.l.append(1))
    n_a = np.arange(3)
    case("np sum", lambda: float(np.sum(*(n_a,), **{"axis": 0})), lambda i: n_a.__setitem__(0, i + 4))
    case("np tolist", lambda: n_a.tolist(*none)[0], lambda i: n_a.__setitem__(0, i + 8))
    case("np itself", lambda: max(*n_a), lambda i: n_a.__setitem__(0, i + 8))
    sio = io.StringIO("".join(chr(65 + i) for i in range(40)))
    case("tell", lambda: sio.tell(*none), lambda i: sio.seek(i + 1))
    q, lk, ev = queue.Queue(), threading.Lock(), threading.Event()
    case("qsize", lambda: q.qsize(*none), lambda i: q.put(1))
    case("locked", lambda: int(lk.locked(*none)), lambda i: lk.acquire(False) if i % 2 == 0 else lk.release())
    case("event", lambda: int(ev.is_set(*none)), lambda i: ev.set() if i % 2 == 0 else ev.clear())
    h = Box()
    h.t, h.u = Box(), Box()
    r, wm = weakref.ref(h.t), weakref.WeakMethod(h.u.m)
    case("weakref", lambda: int(r(*none) is None), lambda i: h.__dict__.pop("t") if i == 1 else None)
    case("WeakMethod", lambda: int(wm(*none) is None), lambda i: h.__dict__.pop("u") if i == 1 else None)

    @functools.lru_cache
    def lc(a):
        return a

    case("cache_info", lambda: lc.cache_info(*none).currsize, lambda i: lc(i))
    cl = type("C", (), {"v": 1})
    case("class attr", lambda: getattr(*(cl, "v")), lambda i: setattr(cl, "v", i + 3))

    def g(*a, k=1, **kw):
        return k + sum(a) + sum(kw.values())

    case("keyword defaults", lambda: g(*none), lambda i: g.__kwdefaults__.update(k=i + 3))
    case("function arguments", lambda: g(*b.l), lambda i: b.l.append(1))
    case("function keywords", lambda: g(**b.n), lambda i: b.n.__setitem__("p" + str(i), 2))
    b.n = {"k": 1}
    pt = functools.partial(lambda *a: sum(a), 1)
    case("partial", lambda: pt(*b.l), lambda i: b.l.append(1))
    case("getter", lambda: operator.itemgetter(-1)(*[b.l]), lambda i: b.l.append(i))
    return out


def mk():
    return {
        "count": itertools.count(2),
        "cycle": itertools.cycle([1, 2, 3]),
        "chain": itertools.chain([1, 2], [3, 4, 5, 6, 7]),
        "islice": itertools.islice(range(100), 3, 50),
        "repeat": itertools.repeat(3, 20),
        "accumulate": itertools.accumulate(range(1, 30)),
        "starmap": itertools.starmap(pow, [(2, i) for i in range(20)]),
        "deque": iter(collections.deque(range(20))),
        "map": map(int, "12345678901234"),
        "file": map(len, io.StringIO("a\nbb\nccc\ndddd\neeeee\n")),
        "finditer": map(lambda m: m.start(), re.finditer("a", "abaababaabaa")),
        "callable_iterator": iter(iter(range(20)).__next__, 19),
        "pairwise": map(sum, itertools.pairwise(range(20))),
        "gen": (i for i in range(20)),
        "dict values": iter({1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}.values()),
        "tee": itertools.tee(range(30))[0],
        "zip_longest": map(max, itertools.zip_longest(range(20), range(20))),
        "takewhile": itertools.takewhile(lambda v: v < 30, range(30)),
        "combi": map(sum, itertools.combinations(range(9), 2)),
        "set": iter({1, 2, 3, 4, 5, 6, 7, 8}),
        "bytes": iter(b"abcdefgh"),
        "mview": iter(memoryview(b"abcdefgh")),
        "array": iter(array.array("i", range(9))),
        "npiter": iter(np.arange(9)),
        "reversed": reversed([1, 2, 3, 4, 5, 6, 7, 8, 9]),
        "reader": map(len, csv.reader(["a,b", "c", "d,e,f"] * 4)),
    }


VOLATILE: dict[str, Callable[[], Any]] = {
    "random": lambda: random.random(),
    "randint": lambda: random.randint(0, 10**9),
    "Random": (lambda R: lambda: R.random())(random.Random(3)),
    "np.random": lambda: np.random.rand(),
    "rng": (lambda R: lambda: R.random())(np.random.default_rng(1)),
    "time": lambda: time.time_ns() % 10**9,
    "perf": lambda: time.perf_counter_ns() % 10**9,
    "now": lambda: datetime.datetime.now().microsecond,
    "uuid": lambda: uuid.uuid4().int % 10**9,
    "urandom": lambda: int.from_bytes(os.urandom(4), "little"),
    "popleft": (lambda D: lambda: D.popleft())(collections.deque(range(99))),
    "list.pop": (lambda D: lambda: D.pop())(list(range(99))),
    "popitem": (lambda D: lambda: D.popitem()[0])(dict.fromkeys(range(99))),
    "read": (lambda D: lambda: ord(D.read(1)))(io.StringIO(string.printable)),
    "queue": (lambda D: ([D.put(i) for i in range(99)], (lambda: D.get()))[1])(queue.Queue()),
    "shuffle": lambda: (lambda L: (random.shuffle(L), L[0])[1])(list(range(1000))),
    "heappop": (lambda D: lambda: heapq.heappop(D))(list(range(99))),
    "set.pop": (lambda D: lambda: D.pop())(set(range(99))),
    "next dict": (lambda D: lambda: next(D))(iter(dict.fromkeys(range(99)))),
    "send": (lambda D: lambda: D.send(None))((i for i in range(99))),
    "thread_time": lambda: time.thread_time_ns() % 10**9,
    "choice": lambda: random.choice(range(10**9)),
    "counter obj": (lambda D: lambda: D.update(a=1) or D["a"])(collections.Counter()),
}
IN_ORDER = ("popleft", "list.pop", "read", "queue", "heappop", "counter obj", "send", "next dict")


@pytest.fixture(autouse=True)
def _same_interpreter_after() -> Any:
    limit, precision = sys.getrecursionlimit(), decimal.getcontext().prec
    yield
    sys.setrecursionlimit(limit)
    decimal.getcontext().prec = precision
    for name in ("TT", "TU"):
        os.environ.pop(name, None)


@pytest.mark.filterwarnings("ignore:tatara")
@pytest.mark.parametrize(
    ("made", "name"), [(cases, name) for name in cases()] + [(star_cases, name) for name in star_cases()]
)
def test_changed_state(made: Callable[[], Any], name: str) -> None:
    read, step = made()[name]

    def f(x: Any) -> Any:
        return x * 2 + read()

    compiled = tatara.compile(f)
    for i in range(6):
        x = np.random.randn(3)
        np.testing.assert_allclose(compiled(x), f(x), rtol=1e-12, atol=1e-12)
        if step is not None:
            step(i)


@pytest.mark.filterwarnings("ignore:tatara")
@pytest.mark.parametrize("name", list(VOLATILE))
def test_other_value_each_time(name: str) -> None:
    read = VOLATILE[name]
    compiled = tatara.compile(lambda x: x * 2 + read())
    seen = [float(compiled(np.zeros(3))[0]) for _ in range(6)]
    assert len(set(seen)) >= 5
    if name in IN_ORDER:
        assert len({round(b - a) for a, b in itertools.pairwise(seen)}) == 1


@pytest.mark.filterwarnings("ignore:tatara")
@pytest.mark.parametrize("how", ["next", "method", "for", "star next", "star method"])
@pytest.mark.parametrize("name", list(mk()))
def test_iterators_move(name: str, how: str) -> None:
    outside, twin = mk()[name], mk()[name]

    def f(x: Any) -> Any:
        y = x + 1
        if how == "next":
            n = next(outside)
        elif how == "method":
            n = outside.__next__()
        elif how == "star next":
            n = next(*[outside])
        elif how == "star method":
            n = outside.__next__(*())
        else:
            for n in outside:  # noqa: B007
                break
        return y * 2 + n

    compiled = tatara.compile(f)
    for _ in range(4):
        x = np.random.randn(4)
        np.testing.assert_allclose(compiled(x), (x + 1) * 2 + next(twin), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:tatara")
@pytest.mark.parametrize("name", list(mk()))
@pytest.mark.parametrize("how", ["python", "c"])
def test_iterators_are_used_up(name: str, how: str) -> None:
    outside, twin = (itertools.islice(mk()[name], 5) for _ in range(2))

    def count(*a: Any) -> int:
        return len(a)

    def f(x: Any) -> Any:
        y = x + 1
        return y * 2 + (count(*outside) if how == "python" else len([*zip(*[outside])]))

    def g(x: Any) -> Any:
        return (x + 1) * 2 + len(list(twin))

    compiled = tatara.compile(f)
    for _ in range(3):
        x = np.random.randn(4)
        np.testing.assert_allclose(compiled(x), g(x), rtol=1e-12, atol=1e-12)


def test_context_variable_that_the_trace_sets() -> None:
    inner, other = contextvars.ContextVar("inner", default=1), contextvars.ContextVar("other", default=5)

    def f(x: Any) -> Any:
        token = inner.set(10)
        a = inner.get() + other.get()  # the second is of the state before
        inner.reset(token)
        return x * a + inner.get() + other.get()

    compiled = tatara.compile(f, fullgraph=True)
    x = np.random.randn(4)
    for i in range(4):
        np.testing.assert_allclose(compiled(x), f(x), rtol=1e-12)
        other.set(20 + i)
        np.testing.assert_allclose(compiled(x), f(x), rtol=1e-12)
        inner.set(30 + i)


def test_context_variable_stays_set() -> None:
    var = contextvars.ContextVar("var", default=0)

    def f(x: Any) -> Any:
        y = x * (var.get() + 1)
        var.set(var.get() + 1)
        return y + var.get()

    compiled = tatara.compile(f)
    x = np.random.randn(4)
    for i in range(4):
        np.testing.assert_allclose(compiled(x), x * (i + 1) + i + 1, rtol=1e-12)
        assert var.get() == i + 1


class Slotted:
    __slots__ = ("__weakref__", "v")


@pytest.mark.parametrize("kind", ["object", "slots", "returned", "method"])
def test_weak_reference_dies(kind: str) -> None:
    target: Any = Slotted() if kind == "slots" else Box()
    target.v = 3
    ref: Any = weakref.WeakMethod(target.m) if kind == "method" else weakref.ref(target)
    dead: list[int] = []
    weakref.finalize(target, dead.append, 1)

    def f(x: Any) -> Any:
        found = ref()
        if found is None:
            return x - 1, None
        if kind == "method":
            return x * found(), None
        return x * found.v, found if kind == "returned" else None

    compiled = tatara.compile(f, fullgraph=True)
    x = np.random.randn(4)
    for _ in range(3):
        value, found = compiled(x)
        np.testing.assert_allclose(value, x * (1 if kind == "method" else 3))
        assert found is (target if kind == "returned" else None)
    recompiles = tatara.stats()["recompiles"]
    assert dead == []
    del found, target
    gc.collect()
    assert dead == [1] and ref() is None
    for _ in range(2):
        np.testing.assert_allclose(compiled(x)[0], x - 1)
    assert tatara.stats()["recompiles"] == recompiles + 1


def test_weak_reference_to_an_array() -> None:
    target = np.arange(4.0)
    ref, dead = weakref.ref(target), []
    weakref.finalize(target, dead.append, 1)

    def f(x: Any) -> Any:
        found = ref()
        return x - 1 if found is None else x * found

    compiled = tatara.compile(f)
    x = np.random.randn(4)
    for _ in range(3):
        np.testing.assert_allclose(compiled(x), x * np.arange(4.0))
        target += 0
    del target
    gc.collect()
    assert dead == [1]
    np.testing.assert_allclose(compiled(x), x - 1)
