"""What the programs of class_numbers.py consist of: the names that they use, and statements with numbers in them."""

from __future__ import annotations

PRELUDE = """
import array, bisect, calendar, cmath, collections, contextlib, contextvars, copy, ctypes, dataclasses, datetime, decimal, enum, fractions
import functools, hashlib, heapq, ipaddress, itertools, json, marshal, math, numbers, operator, pickle, random, re, statistics, string
import struct, textwrap, threading, types, typing, uuid, zlib
import numpy as np
import torch

class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    HALF = 0.5
    MINUS = -1

class Level(enum.IntEnum):
    LOW = 2
    MID = 3
    HIGH = 5

class Bits(enum.IntFlag):
    A = 1
    B = 2
    C = 4

class Perm(enum.Flag):
    R = 1
    W = 2

@dataclasses.dataclass(order=True)
class Pair:
    a: typing.Any
    b: typing.Any = 0

@dataclasses.dataclass(frozen=True)
class Frozen:
    a: typing.Any
    b: typing.Any = 0

Point = collections.namedtuple("Point", "p q")

class Typed(typing.NamedTuple):
    p: int
    q: float = 1.5

class Hashed:
    def __init__(self, n): self.n = n
    def __hash__(self): return self.n
    def __eq__(self, other): return isinstance(other, Hashed) and self.n == other.n

class HashOfHash(Hashed):
    def __hash__(self): return hash(self.n)

class Indexed:
    def __init__(self, n): self.n = n
    def __index__(self): return self.n

class Counted:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __bool__(self): return self.n > 2
    def __contains__(self, v): return self.n
    def __length_hint__(self): return self.n

class Sized:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, k): return k

class Truth:
    def __init__(self, n): self.n = n
    def __bool__(self): return self.n

class Numeric:
    def __init__(self, n): self.n = n
    def __int__(self): return self.n
    def __float__(self): return self.n
    def __complex__(self): return self.n
    def __round__(self, digits=None): return self.n
    def __trunc__(self): return self.n
    def __floor__(self): return self.n
    def __ceil__(self): return self.n
    def __abs__(self): return self.n
    def __neg__(self): return self.n
    def __divmod__(self, o): return (self.n, o)
    def __format__(self, spec): return self.n
    def __str__(self): return self.n
    def __repr__(self): return self.n
    def __bytes__(self): return self.n
    def __dir__(self): return self.n
    def __sizeof__(self): return self.n
    def __fspath__(self): return self.n

class Ordered:
    def __init__(self, n): self.n = n
    def __lt__(self, other): return self.n < getattr(other, "n", other)
    def __gt__(self, other): return self.n > getattr(other, "n", other)
    def __eq__(self, other): return self.n == getattr(other, "n", other)
    def __le__(self, other): return self.n
    __hash__ = None

class Missing(dict):
    def __missing__(self, key): return key

class Whole(int):
    pass

class Real(float):
    pass

class Proxy:
    def __init__(self, n): self.n = n
    def __getattr__(self, name): return getattr(object.__getattribute__(self, "n"), name)

class Meta(type):
    def __instancecheck__(cls, o): return type(o) is int
    def __len__(cls): return cls.n

class Checked(metaclass=Meta):
    n = 3

class Descriptor:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, o, t=None): return self if o is None else getattr(o, self.name, 0)
    def __set__(self, o, v):
        if not isinstance(v, (int, float)): raise TypeError(type(v).__name__)
        setattr(o, self.name, v)

class Managed:
    v = Descriptor()

@functools.singledispatch
def kind(v): return "other"
@kind.register
def _(v: int): return "int"
@kind.register
def _(v: float): return "float"
@kind.register
def _(v: bool): return "bool"

@functools.lru_cache(maxsize=None)
def cached(v): return (v, type(v).__name__)

@functools.cache
def cached_two(v, w=0): return v if v == w else (v, w)

def matched(v):
    match v:
        case bool(): return "bool"
        case 0: return "zero"
        case 3: return "three"
        case int(): return "int"
        case float(u): return ("float", u)
        case _: return "none"

def by_key(values, key): return sorted(values, key=key)
def steps(n):
    total = 0
    for k in range(n):
        if k > 6: break
        total += k
    return total
def generate(n, m):
    yield n
    got = yield m
    yield got
def takes(a, /, b=2, *rest, c=None, **more): return (a, b, rest, c, more)
def identity(v): return v
def chosen(n): return [10, 20, 30][n % 3] if isinstance(n, int) else None
def nothing(*args): return None
"""

# As in numbers_expressions.py; `out` and what the prelude has are there.
INDENTED = """
try: int("a", {n})
except ValueError as e: out.append(str(e))
---
acc = {n}
acc += {m}
out.append(acc)
acc *= 2
out.append(acc)
---
acc = [1]
acc *= {i}
out.append(acc)
---
acc = [{n}]
acc[0] += {m}
acc.append({n})
acc.insert({i}, 9)
out.append(acc)
---
acc = list(range(6))
acc[{i}] = {n}
del acc[{i}]
out.append(acc)
---
acc = {{}}
acc[{n}] = 1
acc.setdefault({m}, []).append({n})
out.append(acc)
---
acc = {{1: 2, 2: 3}}
out.append(acc.pop({n}, {m}))
out.append(acc)
---
acc = {{1, 2}}
acc.add({n})
acc.discard({m})
out.append(acc)
---
acc = bytearray(b"abcdef")
acc[{i}] = {i}
acc.append({i})
out.append(acc)
---
acc = array.array("d")
acc.append({n})
out.append(acc)
---
acc = collections.deque([1, 2, 3, 4], maxlen=4)
acc.rotate({i})
acc.append({n})
out.append(acc)
---
acc = []
heapq.heappush(acc, {n})
heapq.heappush(acc, {m})
out.append(acc)
---
acc = [1, 5, 9]
bisect.insort(acc, {n})
out.append(acc)
---
for k in range({i}):
    out.append(k * {n})
---
k = 0
while k < {i}:
    k += 1
out.append(k)
---
if {n} > {m}: out.append("more")
elif {n} == {m}: out.append("same")
else: out.append("less")
---
if {n}: out.append("true")
else: out.append("false")
---
assert {n} != 3, {n}
---
a, *b = [{n}, {m}, 1]
out.append((a, b))
---
a, b = divmod({i} + 7, {i} + 1)
out.append((a, b))
---
g = generate({n}, {m})
out.append(next(g))
next(g)
out.append(g.send({n}))
---
managed = Managed()
managed.v = {n}
out.append(managed.v)
---
out.append({n}) if {n} in state.table else out.append(None)
---
state.count += {n}
out.append(state.count)
---
state.items.append({n})
state.last = {n}
state.table[{n}] = {m}
---
state.items[{i} % len(state.items)] = {m}
---
log.append({n})
---
print({n}, {m})
---
print(f"{{{n}:>6}}", [{n}])
---
raise ValueError({n}, "a")
---
raise KeyError({n})
---
out.append(state.register.setdefault(Hashed({n}), {m}))
---
global top
top = {n}
out.append(top)
---
acc = np.zeros(6)
acc[{i}] = {n}
out.append(acc)
---
acc = torch.zeros(6)
acc[{i}] = {n}
out.append(acc)
---
acc = x.clone()
acc.mul_({n})
acc += {m}
out.append(acc)
---
match ({n}, {m}):
    case (1, v): out.append(("one", v))
    case (int(u), v) if u == v: out.append("same")
    case (u, v): out.append((u, v))
---
match {{"k": {n}}}:
    case {{"k": 3}}: out.append("three")
    case {{"k": v}}: out.append(v)
---
with contextlib.suppress(ValueError, TypeError, OverflowError):
    out.append(struct.pack("i", {n}))
---
total = 0
for v in [{n}, {m}, 3]:
    if isinstance(v, bool): continue
    total = total + v
out.append(total)
---
setattr(state, "last", {n})
out.append(getattr(state, "last"))
---
def inner(k={n}):
    return k + {m}
out.append(inner())
out.append(inner.__defaults__)
---
def inner():
    nonlocal held
    held = {n}
    return held
out.append(inner())
out.append(held)
---
class Local:
    v = {n}
    w: int = {m}
out.append(Local.v)
out.append(Local().w)
---
out.append(np.array([{n}, {m}]) * 2)
out.append(np.float64({n}).item())
---
buffer = bytearray(16)
struct.pack_into("d", buffer, {i}, {n})
out.append(buffer)
---
r = random.Random(0)
r.seed({n} if {n} == {n} is not None else 1)
out.append(r.random())
---
e = Exception({n})
e.add_note(str({m}))
out.append(e.args)
---
context = decimal.getcontext().copy()
context.prec = {i} + 1
out.append(context.prec)
---
t = threading.Thread(target=out.append, args=({n},))
t.start()
t.join()
---
event = threading.Event()
out.append(event.wait({i} / 10000))
---
d = Missing()
out.append(d[{n}])
d.update({{{m}: {n}}})
out.append(dict(d))
---
v = variable.set({n})
out.append(variable.get())
variable.reset(v)
---
x = x * {n}
---
x = x + {m}
---
x = x.reshape(-1)[:{i} + 1] * 1
"""
