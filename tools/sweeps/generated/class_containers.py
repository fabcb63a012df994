"""Objects that existed before the call, wherever a program keeps them: read, changed and returned, around graph breaks.

A program is where the object lives, what it is, how the function gets at it, what it does with it, where the graph breaks,
and what changes from outside between the calls. The harness compares contents and identities of everything after each call.
"""

from __future__ import annotations

import dataclasses
import random

from .harness import Program
from .registry import program_class


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type of object: how to make one, and what is done with one that is called `c`."""

    make: tuple[str, ...]
    reads: tuple[str, ...]  # expressions
    writes: tuple[str, ...]  # statements; {k} is a small number


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an object is: code that puts it there ({v} is an expression for it), and expressions that find it."""

    setup: str
    get: tuple[str, ...]
    put: str = ""  # a statement that puts another one there, from outside
    once: bool = False  # finding it changes something: at most once a call
    kinds: tuple[str, ...] = ()  # only these; empty: any
    inside: str = ""  # lines of the function before it is found


_SEQUENCE_READS = (
    "len(c)", "sum(c)", "c[0]", "c[-1]", "max(c)", "2 in c", "bool(c)", "[v * 2 for v in c]", "tuple(c)", "sorted(c)",
    "[*c]", "list(enumerate(c))", "list(zip(c, c))", "list(map(str, c))", "c.count(1)", "next(iter(c))", "str(c)",
    "min(c, default=0)", "any(v > 2 for v in c)", "list(reversed(c))", "(lambda a, *b: (a, b))(*c)", "f'{c}'",
    "(yes if c else no)", "not c", "c == other", "c != other", "functools.reduce(operator.add, c)", "dict.fromkeys(c)",
    "operator.itemgetter(0)(c)", "operator.contains(c, 1)", "copy.copy(c)", "set(c)", "[v for v in c if v > 1]",
)  # fmt: skip
_MAPPING_READS = (
    "len(c)", "c['a']", "c.get('a')", "c.get('zz', 5)", "'a' in c", "'zz' in c", "list(c)", "list(c.items())",
    "sorted(c)", "sum(c.values())", "[k + 'x' for k in c]", "{**c}", "bool(c)", "list(c.keys())", "max(c.values())",
    "c == other", "str(sorted(c.items()))", "dict(c)", "next(iter(c.values()))", "(yes if c else no)", "tuple(c.items())",
    "[v for k, v in c.items() if k != 'b']", "list(c.keys() & {'a'})", "c.keys() == {'a', 'b'}", "copy.copy(c)",
    "operator.itemgetter('a')(c)", "keywords(**c)", "len(c.items())", "list(reversed(list(c)))", "1 in c.values()",
)  # fmt: skip
_SET_READS = (
    "len(c)", "sum(c)", "2 in c", "sorted(c)", "bool(c)", "max(c)", "c | {9}", "c & {1, 2}", "c - {1}", "c == other",
    "c <= {1, 2, 3, 4}", "[v * 2 for v in sorted(c)]", "(yes if c else no)", "frozenset(c)", "c.isdisjoint({7})",
)  # fmt: skip
_LIST_WRITES = (
    "c.append({k})", "c.extend([{k}, 1])", "c += [{k}]", "c.insert(0, {k})", "c.sort()", "c.reverse()", "c.pop()",
    "c[0] = {k}", "del c[0]", "c[1:2] = [{k}, {k}]", "c.append(len(c))", "c.sort(key=lambda v: -v)", "c.pop(0)",
    "c[-1] += {k}", "c.remove(c[0])", "heapq.heappush(c, {k})", "bisect.insort(c, {k})", "c.extend(v + 1 for v in (1, 2))",
    "c.append(int(c[0]))", "operator.iadd(c, [{k}])", "list.append(c, {k})", "c.__iadd__([{k}])", "a = c.append; a({k})",
    "[c.append(v) for v in (1, {k})]", "random.Random({k}).shuffle(c)", "c.clear(); c.append({k})", "c[:] = [{k}, *c]",
)  # fmt: skip
_DICT_WRITES = (
    "c['a'] = {k}", "c['n{k}'] = {k}", "c.update(b={k})", "c.update({{'z': {k}}})", "c.setdefault('s', {k})",
    "c.pop('b', None)", "c['a'] += {k}", "del c['a']", "c |= {{'q': {k}}}", "c.popitem()", "c['t'] = len(c)",
    "c.clear(); c['a'] = {k}", "[c.setdefault(w, {k}) for w in 'ab']", "c['b'] = c.get('b', 0) + {k}",
)  # fmt: skip
_SET_WRITES = (
    "c.add({k})", "c.discard(1)", "c.update({{{k}, 11}})", "c |= {{{k}}}", "c -= {{1}}", "c.remove(max(c))",
    "c &= {{1, 2, 3, {k}}}", "c ^= {{{k}}}", "c.add(len(c))", "c.clear(); c.add({k})", "c.pop(); c.add({k})",
)  # fmt: skip
_BOX_READS = (
    "c.n", "c.items[0]", "len(c.items)", "c.n + 1", "getattr(c, 'n')", "hasattr(c, 'zz')", "getattr(c, 'zz', 3)", "vars(c)['n']",
    "sorted(vars(c))", "c.total()", "c.double", "type(c).__name__", "c.items == [1, 2]", "isinstance(c, Box)",
    "operator.attrgetter('n')(c)", "c.__dict__['n']", "sum(c.items)", "c == other", "operator.methodcaller('total')(c)",
)  # fmt: skip
_BOX_WRITES = (
    "c.n += {k}", "c.n = {k}", "c.items.append({k})", "c.items = [*c.items, {k}]", "c.fresh = {k}", "setattr(c, 'n', {k})",
    "c.__dict__['n'] = {k}", "vars(c).update(n={k})", "c.bump({k})", "c.items += [{k}]", "c.items[0] = {k}",
    "object.__setattr__(c, 'n', {k})", "c.double = {k}",
)  # fmt: skip

KINDS: dict[str, Kind] = {
    "list": Kind(
        ("[3, 1, 2]", "list(range(4))", "[5]"),
        (*_SEQUENCE_READS, "c[1:]", "c + [1]", "c * 2", "c.index(c[0])", "c.copy()"),
        _LIST_WRITES,
    ),  # fmt: skip
    "dict": Kind(("{'a': 1, 'b': 2}", "dict(a=1, b=2, c=3)"), _MAPPING_READS, _DICT_WRITES),
    "set": Kind(("{1, 2, 3}", "set(range(5))"), _SET_READS, _SET_WRITES),
    "deque": Kind(
        ("collections.deque([3, 1, 2])", "collections.deque([1, 2, 3], maxlen=4)"),
        _SEQUENCE_READS,
        (
            "c.append({k})",
            "c.appendleft({k})",
            "c.pop()",
            "c.popleft()",
            "c.extend([{k}, 1])",
            "c.rotate(1)",
            "c[0] = {k}",
            "c += [{k}]",
            "c.extendleft([{k}])",
            "c.clear(); c.append({k})",
            "c.remove(c[0])",
            "del c[0]",
            "c.reverse()",
            "c.insert(0, c.pop())",
        ),
    ),
    "ordered": Kind(
        ("collections.OrderedDict(a=1, b=2)",),
        _MAPPING_READS,
        (*_DICT_WRITES, "c.move_to_end('a')", "c.move_to_end('b', last=False)", "c.popitem(last=False)"),
    ),
    "defaultdict": Kind(
        ("collections.defaultdict(int, a=1, b=2)",),
        (*_MAPPING_READS, "c['made']", "c.default_factory"),
        (*_DICT_WRITES, "c['new'] += {k}", "c['x']"),
    ),
    "counter": Kind(
        ("collections.Counter('aab')",),
        (*_MAPPING_READS, "c.most_common(1)", "c['none']", "c.total()"),
        ("c['a'] += {k}", "c.update('ab')", "c.subtract('a')", "c['c'] = {k}", "c += collections.Counter('a')"),
    ),
    "box": Kind(("Box()", "Box(7)"), _BOX_READS, _BOX_WRITES),
    "slotted": Kind(
        ("Slotted()",),
        ("c.n", "c.items[0]", "len(c.items)", "getattr(c, 'n')", "hasattr(c, 'zz')", "c.total()"),
        ("c.n += {k}", "c.items.append({k})", "c.items = [{k}]", "setattr(c, 'n', {k})", "c.items += [{k}]"),
    ),
    "namespace": Kind(
        ("types.SimpleNamespace(n=1, items=[1, 2])",),
        (
            "c.n",
            "c.items[0]",
            "len(c.items)",
            "vars(c)['n']",
            "str(c)",
            "c == types.SimpleNamespace(n=1, items=[1, 2])",
            "sorted(vars(c))",
        ),
        ("c.n += {k}", "c.items.append({k})", "c.items = [{k}]", "c.fresh = {k}", "vars(c)['n'] = {k}"),
    ),
    "sublist": Kind(
        ("SubList([3, 1, 2])",),
        (*_SEQUENCE_READS, "c.tag", "c.twice()"),
        (*_LIST_WRITES, "c.tag = {k}", "c.tag += {k}"),
    ),  # fmt: skip
    "subdict": Kind(
        ("SubDict(a=1, b=2)",), (*_MAPPING_READS, "c.tag", "c.twice()"), (*_DICT_WRITES, "c.tag = {k}", "c.tag += {k}")
    ),  # fmt: skip
    "nested": Kind(
        ("[[1, 2], [3]]", "[[1], {'a': 2}, (4, [5])]"),
        (
            "len(c)",
            "c[0]",
            "c[0][0]",
            "str(c)",
            "[len(v) for v in c]",
            "c == [[1, 2], [3]]",
            "[1, 2] in c",
            "c[-1]",
            "copy.copy(c)",
            "copy.deepcopy(c)",
            "[*c[0]]",
            "repr(c)",
            "list(itertools.chain.from_iterable(c))",
            "sum(c[0])",
            "c[0] == [1, 2]",
            "sum(map(len, c))",
            "[v for w in c for v in w]",
            "c.index(c[0])",
            "c.count([1, 2])",
            "sorted(c[0])",
            "tuple(map(tuple, c))",
            "f'{c!r:>30}'",
        ),
        (
            "c[0].append({k})",
            "c.append([{k}])",
            "c[0] += [{k}]",
            "c[0] = [{k}]",
            "c[0][0] = {k}",
            "c.append(c[0])",
            "c.reverse()",
            "[v.append({k}) for v in c[:1]]",
            "c[0].sort()",
            "c.insert(0, c.pop())",
        ),
    ),
    "dict of lists": Kind(
        ("{'a': [1, 2], 'b': [3]}", "{'a': [1], 'b': {'k': [2]}}"),
        (
            "len(c)",
            "c['a'][0]",
            "c['a']",
            "str(c)",
            "[len(v) for v in c.values()]",
            "c == {'a': [1, 2], 'b': [3]}",
            "copy.copy(c)",
            "copy.deepcopy(c)",
            "list(c.items())",
            "[1, 2] in c.values()",
            "c.get('a')",
            "sum(c['a'])",
            "dict(c)['a']",
            "list(itertools.chain.from_iterable(c.values()))",
            "{**c}['a']",
            "sorted(c)",
        ),
        (
            "c['a'].append({k})",
            "c['n'] = [{k}]",
            "c['a'] += [{k}]",
            "c['a'] = [{k}]",
            "c.setdefault('s', []).append({k})",
            "c['b'] = c['a']",
            "c.get('a').append({k})",
            "[v.append({k}) for v in [c['a']]]",
        ),
    ),
    "tuple": Kind(
        ("([1, 2], {'a': 1}, 5)", "([0], {'a': 1}, Box())"),
        (
            "len(c)",
            "c[0]",
            "c[0][0]",
            "c[1]['a']",
            "str(c[:2])",
            "c[0] == [1, 2]",
            "[*c[0]]",
            "c[:2]",
            "c == ([1, 2], {'a': 1}, 5)",
            "copy.deepcopy(c)[0]",
            "copy.copy(c)",
            "[1, 2] in c",
            "sum(c[0])",
            "list(itertools.chain.from_iterable(c[:1]))",
            "c.index(c[0])",
            "first(*c)",
            "c + (1,)",
        ),
        (
            "c[0].append({k})",
            "c[1]['a'] = {k}",
            "c[0][0] = {k}",
            "c[1]['n{k}'] = {k}",
            "c[0].sort()",
            "first(*c).append({k})",
        ),
    ),
    "tensor": Kind(
        ("torch.ones(6)", "torch.arange(6.0)"),
        ("c + 1", "c.sum()", "c[0]", "c * x", "c.shape", "c.dim()", "len(c)", "c[1:]"),
        ("c.add_({k})", "c[0] = {k}", "c.mul_(2)", "c += 1", "c.zero_()", "c.copy_(x)"),
    ),
    "bytearray": Kind(
        ("bytearray(b'abc')",),
        ("len(c)", "c[0]", "bytes(c)", "c == b'abc'", "97 in c", "sum(c)", "c.decode()", "bool(c)"),
        ("c.append({k})", "c[0] = {k}", "c += b'x'", "c.extend(b'yz')", "c.pop()", "c.reverse()"),
    ),
    "array": Kind(
        ("array.array('i', [3, 1, 2])",),
        ("len(c)", "c[0]", "sum(c)", "list(c)", "1 in c", "c.tolist()", "c == other", "max(c)"),
        ("c.append({k})", "c[0] = {k}", "c.extend([{k}, 1])", "c.pop()", "c.reverse()", "c += array.array('i', [{k}])"),
    ),
    "userlist": Kind(
        ("collections.UserList([3, 1, 2])",),
        ("len(c)", "c[0]", "sum(c)", "list(c)", "1 in c", "c.data", "c == [3, 1, 2]"),
        ("c.append({k})", "c[0] = {k}", "c += [{k}]", "c.sort()", "c.data.append({k})", "c.pop()"),
    ),  # fmt: skip
    "userdict": Kind(
        ("collections.UserDict(a=1, b=2)",),
        ("len(c)", "c['a']", "c.get('a')", "list(c)", "'a' in c", "c.data", "dict(c)"),
        ("c['a'] = {k}", "c['n{k}'] = {k}", "c.update(b={k})", "c.data['a'] = {k}", "c.pop('b', None)"),
    ),  # fmt: skip
    "chain": Kind(
        ("collections.ChainMap({'a': 1}, {'b': 2})",),
        ("len(c)", "c['a']", "c['b']", "list(c)", "'b' in c", "c.maps[0]", "dict(c)"),
        ("c['a'] = {k}", "c['n{k}'] = {k}", "c.maps[1]['b'] = {k}", "c.update(b={k})", "c.pop('a', None)"),
    ),  # fmt: skip
    "data": Kind(
        ("Data()", "Data(n=4)"),
        (
            "c.n",
            "c.items",
            "len(c.items)",
            "c == Data()",
            "str(c)",
            "dataclasses.asdict(c)",
            "dataclasses.replace(c).items",
            "[g.name for g in dataclasses.fields(c)]",
        ),
        ("c.n += {k}", "c.items.append({k})", "c.items = [{k}]", "c.items += [{k}]"),
    ),  # fmt: skip
}

PLACES: dict[str, Place] = {
    "a global": Place("P = {v}", ("P", "globals()['P']", "(lambda: P)()", "sys._getframe().f_globals['P']"), "P = {v}"),
    "a class attribute": Place("class K:\n    a = {v}", ("K.a", "K().a", "getattr(K, 'a')", "vars(K)['a']", "K.__dict__['a']",
                                                         "type(K()).a", "operator.attrgetter('a')(K)"), "K.a = {v}"),  # fmt: skip
    "an inherited class attribute": Place("class B0:\n    a = {v}\nclass K(B0):\n    pass\nkk = K()",
                                          ("K.a", "kk.a", "K.__mro__[1].a", "K.__bases__[0].a", "B0.a", "super(K, kk).a",
                                           "kk.__class__.a", "type(kk).__base__.a"), "B0.a = {v}"),  # fmt: skip
    "super": Place("class B0:\n    a = {v}\n    def get(self):\n        return self.a\nclass K(B0):\n    def get(self):\n"
                   "        return super().get()\n    @property\n    def p(self):\n        return super().a\nkk = K()",
                   ("kk.get()", "kk.p", "K().get()"), "B0.a = {v}"),  # fmt: skip
    "a metaclass": Place("class M(type):\n    a = {v}\n    @property\n    def p(cls):\n        return cls.a\nclass K(metaclass=M):\n    pass",
                         ("K.a", "K.p", "type(K).a", "M.a"), "M.a = {v}"),  # fmt: skip
    "a getitem of a class": Place("box_ = {v}\nclass K:\n    def __class_getitem__(cls, key):\n        return box_", ("K[1]", "K['a']"),
                                  "box_ = {v}"),  # fmt: skip
    "an enum value": Place("class E(enum.Enum):\n    A = {v}\n    B = 2", ("E.A.value", "E['A'].value", "E.A._value_", "list(E)[0].value",
                                                                          "next(iter(E)).value", "E.__members__['A'].value",
                                                                          "E._member_map_['A'].value")),  # fmt: skip
    "an enum attribute": Place("class E(enum.Enum):\n    A = 1\n    B = 2\n    def __init__(self, n):\n        self.own = {v}",
                               ("E.A.own", "E['A'].own", "E(1).own", "vars(E.A)['own']"), "E.A.own = {v}"),  # fmt: skip
    "a class's tuple": Place("class K:\n    t = (1, {v}, 2)", ("K.t[1]", "K().t[1]", "[*K.t][1]", "first(*K.t[1:])", "K.t[1:][0]",
                                                             "operator.itemgetter(1)(K.t)", "list(K.t)[1]", "dict(enumerate(K.t))[1]"),
                             "K.t = (1, {v}, 2)"),  # fmt: skip
    "a tuple of tuples": Place("T = ((1, ({v},)), 2)", ("T[0][1][0]", "[v for v in T[0][1]][0]", "next(iter(T[0][1]))")),
    "an instance": Place("h = Box()\nh.a = {v}", ("h.a", "getattr(h, 'a')", "vars(h)['a']", "h.__dict__['a']", "h.__dict__.get('a')",
                                                 "operator.attrgetter('a')(h)", "copy.copy(h).a", "object.__getattribute__(h, 'a')",
                                                 "h.__getattribute__('a')", "types.MethodType(lambda s: s.a, h)()"),
                         "h.a = {v}"),  # fmt: skip
    "a slot": Place("class S:\n    __slots__ = ('a',)\nh = S()\nh.a = {v}", ("h.a", "S.a.__get__(h)", "getattr(h, 'a')", "S.__dict__['a'].__get__(h, S)"),
                    "h.a = {v}"),  # fmt: skip
    "a property": Place("class K:\n    def __init__(self):\n        self._a = {v}\n    @property\n    def a(self):\n        return self._a\nh = K()",
                        ("h.a", "K.a.fget(h)", "K.a.__get__(h)"), "h._a = {v}"),  # fmt: skip
    "a cached property": Place("class K:\n    @functools.cached_property\n    def a(self):\n        return {v}\nh = K()", ("h.a",), "h.__dict__.pop('a', None)"),
    "a descriptor": Place("class D:\n    def __init__(self, v):\n        self.v = v\n    def __get__(self, o, t=None):\n        return self.v\n"
                          "class K:\n    a = D({v})\nh = K()", ("h.a", "K.a", "K.__dict__['a'].v"), "K.__dict__['a'].v = {v}"),  # fmt: skip
    "__getattr__": Place("class K:\n    def __getattr__(self, name):\n        return store_\nstore_ = {v}\nh = K()", ("h.any", "getattr(h, 'b')"),
                         "store_ = {v}"),
    "__getattribute__": Place("class K:\n    def __getattribute__(self, name):\n        return object.__getattribute__(self, '_' + name)\n"
                              "h = K()\nobject.__setattr__(h, '_a', {v})", ("h.a",), "object.__setattr__(h, '_a', {v})"),  # fmt: skip
    "partial arguments": Place("p = functools.partial(first, {v}, k=1)", ("p.args[0]", "p()", "[*p.args][0]", "p.__reduce__()[2][1][0]")),
    "partial keywords": Place("p = functools.partial(keywords, a={v})", ("p.keywords['a']", "p()['a']", "{**p.keywords}['a']"),
                              "p.keywords['a'] = {v}"),
    "a partial of a partial": Place("p = functools.partial(functools.partial(first, {v}), k=2)", ("p.args[0]", "p()")),
    "a bound method": Place("m = Box({v}).me", ("m.__self__.n", "m().n", "m.__func__(m.__self__).n"), "m = Box({v}).me"),
    "a method in C": Place("m = {v}.append", ("m.__self__",), "m = {v}.append", kinds=("list", "deque", "sublist", "nested")),
    "a method in C of a dict": Place("m = {v}.get", ("m.__self__",), "m = {v}.get",
                                     kinds=("dict", "ordered", "defaultdict", "counter", "dict of lists")),  # fmt: skip
    "a default": Place("def g(a={v}):\n    return a", ("g()", "g.__defaults__[0]"), "g.__defaults__ = ({v},)"),
    "a default of its own": Place("", ("own",), "", inside="own = f_own()"),
    "a keyword default": Place("def g(*, a={v}):\n    return a", ("g()", "g.__kwdefaults__['a']"), "g.__kwdefaults__ = dict(a={v})"),
    "a function attribute": Place("def g():\n    return g.a\ng.a = {v}", ("g()", "g.a", "g.__dict__['a']", "vars(g)['a']"), "g.a = {v}"),
    "a closure": Place("def outer():\n    a = {v}\n    def g(new=None):\n        nonlocal a\n        if new is not None:\n            a = new\n"
                       "        return a\n    return g\ng = outer()", ("g()", "g.__closure__[0].cell_contents"), "g({v})"),  # fmt: skip
    "a property's closure": Place("def outer(a):\n    class K:\n        p = property(lambda self: a)\n    return K\nK = outer({v})",
                                  ("K().p", "K.p.fget.__closure__[0].cell_contents", "K.p.fget(None)")),  # fmt: skip
    "a cached function": Place("@functools.lru_cache\ndef g():\n    return {v}", ("g()", "g(*())"), "g.cache_clear()"),
    "a cached function of one": Place("@functools.lru_cache(maxsize=2)\ndef g(k):\n    return {v}", ("g(1)", "g('a')", "g(k=1)", "g(1.5)"),
                                      "g(2); g(3); g(4)"),  # fmt: skip
    "a cached method": Place("class K:\n    @functools.lru_cache(maxsize=None)\n    def g(self):\n        return {v}\nh = K()", ("h.g()", "K.g(h)"),
                             "K.g.cache_clear()"),
    "functools.cache": Place("@functools.cache\ndef g(*a, **k):\n    return {v}", ("g()", "g(1, 2)", "g(a=1)", "g((1, 2))"), "g.cache_clear()"),
    "a cached tuple": Place("@functools.cache\ndef g():\n    return (1, {v})", ("g()[1]",), "g.cache_clear()"),
    "a cache of its own": Place("store_ = {{}}\ndef g(k):\n    if k not in store_:\n        store_[k] = {v}\n    return store_[k]",
                                ("g(1)", "g('a')"), "store_.clear()"),  # fmt: skip
    "a cache by setdefault": Place("store_ = {{}}\ndef g(k):\n    return store_.setdefault(k, {v})", ("g(1)",), "store_.clear()"),
    "a memo": Place("class K:\n    memo = None\n    @classmethod\n    def get(cls):\n        if cls.memo is None:\n            cls.memo = {v}\n"
                    "        return cls.memo", ("K.get()",), "K.memo = None"),  # fmt: skip
    "a dict": Place("D_ = dict(k={v}, l=2)", ("D_['k']", "D_.get('k')", "[*D_.values()][0]", "dict(D_)['k']", "{**D_}['k']",
                                            "list(D_.items())[0][1]", "operator.itemgetter('k')(D_)", "D_.copy()['k']", "keywords(**D_)['k']",
                                            "next(iter(D_.values()))", "D_.setdefault('k', None)", "(D_ | {})['k']"),
                    "D_['k'] = {v}"),  # fmt: skip
    "a list": Place("L_ = [0, {v}]", ("L_[1]", "L_[-1]", "[*L_][1]", "list(L_)[1]", "tuple(L_)[1]", "L_[1:][0]", "next(reversed(L_))", "L_.copy()[1]",
                                    "first(*L_[1:])", "dict(enumerate(L_))[1]", "(L_ + [])[1]", "list(map(lambda v: v, L_))[1]",
                                    "list(filter(lambda v: v != 0, L_))[0]", "list(zip(L_, L_))[1][0]", "L_.__getitem__(1)",
                                    "collections.deque(L_)[1]", "list(itertools.islice(L_, 1, 2))[0]", "list(itertools.chain([], L_))[1]"),
                    "L_[1] = {v}"),  # fmt: skip
    "a list of lists": Place("L_ = [[1], [{v}]]", ("L_[1][0]", "list(itertools.chain.from_iterable(L_))[1]", "[b for a in L_ for b in a][1]",
                                                  "dict(enumerate(L_))[1][0]", "list(zip(*L_))[0][1]", "sum(L_, [])[1]",
                                                  "functools.reduce(lambda a, b: b, L_)[0]"),
                             "L_[1][0] = {v}"),  # fmt: skip
    "a view": Place("D_ = dict(k={v})\nV_ = D_.values()\nI_ = D_.items()", ("list(V_)[0]", "list(I_)[0][1]", "[b for a, b in I_][0]", "next(iter(V_))"),
                    "D_['k'] = {v}"),
    "a mapping proxy": Place("D_ = dict(k={v})\nM_ = types.MappingProxyType(D_)", ("M_['k']", "M_.get('k')", "dict(M_)['k']", "{**M_}['k']",
                                                                                "list(M_.values())[0]", "[b for a, b in M_.items()][0]",
                                                                                "M_.copy()['k']", "keywords(**M_)['k']"), "D_['k'] = {v}"),  # fmt: skip
    "a class's dict": Place("class K:\n    a = {v}\nM_ = K.__dict__", ("M_['a']", "M_.get('a')", "dict(M_)['a']"), "K.a = {v}"),
    "a context variable": Place("var = contextvars.ContextVar('var', default=None)\nvar.set({v})", ("var.get()", "contextvars.copy_context()[var]"),
                                "var.set({v})"),  # fmt: skip
    "a context variable's default": Place("var = contextvars.ContextVar('var', default={v})", ("var.get()",)),
    "another context": Place("var = contextvars.ContextVar('var')\nctx = contextvars.copy_context()\nctx.run(var.set, {v})",
                             ("ctx[var]", "ctx.get(var)", "ctx.run(var.get)"), "ctx.run(var.set, {v})"),  # fmt: skip
    "thread-local data": Place("loc = threading.local()\nloc.a = {v}", ("loc.a", "getattr(loc, 'a')", "vars(loc)['a']", "loc.__dict__['a']"), "loc.a = {v}"),
    "a ChainMap": Place("C_ = collections.ChainMap({{}}, dict(k={v}))", ("C_['k']", "C_.maps[1]['k']", "C_.get('k')", "dict(C_)['k']"), "C_.maps[1]['k'] = {v}"),
    "a UserDict": Place("U_ = collections.UserDict(k={v})", ("U_['k']", "U_.data['k']", "U_.get('k')"), "U_['k'] = {v}"),
    "a named tuple": Place("NT = collections.namedtuple('NT', 'a b')\nnt = NT({v}, 2)", ("nt.a", "nt[0]", "[*nt][0]", "nt._asdict()['a']", "nt._replace(b=1).a",
                                                                                    "NT._make(nt).a", "getattr(nt, 'a')", "NT.a.__get__(nt)"),
                           "nt = NT({v}, 2)"),  # fmt: skip
    "a typed tuple's default": Place("class NT(typing.NamedTuple):\n    b: int = 1\n    a: object = {v}", ("NT().a", "NT._field_defaults['a']", "NT.__new__.__defaults__[1]")),
    "a dataclass default": Place("@dataclasses.dataclass\nclass DC:\n    b: int = 1\n    a: typing.Any = dataclasses.field(default_factory=lambda: shared_)\nshared_ = {v}",
                                 ("DC().a", "dataclasses.replace(DC()).a"), "shared_ = {v}"),  # fmt: skip
    "a frozen dataclass": Place("@dataclasses.dataclass(frozen=True)\nclass DC:\n    a: typing.Any\ndc = DC({v})", ("dc.a", "dataclasses.astuple(DC(dc))[0].a if False else dc.a",
                                                                                                                "dataclasses.replace(dc).a"), "dc = DC({v})"),  # fmt: skip
    "a module": Place("mod = types.ModuleType('mod_of_mine')\nmod.a = {v}", ("mod.a", "getattr(mod, 'a')", "vars(mod)['a']", "mod.__dict__['a']"), "mod.a = {v}"),
    "sys.modules": Place("mod = types.ModuleType('mod_of_mine')\nmod.a = {v}\nsys.modules['mod_of_mine'] = mod", ("sys.modules['mod_of_mine'].a", "imported()",
                                                                                                                "importlib.import_module('mod_of_mine').a"),
                         "mod = types.ModuleType('mod_of_mine'); mod.a = {v}; sys.modules['mod_of_mine'] = mod"),  # fmt: skip
    "a module's __getattr__": Place("mod = types.ModuleType('mod_of_mine')\nstore_ = {v}\nmod.__getattr__ = lambda name: store_", ("mod.anything", "getattr(mod, 'b')"),
                                    "store_ = {v}"),  # fmt: skip
    "a weak reference": Place("strong = {v}\nwr = weakref.ref(strong)", ("wr()", "(wr() or None)"), "strong = {v}; wr = weakref.ref(strong)",
                              kinds=("box", "set", "deque", "sublist", "subdict", "userlist", "data")),  # fmt: skip
    "a weak dict": Place("strong = {v}\nwd = weakref.WeakValueDictionary(k=strong)", ("wd['k']", "wd.get('k')", "list(wd.values())[0]"),
                         "strong = {v}; wd['k'] = strong", kinds=("box", "set", "sublist", "data", "userlist")),  # fmt: skip
    "a weak key": Place("key_ = Box()\nwk = weakref.WeakKeyDictionary()\nwk[key_] = {v}", ("wk[key_]", "wk.get(key_)", "list(wk.values())[0]"), "wk[key_] = {v}"),
    "a deque": Place("Q_ = collections.deque([0, {v}])", ("Q_[1]", "Q_[-1]", "list(Q_)[1]", "[*Q_][1]", "Q_.copy()[1]", "next(reversed(Q_))"), "Q_[1] = {v}"),
    "a rotating deque": Place("Q_ = collections.deque([{v}, {v}])", ("rotated(Q_)",), "", True),
    "an OrderedDict": Place("O_ = collections.OrderedDict(j=1, k={v})", ("O_['k']", "[*O_.values()][-1]", "next(reversed(O_.values()))", "O_.copy()['k']"), "O_['k'] = {v}"),
    "a defaultdict": Place("DD = collections.defaultdict(lambda: {v})", ("DD['k']", "DD.get('k') or DD['k']"), "DD.pop('k', None)"),
    "a subclass of dict": Place("class Dd(dict):\n    def __missing__(self, key):\n        self[key] = {v}\n        return self[key]\nDD = Dd()", ("DD['k']",), "DD.clear()"),
    "a namespace": Place("ns = types.SimpleNamespace(a={v})", ("ns.a", "vars(ns)['a']", "ns.__dict__['a']", "getattr(ns, 'a')", "copy.copy(ns).a"), "ns.a = {v}"),
    "an exception": Place("err = ValueError({v}, 1)", ("err.args[0]", "[*err.args][0]", "caught(err)", "err.__reduce__()[1][0]"), "err.args = ({v}, 1)"),
    "an exception's attribute": Place("err = ValueError(1)\nerr.a = {v}", ("err.a", "vars(err)['a']"), "err.a = {v}"),
    "an exception's cause": Place("err = ValueError(1)\nerr.__cause__ = KeyError({v})", ("err.__cause__.args[0]", "err.__context__ or err.__cause__.args[0]"),
                                  "err.__cause__ = KeyError({v})"),  # fmt: skip
    "a StopIteration": Place("err = StopIteration({v})", ("err.value",), "err.value = {v}"),
    "a slice": Place("sl = slice({v}, None)", ("sl.start",), "sl = slice({v}, None)"),
    "a generator's local": Place("def gen():\n    a = {v}\n    while True:\n        yield a\ngg = gen()\nnext(gg)", ("gg.gi_frame.f_locals['a']", "next(gg)", "gg.send(None)"),
                                 "gg = gen(); next(gg)"),  # fmt: skip
    "itertools.cycle": Place("cy = itertools.cycle([{v}, {v}])", ("next(cy)",), "cy = itertools.cycle([{v}])", True),
    "itertools.repeat": Place("rp = itertools.repeat({v})", ("next(rp)",), "rp = itertools.repeat({v})"),
    "an iterator": Place("src = [{v}, {v}, {v}, {v}, {v}, {v}, {v}, {v}]\nit = iter(src)", ("next(it)", "next(it, None)"), "it = iter(src)", True),
    "a zip": Place("src = [{v}] * 9\nit = zip(src, src)", ("next(it)[0]",), "it = zip(src, src)", True),
    "an iterator of the program's": Place("class It:\n    def __init__(self):\n        self.a = {v}\n    def __iter__(self):\n        return self\n    def __next__(self):\n"
                                          "        return self.a\nit = It()", ("next(it)", "next(iter(it))", "list(itertools.islice(it, 2))[1]"), "it.a = {v}"),  # fmt: skip
    "iter(callable)": Place("st = [{v}]\nit = iter(lambda: st[0], None)", ("next(it)",), "st[0] = {v}"),
    "an itemgetter": Place("H_ = [0, {v}]\nig = operator.itemgetter(1)", ("ig(H_)",), "H_[1] = {v}"),
    "a context manager": Place("class CM:\n    def __init__(self):\n        self.a = {v}\n    def __enter__(self):\n        return self.a\n    def __exit__(self, *a):\n"
                               "        return None\ncm = CM()", ("entered",), "cm.a = {v}", inside="with cm as entered:\n    pass"),  # fmt: skip
    "contextlib": Place("store_ = {v}\n@contextlib.contextmanager\ndef cm():\n    yield store_", ("entered",), "store_ = {v}", inside="with cm() as entered:\n    pass"),
    "nullcontext": Place("cm = contextlib.nullcontext({v})", ("entered",), "cm = contextlib.nullcontext({v})", inside="with cm as entered:\n    pass"),
    "a match": Place("h = Box({v})\nBox.__match_args__ = ('n',)\nD_ = dict(k=h, t=(1, h))", ("found",), "h.n = {v}",
                     inside="match D_:\n    case {'t': (1, Box(found))}:\n        pass"),  # fmt: skip
    "unpacking": Place("L_ = [0, ({v}, 1)]", ("found",), "L_[1] = ({v}, 1)", inside="_, (found, *_) = L_"),
    "a loop": Place("L_ = [{v}]", ("found",), "L_[0] = {v}", inside="for found in L_:\n    pass"),
    "a loop over items": Place("D_ = dict(k={v})", ("found",), "D_['k'] = {v}", inside="for _, found in D_.items():\n    pass"),
    "an attribute of a tensor": Place("tt = torch.ones(2)\ntt.tag = {v}", ("tt.tag", "tt.__dict__['tag']", "getattr(tt, 'tag')"), "tt.tag = {v}"),
    "an attribute of an argument": Place("x.tag = {v}", ("X.tag", "getattr(X, 'tag')"), "x.tag = {v}"),
    "a torch module": Place("net = torch.nn.Linear(2, 2)\nnet.a = {v}", ("net.a", "net.__dict__['a']", "next(net.modules()).a"), "net.a = {v}"),
    "a module's submodule": Place("net = torch.nn.Sequential(torch.nn.ReLU())\nnet[0].a = {v}", ("net[0].a", "[*net][0].a", "next(net.children()).a", "net.get_submodule('0').a",
                                                                                            "dict(net.named_modules())['0'].a"), "net[0].a = {v}"),  # fmt: skip
    "a buffer": Place("net = torch.nn.Module()\nnet.register_buffer('a', {v})", ("net.a", "net._buffers['a']", "next(net.buffers())"), "net.a = {v}", kinds=("tensor",)),
    "a static method's attribute": Place("class K:\n    @staticmethod\n    def s():\n        pass\nK.s.a = {v}", ("K.s.a", "K().s.a", "K.__dict__['s'].__func__.a",
                                                                                                         "K.__dict__['s'].__wrapped__.a"), "K.s.a = {v}"),  # fmt: skip
    "a class method": Place("class K:\n    a = {v}\n    @classmethod\n    def g(cls):\n        return cls.a", ("K.g()", "K().g()", "K.g.__self__.a"), "K.a = {v}"),
    "a wrapped function": Place("def g():\n    pass\ng.a = {v}\n@functools.wraps(g)\ndef w():\n    return w.__wrapped__.a", ("w()", "w.a", "w.__wrapped__.a"), "g.a = {v}"),
    "singledispatch": Place("@functools.singledispatch\ndef g(o):\n    return None\nstore_ = {v}\n@g.register\ndef _(o: int):\n    return store_", ("g(1)",), "store_ = {v}"),
    "a callable": Place("class K:\n    def __init__(self):\n        self.a = {v}\n    def __call__(self):\n        return self.a\nh = K()", ("h()",), "h.a = {v}"),
    "a registry": Place("reg = {{}}\ndef register(fn):\n    reg[fn.__name__] = fn\n    fn.data = {v}\n    return fn\n@register\ndef g():\n    return None", ("reg['g'].data", "[*reg.values()][0].data"),
                        "reg['g'].data = {v}"),  # fmt: skip
    "a builtin": Place("import builtins\nbuiltins.of_mine = {v}", ("of_mine", "builtins.of_mine"), "builtins.of_mine = {v}"),
    "an annotation": Place("class K:\n    a: {v}", ("K.__annotations__['a']",), "K.__annotations__['a'] = {v}"),
    "type.__call__": Place("store_ = {v}\nclass K:\n    def __new__(cls):\n        return store_", ("K()",), "store_ = {v}"),
    "a frozenset of boxes": Place("fs = frozenset([Box({v})])", ("next(iter(fs)).n", "[*fs][0].n", "list(fs)[0].n"), "fs = frozenset([Box({v})])"),
    "a set of boxes": Place("fs = {{Box({v})}}", ("next(iter(fs)).n", "[*fs][0].n"), "fs.clear(); fs.add(Box({v}))"),
    "min of boxes": Place("bs = [Box({v})]", ("min(bs, key=id).n", "sorted(bs, key=lambda b: 0)[0].n", "max(bs, key=lambda b: 1).n"), "bs[0] = Box({v})"),
    "an argument": Place("given = {v}", ("A",), "given = {v}"),
    "an argument's item": Place("inner_ = {v}\ngiven = [inner_, 1]", ("A[0]", "[*A][0]"), "inner_ = {v}; given[0] = inner_"),
}  # fmt: skip

_PRELUDE = """
import array, bisect, collections, contextlib, contextvars, copy, dataclasses, enum, functools, heapq, importlib, itertools
import operator, random, sys, threading, types, typing, weakref
import torch

class Box:
    def __init__(self, n=1):
        self.n = n
        self.items = [1, 2]
    def total(self):
        return sum(self.items)
    @property
    def double(self):
        return self.items * 2
    @double.setter
    def double(self, value):
        self.items[0] = value
    def bump(self, k):
        self.n = k
        self.items.append(k)
    def me(self):
        return self

class Slotted:
    __slots__ = ("n", "items")
    def __init__(self):
        self.n, self.items = 1, [1, 2]
    def total(self):
        return sum(self.items)

class SubList(list):
    tag = 0
    def twice(self):
        return self + self

class SubDict(dict):
    tag = 0
    def twice(self):
        return len(self) * 2

@dataclasses.dataclass
class Data:
    n: int = 1
    items: list = dataclasses.field(default_factory=lambda: [1, 2])

def first(a, *rest, **more):
    return a

def keywords(**more):
    return more

def rotated(q):
    q.rotate(1)
    return q[0]

def caught(error):
    try:
        raise error
    except ValueError as e:
        return e.args[0]

def imported():
    import mod_of_mine
    return mod_of_mine.a

yes, no = 1, 0
log = []
"""

_BREAKS = (
    "print('here', int(x[0]))", "t = x.sum().item()", "if x.sum() > 1000:\n    x = x - 1", "print(len(log))",
    "side(x)", "for _ in range(2):\n    print('turn')\n    x = x + 1", "x = x + float(x.max())",
)  # fmt: skip


def _indent(text: str, by: str = "    ") -> list[str]:
    return [by + line for line in text.splitlines()]


def _body(rng: random.Random, kind: Kind, get: str, place: Place) -> list[str]:
    """The lines of the function: finds the object, reads and writes it, with breaks between."""
    lines: list[str] = []
    out: list[str] = []
    finds = [get]
    if not place.once:
        finds = [rng.choice(place.get) if not place.inside else get for _ in range(3)]
    wrap = rng.random()
    lines += place.inside.splitlines()
    if wrap < 0.1:
        lines.append(f"c = (lambda: {get})()")
    elif wrap < 0.2:
        lines.append(f"c = [{get} for _ in range(1)][0]")
    elif wrap < 0.3 and not place.inside and "A" not in get and "X" not in get:
        lines.append("c = take()")
    else:
        lines.append(f"c = {get}")
    breaks = rng.choice((0, 0, 1, 1, 1, 2, 3))
    steps = ["break"] * breaks
    steps += ["read"] * rng.randint(0, 3) + ["write"] * rng.randint(0, 3) + ["compute"] * rng.randint(0, 2)
    rng.shuffle(steps)
    if not place.once and rng.random() < 0.3:
        steps.insert(rng.randint(0, len(steps)), "find")
    if rng.random() < 0.15:
        steps.insert(rng.randint(0, len(steps)), "store")
    for n, step in enumerate(steps):
        k = rng.randint(2, 9)
        if step == "break":
            lines += rng.choice(_BREAKS).splitlines()
        elif step == "read":
            lines.append(f"r{n} = {rng.choice(kind.reads)}")
            out.append(f"r{n}")
        elif step == "write":
            write = rng.choice(kind.writes).format(k=k)
            if rng.random() < 0.1:
                write = f"if x.shape[0] > 2:\n    {write}"
            elif rng.random() < 0.1:
                write = f"try:\n    {write}\nfinally:\n    x = x + 1"
            lines += write.splitlines()
        elif step == "compute":
            lines.append(rng.choice(("x = x * 2", "x = x + 1", "x = torch.sin(x)", "x = x + len(log)")))
        elif step == "find":
            lines.append(f"d = {finds[1 % len(finds)]}")
            out.append(rng.choice(("d is c", "d", "c is d, d")))
        else:
            lines.append(rng.choice(("log.append(c)", "log.append([c])", "log[:] = [c]")))
    result = rng.choice(("x, c", "c", "x", "x, [c, c]", "{'c': c, 'x': x}", "x, (c,)", "[c], x", "x, lambda: c"))
    lines.append(f"return {result}" + (", " + ", ".join(out) if out else ""))
    return lines


@program_class("containers")
def containers(rng: random.Random) -> Program:
    """One object at one place."""
    place = PLACES[rng.choice(list(PLACES))]
    names = [n for n in KINDS if not place.kinds or n in place.kinds]
    kind = KINDS[rng.choice(names)]
    make = rng.choice(kind.make)
    get = rng.choice(place.get)
    source = [_PRELUDE, "x = torch.arange(6.0)"]
    if place.inside == "own = f_own()":
        source += [f"def f_own(own={make}):", "    return own"]
    source += place.setup.format(v=make).splitlines()
    source.append(f"other = {rng.choice((make, kind.make[0]))}")
    source += ["def side(t):", "    print('side', int(t.sum()))"]
    if not place.inside and "A" not in get and "X" not in get:
        source += ["def take():", f"    return {get}"]
    taken = "A" in place.get or "A[0]" in place.get
    source.append("def f(x" + (", A):" if taken else "):"))
    if any("X" in g for g in place.get):
        source.append("    X = x")
    source += _indent("\n".join(_body(rng, kind, get, place)))
    call = "f(x, given)" if taken else "f(x)"
    steps = [call] * rng.randint(2, 3)
    changes = []
    if place.put:
        changes.append(place.put.format(v=rng.choice(kind.make)))
    if (
        not place.once
        and not place.inside
        and not taken
        and not any("X" in g or "sys._getframe" in g for g in place.get)
    ):
        write = rng.choice(kind.writes).format(k=rng.randint(2, 9))
        changes.append(f"c = {get}\n{write}")
    elif taken:
        changes.append(f"c = {get.replace('A', 'given')}\n" + rng.choice(kind.writes).format(k=3))
    for _ in range(rng.randint(1, 3)):
        steps.append(rng.choice(changes) if changes else "x.add_(1)")
        steps += [call] * rng.randint(1, 2)
    if "mod_of_mine" in place.setup:
        steps.append("sys.modules.pop('mod_of_mine', None)")
    return Program("\n".join(source), tuple(steps))
