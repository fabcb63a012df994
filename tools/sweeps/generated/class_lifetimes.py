"""Objects whose end the program sees: __del__, weak references and their callbacks, generators that are closed, and ids."""

from __future__ import annotations

import random

from .harness import Program
from .registry import program_class

PRELUDE = """
import collections, contextlib, gc, sys, weakref
import torch

log = []

class Mortal:
    def __init__(self, name, inner=None): self.name, self.inner = name, inner
    def __del__(self): log.append(("del", self.name))
    def scaled(self, y): return y * 2

class Child(Mortal):
    pass

class Plain:
    def __init__(self, name, inner=None): self.name, self.inner = name, inner
    def scaled(self, y): return y + 1

def gone(reference): log.append("gone")

def count(n, tag):
    try:
        for k in range(n): yield k
    finally: log.append(("closed", tag))

def made(name): return Mortal(name)
def kept(o, y): return o.scaled(y), o
def used(o, y): return o.scaled(y)
def first(iterable):
    for v in iterable: return v

@contextlib.contextmanager
def managed(tag):
    o = Mortal(tag)
    yield o
    log.append(("left", tag))

class State: pass
state = State(); state.o = Mortal("first"); state.p = Plain("p", Mortal("in p")); state.items = [Mortal("item"), Plain("q")]
state.table = {"a": Mortal("a"), "b": 1}; state.weak = weakref.ref(state.p); state.none = None
state.values = weakref.WeakValueDictionary(); state.values["p"] = state.p
State.shared = Mortal("shared")
"""

# {t}: a tag of its own. Each line leaves y a tensor.
LINES = """
o = {m}
o = {m}; y = o.scaled(y)
o = None
del o; o = None
o = p
p = o
p = {m}
y = used({m}, y)
y, o = kept({m}, y)
y, _ = kept({m}, y)
{m}
made({t})
o = made({t})
o = [{m}, {m}]
o = ({m}, 1)
o = {{"k": {m}}}
o = {c}({t}, {m})
o = Plain({t}, {m})
state.o = {m}
state.o = None
state.o = o
o = state.o
state.none = o
state.items.append({m})
state.items.append(o)
state.items.pop() if state.items else None
state.items.clear()
state.items[0:1] = []
o = state.items.pop(0) if state.items else None
state.table["a"] = {m}
state.table.pop("a", None)
state.table["k"] = o
state.table.clear()
State.shared = {m}
state.p = Plain({t})
state.p.inner = {m}
state.p.inner = None
globals()["top"] = {m}
globals().pop("top", None)
y = state.p.scaled(y)
y = y + len(state.items)
y = y + (state.o is None)
y = state.o.scaled(y) if state.o is not None else y
log.append(state.weak() is None)
state.weak = weakref.ref(state.p)
state.weak = weakref.ref(state.p, gone)
r = weakref.ref(y); log.append(r() is y)
r = weakref.ref(y, gone); y = y + 1; log.append(r() is None)
q = y * 2; r = weakref.ref(q); del q; log.append(r() is None)
q = Plain({t}); r = weakref.ref(q); log.append(r() is q); del q; log.append(r() is None)
q = Plain({t}); r = weakref.ref(q, gone); q = None; log.append(r() is None)
q = Plain({t}); weakref.finalize(q, log.append, ("finalized", {t})); q = None
q = Plain({t}); r = weakref.proxy(q); log.append(r.name == {t}); del q
state.values["k"] = Plain({t}); log.append(len(state.values))
log.append(sorted(state.values.keys()))
q = Plain({t}); q.inner = q; q = None
g = count(2, {t}); log.append(next(g)); g = None
g = count(2, {t}); log.append(next(g))
g = count(2, {t}); log.append(next(g)); del g
log.append(next(count(2, {t})))
log.append(first(count(2, {t})))
for v in count(3, {t}): break
log.append(any(v == 1 for v in count(3, {t})))
log.append(list(zip([1], count(3, {t}))))
with managed({t}) as q: y = q.scaled(y)
with managed({t}): y = y + 1
try: raise ValueError({m})
except ValueError as e: log.append(type(e.args[0]).__name__)
try: used({m}, y)[100]
except IndexError: log.append("index")
log.append(id(o) == id(o))
log.append(id(o) == id(p))
log.append(id(y) == id(x))
log.append(id(state.o) == id(o))
log.append(len({{id(x), id(y), id(state.p)}}))
seen = {{id(state.p)}}; log.append(id(state.p) in seen)
q = y; log.append((id(q) == id(y), q is y))
log.append(id(y) in [id(v) for v in (x, y)])
"""

BREAKS = ["print('here')", "log.append(round(y.sum().item(), 1))", "if y.sum() > 3: y = y - 1", "log.append('a')"]
PLAIN = ["y = y + 1", "y = torch.sin(y)", "y = y * 2 - x", "log.append('b')"]

OUTSIDE = ["state.o = Mortal('out')", "state.o = None", "state.items = [Mortal('new')]", "state.items.clear()", "state.p = Plain('out')",
           "state.table = {}", "State.shared = None", "state.p.inner = Mortal('out')", "x = torch.ones(3)", "out = None", "log.clear()",
           "state.weak = weakref.ref(state.p)"]  # fmt: skip


@program_class("lifetimes")
def lifetimes(rng: random.Random) -> Program:
    """Such objects, made and dropped in a function, and from outside."""
    lines = LINES.strip().split("\n")
    tag = 0

    def line() -> list[str]:
        nonlocal tag
        kind = rng.random()
        if kind < 0.12:
            return [rng.choice(BREAKS)]
        if kind < 0.35:
            return [rng.choice(PLAIN)]
        tag += 1
        at = rng.randrange(len(lines))
        if lines[at].startswith("except"):
            at -= 1
        found = [lines[at]] + ([lines[at + 1]] if lines[at].startswith("try:") else [])
        c = rng.choice(["Mortal", "Mortal", "Child"])
        return [text.format(t=tag, c=c, m=f"{c}('m{tag}')") for text in found]

    def block() -> list[str]:
        found: list[str] = []
        for _ in range(rng.randint(1, 3)):
            found += line()
        return found

    body: list[str] = []
    for _ in range(rng.randint(2, 5)):
        kind = rng.random()
        if kind < 0.1:
            body += [f"for i in range({rng.randint(1, 2)}):", *("    " + text for text in block())]
        elif kind < 0.2:
            body += ["try:", *("    " + text for text in block()), "finally:", *("    " + text for text in block())]
        elif kind < 0.3:
            body += [rng.choice(["if n > 1:", "if n == 2:", "if y.sum() > 0:"]), *("    " + text for text in block())]
        else:
            body += block()
    result = rng.choice(["y", "y", "y, o", "y, p", "y, [o]", "y, state.o"])
    source = [
        PRELUDE,
        "def f(x, n):",
        "    y = x; o = p = g = None",
        *("    " + text for text in body),
        f"    return {result}",
    ]
    source.append("x = torch.linspace(-1, 1, 3)")
    steps = ["f(x, 1)", "out = f(x, 1)", "f(x, 2)", "out = f(x, 1)", rng.choice(OUTSIDE), "f(x, 1)"]
    if rng.random() < 0.5:
        steps += [rng.choice(OUTSIDE), "f(x, 2)"]
    return Program("\n".join(source), tuple(steps))
