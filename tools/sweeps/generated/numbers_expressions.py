"""Expressions with numbers in them, for the programs of class_numbers.py."""

from __future__ import annotations

# `{n}` and `{m}` are numbers; what is computed goes into `out`. `{i}`: an int in 0..5 made of a number.
ANY = """
hash({n}) if {n} == {n} is not None else 0
hash(({n}, {m})) if {n} == {n} is not None and {m} == {m} is not None else 0
hash(frozenset([{n}])) if {n} == {n} is not None else 0
isinstance({n}, int)
isinstance({n}, float)
isinstance({n}, (int, float))
isinstance({n}, bool)
isinstance({n}, numbers.Number)
isinstance({n}, numbers.Integral)
isinstance({n}, typing.SupportsIndex)
isinstance({n}, Checked)
type({n}) is int
type({n}) is float
type({n}) is type({m})
type({n}).__name__
{n}.__class__
{n}.__class__.__name__
{n}.real
{n}.imag
{n}.conjugate()
{n}.as_integer_ratio()
{n}.is_integer()
{n}.bit_length()
{n}.hex()
{n}.__add__({m})
{n}.__radd__({m})
{n}.__lt__({m})
{n}.__eq__({m})
{n}.__hash__() if {n} == {n} is not None else 0
{n}.__bool__()
{n}.__format__("")
{n}.__repr__()
{n}.__index__()
{n}.__int__()
{n}.__float__()
{n}.__divmod__({m})
{n}.__pow__(2)
{n}.__rsub__({m})
{n}.__abs__()
{n}.__neg__()
{n}.__round__()
{n}.__trunc__()
{n}.__reduce_ex__(2)[0].__name__
{n}.__doc__[:10]
sorted(set(dir({n})) ^ set(dir(3)))
int.__add__({n}, {m})
int.__lt__({n}, {m})
int.__repr__({n})
int.__index__({n})
int.bit_length({n})
int.to_bytes({n}, 16, "little", signed=True)
int.__hash__({n})
int.__eq__({n}, {m})
int.__bool__({n})
int.__format__({n}, "d")
float.__add__({n}, {m})
float.__mul__({n}, 2.0)
float.__repr__({n})
float.is_integer({n})
float.hex({n})
float.__hash__({n}) if {n} == {n} else 0
float.__eq__({n}, {m})
float.__int__({n})
object.__repr__({n})[:4]
object.__hash__({n}) is None
object.__eq__({n}, {n})
object.__reduce_ex__({n}, 2)[0].__name__
str({n})
repr({n})
ascii({n})
format({n})
format({n}, ".3g")
format({n}, ">12")
format({n}, "+")
f"{{{n}}}"
f"{{{n}!r:>8}}"
f"{{{n}:10.3f}}"
f"{{{n}:e}}"
f"{{1.5:{{{i}}}}}"
f"{{{n}=}}"
"%s" % {n}
"%d" % {n}
"%r %5s" % ({n}, {m})
"%(a)s" % {{"a": {n}}}
"%.2f" % {n}
"%*d" % ({i}, 7)
"%x" % {n}
"%c" % (65 + {i})
"{{}} {{:>6}}".format({n}, {m})
"{{a:.2f}}".format(a={n})
"{{0!r}}".format({n})
"{{0.real}}".format({n})
"{{0[0]}}".format([{n}])
"{{a}}".format_map({{"a": {n}}})
b"%d" % {n}
str({n}).encode()
string.Template("$a").substitute(a={n})
int({n})
int(str({n}))
float({n})
float(str({n}))
bool({n})
complex({n})
complex({n}, {m})
abs({n})
round({n})
round({n}, {i})
round({n}, -1)
round(2.34567, {i})
divmod({n}, {m})
divmod(7, {n})
pow({n}, 2)
pow({n}, 3, 7)
pow(2, {i}, {n})
pow({i}, {i}, 5)
{n} ** 2
{n} ** 0.5
2 ** {i}
{n} + {m}
{n} - {m}
{n} * {m}
{n} / {m}
{n} // {m}
{n} % {m}
{n} @ {m}
-{n}
+{n}
~{n}
not {n}
{n} & 5
{n} | {m}
{n} ^ 3
{n} << 2
{n} >> 1
1 << {i}
{n} and {m}
{n} or {m}
{n} if {n} else {m}
{n} == {m}
{n} != {m}
{n} < {m}
{n} <= {m} < 9
{n} > "a"
{n} == "a"
{n} != None
{n} == None
{n} < None
{n} == 3.0
{n} < 2.5
{n} == True
{n} == (1 + 0j)
{n} < fractions.Fraction(5, 2)
{n} == decimal.Decimal(3)
{n} < Ordered(3)
Ordered(3) < {n}
{n} == Ordered(2)
Ordered({n}) <= 4
{n} in Counted({m})
{n} is None
{n} is {n}
(lambda v: v is {n})({n})
{n} in (1, 2, 3)
{n} in [{m}, 5]
{n} in {{1, 2, 3}}
{n} in {{1: 2, 3.0: 4}}
{n} in range(10)
{n} in range({i}, 50, 3)
{n} in "abc"
{n} in {{}}.keys()
{n} in {{1: {n}}}.values()
{n} in collections.deque([1, {m}])
{n} in itertools.count(1) if isinstance({n}, int) and 0 < {n} < 99 else None
{n} in np.arange(4)
{n} in array.array("d", [1, 2, 3])
"a" * {i}
{i} * "ab"
"a" * {n} if abs({n}) < 9 else None
[0] * {i}
(1,) * {i}
b"a" * {i}
[1, 2] * {n} if abs({n}) < 9 else None
[10, 11, 12, 13, 14, 15, 16][{i}]
(10, 11, 12, 13, 14, 15, 16)[{i}]
"abcdefgh"[{i}]
b"abcdefgh"[{i}]
range(9)[{i}]
range(9)[{i}:]
[1, 2, 3, 4, 5, 6][{i}:]
[1, 2, 3, 4, 5, 6][:{i}]
"abcdefgh"[{i}:-1]
(1, 2, 3)[::{i} + 1]
[1, 2, 3][{n}]
[1, 2, 3][-{i} // 2]
{{1: "a", 2: "b"}}.get({n})
{{1: "a", 2: "b"}}.get({n}, {m})
{{1: "a", 2.0: "b"}}[{n}]
{{{n}: "a", {m}: "b"}}
{{{n}, {m}, 1}}
frozenset([{n}, {m}])
{{k: {n} for k in range({i})}}
{{{n} + k for k in range(3)}}
dict([({n}, {m})])
dict.fromkeys([{n}, {m}], {n})
dict(a={n})
{{**{{"a": {n}}}, "b": {m}}}
[{n}, *range({i}), {m}]
[k * {n} for k in range({i})]
list(range({i}))
list(range({n}, {n} + 3))
range({n})
range({n}, {m})
range({n}, {n} + 9, {i} + 1)
len(range({n}))
range({n}).stop
range({n}) == range({m})
hash(range({n}))
slice({n})
slice({n}, {m}, {i})
slice({n}).stop
slice({i}).indices(5)
list(reversed(range({i})))
sum([{n}, {m}, 1])
sum([{n}, {m}], {n})
sum([0.1] * {i}, {n})
min({n}, {m})
max({n}, {m}, 2)
max([{n}, {m}], key=lambda v: -v)
min([], default={n})
sorted([{n}, {m}, 2])
sorted([{n}, {m}, 1.5, True], reverse=True)
sorted([3, 1, 2], key=lambda v: v * {n})
sorted([3, 1, 2], key=lambda v: {n})
sorted(["b", "a", "c"], key=lambda v: ({n}, v))
sorted([3, 1, {n}], key=functools.cmp_to_key(lambda a, b: a - b))
sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: {n}))
sorted([3, 1, {n}, "a"])
any([{n}, 0])
all([{n}, {m}])
list(map(str, [{n}, {m}]))
list(map(int, [{n}, {m}]))
list(map(hash, [{n}, {m}]))
list(map(operator.index, [{i}, {i}]))
list(map(lambda v: v + {n}, [1, 2]))
list(map(math.sqrt, [abs({n})]))
list(map(chr, [65 + {i}]))
list(map(type, [{n}, {m}]))
list(map(pow, [{n}], [2]))
list(map(abs, (v for v in [{n}, {m}])))
list(filter(lambda v: {n}, [1, 2]))
list(filter(None, [{n}, 0, {m}]))
list(zip([{n}], [{m}]))
list(zip(range({i}), "abcdef"))
list(enumerate("ab", {n}))
list(enumerate("ab", start={i}))
list(itertools.islice(itertools.count(), {i}))
list(itertools.islice("abcdefg", {i}, None))
list(itertools.islice(itertools.count({n}), 3))
list(itertools.islice(itertools.count({n}, {m}), 3))
list(itertools.repeat({n}, 2))
list(itertools.repeat("a", {i}))
list(itertools.accumulate([{n}, {m}, 1]))
list(itertools.accumulate([1, 2], initial={n}))
list(itertools.accumulate([{n}, {m}], operator.mul))
list(itertools.chain([{n}], ({m},)))
list(itertools.combinations([{n}, {m}, 0], 2))
len(list(itertools.combinations(range(5), {i})))
list(itertools.product([{n}], repeat={i} % 3))
list(itertools.permutations([1, 2, 3], {i} % 3))
list(itertools.takewhile(lambda v: v < {n}, [1, 2, 9]))
list(itertools.compress([1, 2], [{n}, 0]))
list(itertools.starmap(pow, [({n}, 2)]))
list(itertools.pairwise([{n}, {m}, 2]))
[(k, list(g)) for k, g in itertools.groupby([{n}, {n}, {m}])]
[k for k, g in itertools.groupby([1, 2, 3], key=lambda v: {n})]
[list(v) for v in itertools.tee([{n}], {i} % 3)]
itertools.zip_longest([1], [], fillvalue={n}).__next__()
functools.reduce(operator.add, [{n}, {m}])
functools.reduce(lambda a, b: a * b, [{n}, {m}], 1)
functools.partial(pow, {n})(2)
functools.partial(identity, v={n}).keywords
functools.partial(struct.pack, "d")({n})
functools.partial(hash, {n})()
cached({n})
cached_two({n}, w={m})
functools.lru_cache(lambda v: v)({n})
kind({n})
matched({n})
typing.cast(int, {n})
chr(65 + {i})
chr({n})
hex({n})
oct({n})
bin({n})
bytes({i})
bytes([{i}, 2])
bytes([{n}])
bytearray({i})
bytearray(b"abcdefg")[{i}]
memoryview(b"abcdefgh")[{i}]
memoryview(b"abcdefgh")[{i}:].tobytes()
int.from_bytes(bytes([{i}]), "big")
({i}).to_bytes(2, "big")
{n}.to_bytes(16, "big", signed=True)
int("11", {i} + 2)
int("z", {n})
int(Indexed({n}))
[1, 2, 3, 4, 5, 6][Indexed({i})]
range(Indexed({n}))
hex(Indexed({n}))
operator.index(Indexed({n}))
bytes(Indexed({i}))
len(Counted({n}))
len(Counted({i}))
bool(Counted({n}))
bool(Sized({n}))
list(Sized({i}))[:1] if 0 else None
operator.length_hint(Counted({n}))
len(Sized({i})) + 1
list(reversed(Sized({i})))
list(reversed(Sized({n})))[:3] if abs({n}) < 9 else None
1 if Truth({n} > {m}) else 2
bool(Truth({n}))
not Counted({n})
hash(Hashed({n}))
hash(HashOfHash({n})) if {n} == {n} is not None else 0
{{Hashed({n}): 1}}[Hashed({n})]
Hashed({n}) in {{Hashed({m})}}
{{Hashed({n}), Hashed({n})}} == {{Hashed({n})}}
len({{HashOfHash({n}): 1, HashOfHash({m}): 2}})
hash(Frozen({n})) if {n} == {n} is not None else 0
hash((Hashed({n}), 1))
int(Numeric({n}))
float(Numeric({n}))
complex(Numeric({n}))
round(Numeric({n}))
round(Numeric({n}), 2)
math.trunc(Numeric({n}))
math.floor(Numeric({n}))
math.sqrt(Numeric(abs({n})))
abs(Numeric({n}))
-Numeric({n})
divmod(Numeric({n}), 2)
format(Numeric({n}))
str(Numeric({n}))
f"{{Numeric({n})}}"
f"{{Numeric({n})!r}}"
bytes(Numeric({n}))
Numeric({n}).__sizeof__()
struct.pack("d", Numeric({n}))
Whole({i} + 3)
Whole({n}) + 1
Real({n}) * 2
type(Whole({n})).__name__
Missing()[{n}]
collections.defaultdict(lambda: {n})["a"]
collections.Counter([{n}, {n}, {m}])
collections.Counter(a={n})["a"]
list(collections.Counter({{"a": {i}}}).elements())
collections.Counter([{n}, {m}]).most_common(1)
collections.Counter("aab").most_common({i})
collections.OrderedDict([({n}, 1)])
collections.ChainMap({{1: 2}}, {{{n}: 3}})[{n}]
collections.deque([1, 2, 3], maxlen={i})
collections.deque([{n}, {m}]).index({m})
Point({n}, {m})
Point({n}, {m})._replace(p={m})
Point({n}, {m}) < Point({m}, {n})
Point({n}, {m})._asdict()
Typed({n}, {m})
Typed({n})
Pair({n}, {m})
Pair({n}, {m}) < Pair({m}, {n})
Pair({n}) == Pair({m})
Pair({n}, {m}) >= Pair({n}, {n})
dataclasses.asdict(Pair({n}, [{m}]))
dataclasses.astuple(Pair({n}, {m}))
dataclasses.replace(Pair({n}, {m}), a=2)
repr(Pair({n}, {m}))
Frozen({n}, {m}) == Frozen({n}, {m})
Frozen({n}) in {{Frozen({m})}}
Colour({n})
Colour({n}).name
Level({n})
Level({n}) + {m}
Level.MID + {n}
Level.MID * {n}
Level.MID < {n}
{n} < Level.MID
{n} == Level.MID
Level.MID == {n}
{n} in Level._value2member_map_
{{Level.MID: 1}}.get({n})
Level(2 + {i} % 2)
Bits({i})
Bits.A | {n}
Bits({i}) & Bits.B
Bits.A in Bits({i})
Bits({n})
~Bits({i} % 4)
Perm({i} % 4)
Perm({n})
[10, 20, 30, 40, 50, 60, 70][Level.MID - {i} % 3]
enum.IntEnum("Made", {{"X": {n}}}).X.value
struct.pack("d", {n})
struct.pack("<i", {n})
struct.pack("q", {n})
struct.pack("?", {n})
struct.pack(f"{{{i}}}s", b"ab")
struct.pack("bHf", {i}, {i}, {n})
struct.pack_into("d", bytearray(8), 0, {n})
struct.unpack("d", struct.pack("d", {n}))
struct.unpack_from("b", b"abcdefgh", {i})
struct.calcsize(f"{{{i}}}d")
array.array("d", [{n}, {m}])
array.array("i", [{i}])
array.array("q", [{n}])
array.array("i", [1, 2, 3, 4, 5, 6])[{i}]
array.array("i", [1]) * {i}
array.array("d", [1, 2, {n}]).index({n})
datetime.timedelta(seconds={n})
datetime.timedelta({n})
datetime.timedelta(days={i}, hours={n}, milliseconds={m})
datetime.timedelta(hours=2) * {n}
datetime.timedelta(hours=2) / {n}
datetime.timedelta(hours=2) // {n}
{n} * datetime.timedelta(1)
datetime.date(2000 + {i}, 1 + {i}, 3)
datetime.date(2000, {n}, 3)
datetime.datetime(2001, 2, 3, {i}, {i}, {i}, {i})
datetime.datetime(2001, 2, 3).replace(day=1 + {i})
datetime.datetime(2001, 2, 3) + datetime.timedelta(minutes={n})
datetime.time({i}, {i})
datetime.timezone(datetime.timedelta(hours={i}))
datetime.date.fromordinal(700000 + {i})
datetime.date(2001, 2, 3) < {n}
decimal.Decimal({n})
decimal.Decimal({n}) + 1
decimal.Decimal(2) * {n}
decimal.Decimal(2) ** {i}
decimal.Decimal("1.234567").quantize(decimal.Decimal(1).scaleb(-{i}))
decimal.Decimal((0, ({i}, 2), -{i}))
decimal.Decimal(3) == {n}
decimal.Decimal(3) < {n}
decimal.Decimal.from_float({n})
decimal.Context(prec={i} + 1).divide(1, 3)
round(decimal.Decimal("2.34567"), {i})
fractions.Fraction({n})
fractions.Fraction({n}, 3)
fractions.Fraction({n}, {m})
fractions.Fraction(1, 3) + {n}
fractions.Fraction(1, 3) * {n}
{n} - fractions.Fraction(1, 3)
fractions.Fraction(1, 3) ** {i}
fractions.Fraction(1, 3) == {n}
fractions.Fraction.from_float({n})
fractions.Fraction(7, 3).limit_denominator({i} + 1)
random.Random({n} if {n} == {n} else 1).random()
random.Random({i}).randint(0, 9)
random.Random(1).randint({i}, 9)
random.Random(1).randrange({n})
random.Random(1).choice(range({i} + 1))
random.Random(1).sample(range(9), {i})
random.Random(1).uniform({n}, {m})
random.Random(1).gauss({n}, 1)
random.Random(1).getrandbits({i} + 1)
random.Random(1).choices([1, 2], weights=[{i} + 1, 2], k={i})
random.uniform(0, {n})
random.getrandbits({i} + 1)
random.randint(0, {i})
json.dumps({n})
json.dumps({{"a": {n}, "b": [{m}]}})
json.dumps({{{n}: 1}})
json.dumps([1], indent={i})
json.loads(json.dumps([{i}]))
json.dumps({{"k": {n}}}, sort_keys=True, default=str)
pickle.loads(pickle.dumps({n}))
pickle.dumps({n})
pickle.dumps([{n}, {m}])
pickle.dumps({n}, protocol={i})
pickle.loads(pickle.dumps(Point({n}, {m})))[0]  if 0 else None
len(marshal.dumps({n}))
marshal.loads(marshal.dumps([{n}, {m}]))
copy.copy({n})
copy.deepcopy({n})
copy.copy([{n}])
copy.deepcopy([{n}, ({m},)])
copy.deepcopy({{"a": {n}}})
copy.copy(Pair({n}, {m}))
operator.index({n})
operator.add({n}, {m})
operator.mul({n}, 2)
operator.truth({n})
operator.not_({n})
operator.is_({n}, {n})
operator.contains([1, 2], {n})
operator.countOf([{n}, {n}], {n})
operator.indexOf([{n}, {m}], {m})
operator.getitem([1, 2, 3, 4, 5, 6], {i})
operator.itemgetter({i})([1, 2, 3, 4, 5, 6])
operator.itemgetter(0, 1)([{n}, {m}])
operator.attrgetter("real")({n})
operator.methodcaller("__add__", {m})({n})
operator.floordiv({n}, {m})
operator.pow({n}, 2)
operator.neg({n})
operator.inv({n})
operator.lt({n}, {m})
operator.eq({n}, {m})
operator.concat([{n}], [{m}])
operator.iadd({n}, {m})
math.sqrt({n})
math.floor({n})
math.ceil({n})
math.trunc({n})
math.exp(-abs({n}))
math.log({n})
math.log2({n})
math.log({n}, 2)
math.sin({n})
math.atan2({n}, {m})
math.hypot({n}, {m})
math.hypot({n}, {m}, 2)
math.dist([{n}], [{m}])
math.fabs({n})
math.fmod({n}, {m})
math.modf({n})
math.frexp({n})
math.ldexp(1.5, {i})
math.copysign(2, {n})
math.isnan({n})
math.isinf({n})
math.isfinite({n})
math.isclose({n}, {m})
math.isclose({n}, {m}, rel_tol=0.5)
math.gcd({n}, 12)
math.lcm({n}, 4)
math.gcd({n}, {m}, 6)
math.isqrt({n})
math.factorial({i})
math.comb(6, {i})
math.perm({i}, 2)
math.prod([{n}, {m}])
math.prod([2], start={n})
math.fsum([{n}, {m}])
math.degrees({n})
math.pow({n}, 2)
math.gamma({i} + 1)
math.remainder({n}, 3)
math.nextafter({n}, 0)
math.ulp({n})
math.cbrt({n})
cmath.sqrt({n})
cmath.phase({n})
cmath.polar({n})
cmath.isnan({n})
statistics.mean([{n}, {m}])
statistics.median([{n}, {m}, 2])
statistics.pstdev([{n}, 2])
statistics.mode([{n}, {n}, 1])
heapq.nsmallest({i}, [3, 1, 2])
heapq.nlargest(2, [{n}, {m}, 1])
heapq.heappushpop([1, 5], {n})
list(heapq.merge([{n}], [{m}]))
bisect.bisect([1, 2, 5], {n})
bisect.bisect_left([{n}, 99], 3)
bisect.bisect([1, 2, 5], 2, {i} % 3)
bisect.bisect([1, 2, 5], {n}, key=lambda v: v + {m})
zlib.crc32(b"a", {i})
zlib.compress(b"aaaa", {i})
hashlib.md5(bytes([{i}])).hexdigest()[:6]
ctypes.c_int({n}).value
ctypes.c_double({n}).value
ctypes.c_ubyte({n}).value
ctypes.c_bool({n}).value
list((ctypes.c_int * 3)({i}, {i}, 1))
list((ctypes.c_int * ({i} + 1))())
uuid.UUID(int={i})
uuid.UUID(int={n})
str(ipaddress.ip_address({i} + 1))
calendar.monthrange(2000, {i} + 1)
calendar.isleap({i} + 2000)
re.sub("a", str({n}), "bab")
re.sub("a", "x", "aaaa", {i})
re.split(",", "a,b,c", maxsplit={i})
re.match("(a)(b)(c)", "abc").group({i} % 4)
re.compile("a").sub(lambda m: str({n}), "bab")
textwrap.shorten("hello world again", {i} + 12)
textwrap.fill("aa bb cc", {i} + 2)
"abc".center({i} + 5)
"abc".ljust({i}, "x")
"7".zfill({i})
"a\\tb".expandtabs({i})
"a,b,c".split(",", {i})
"aXbX".replace("X", "-", {i})
"abcabc".find("c", {i})
"abc".startswith("b", {i})
"abcabc".count("a", {i})
"-".join(str(v) for v in [{n}, {m}])
"-".join([{n}])
[1, 2, 3].index({n})
[{n}, {m}, 1].count({n})
[1, 2, 3, 4, 5, 6].pop({i})
(1, {n}).index({n})
[1, {n}] == [1, {m}]
[1, {n}] < [1, {m}]
({n}, 1) > ({m}, 2)
(1, {n}) == (1, {n})
{{"a": {n}}} == {{"a": {m}}}
{{{n}}} == {{{m}}}
{{{n}}} & {{1, 2, 3}}
{{{n}}} <= {{1, 2, 3}}
{{1, 2, 3}} - {{{n}}}
frozenset([{n}]) | {{{m}}}
{{{n}: 1}}.keys() & {{1, 2, 3}}
np.int64({n})
np.float32({n})
np.float64({n}) * {m}
np.int64({i}) + {n}
np.int32(3) * {n}
np.float64(2) < {n}
np.array([{n}, {m}])
np.array({n})
np.array([{n}]).dtype
np.asarray({n}).shape
np.zeros({i})
np.zeros(({i}, 2)).shape
np.arange({i})
np.arange({n}, {n} + 3)
np.full(2, {n})
np.linspace(0, {n}, 3)
np.eye({i})
np.array([1.0, 2.0]) * {n}
np.array([1, 2]) + {n}
np.array([1, 2, 3, 4, 5, 6])[{i}]
np.array([1, 2, 3, 4, 5, 6])[{i}:]
np.array([1, 2, 3]).reshape(-1, 1).sum({i} % 2)
np.sqrt(abs({n}))
np.add({n}, {m})
np.clip({n}, 0, 2)
np.isscalar({n})
np.isnan({n})
np.result_type({n})
np.random.RandomState({i}).randint(9)
np.random.default_rng({i}).integers(9)
np.random.randint(0, {i} + 1)
np.bool_({n})
np.int8({i})
np.datetime64("2001-01-01") + {i}
np.timedelta64({i}, "D")
np.dtype((np.int32, {i} + 1))
np.repeat([1, 2], {i})
np.tile([1], {i})
torch.tensor({n})
torch.tensor([{n}, {m}])
torch.tensor({n}, dtype=torch.float64)
torch.as_tensor([{n}])
torch.full((2,), {n})
torch.zeros({i})
torch.ones({i}, 2)
torch.arange({i})
torch.arange({n}, {n} + 2)
torch.linspace(0, {n}, 3)
torch.scalar_tensor({n})
torch.Size([{i}, 2])
torch.Size([{n}])
torch.is_tensor({n})
torch.result_type(x, {n})
torch.can_cast(torch.float32, torch.int32) and {n}
torch.Generator().manual_seed({i}).initial_seed()
torch.eye({i})
torch.finfo(torch.float32).max > {n}
torch.iinfo(torch.int32).max > {n}
x + {n}
x * {n}
{n} - x
x / {n}
x // {n}
x % {n}
x ** {i}
x < {n}
x == {n}
x.add({n})
torch.add(x, {n}, alpha={m})
torch.add(x, x, alpha={n})
torch.clamp(x, {n}, 9)
torch.clamp(x, max={n})
x.clamp_min({n})
torch.where(x > 0, {n}, x)
torch.where(x > 0, {n}, {m})
torch.pow(x, {i})
torch.pow(2, x) * {n}
torch.fmod(x, {n})
torch.maximum(x, torch.tensor({n}, dtype=x.dtype))
torch.nn.functional.leaky_relu(x, {n})
torch.nn.functional.dropout(x, 0.0 if {n} else 0.5, False)
torch.nn.functional.pad(x, (0, {i}))
torch.nn.functional.pad(x, (1, 0), value={n})
x.sum({i} % 2)
x.roll({i})
x.roll({n}, 0)
x.narrow(0, 0, {i} % 3) * 1
x[{i} % 3] * 1
x[:{i}] * 1
x[{i}:] * 1
x[{n}] * 1
x[..., {i} % 4] * 1
x.select(1, {i} % 4) * 1
x.reshape({i} % 1 + 12)
x.repeat({i} + 1, 1).shape
x.expand(({i} % 2) + 1, 3, 4).shape
x.new_zeros({i})
x.new_full((2,), {n})
x.fill_({n})
x.masked_fill(x > 0, {n})
x.tril({i} - 2)
x.unsqueeze({i} % 3).shape
x.transpose(0, {i} % 2).shape
x.chunk({i} + 1)[0] * 1
x.split({i} + 1)[0] * 1
x.topk({i} % 3 + 1).values
x.cumsum({i} % 2)
x.norm({i} + 1)
x.size({i} % 2)
x.shape[{i} % 2]
x.shape[0] * {n}
x.stride({i} % 2)
x.numel() + {n}
len(x) + {n}
x.to(torch.float64) * {n}
x.item() + {n} if x.numel() == 1 else None
torch.randint(0, {i} + 1, (2,)).shape
torch.randn({i}).shape
torch.bernoulli(torch.zeros(2) + {i} / 10).shape
statistics.fmean([{n}, {m}])
steps({i})
steps({n}) if abs({n}) < 9 else None
list(generate({n}, {m}))
next(generate({n}, {m}))
takes({n}, {m}, {n}, c={m}, d={n})
takes(*[{n}, {m}])
takes(**{{"c": {n}}}, a=1) if 0 else None
chosen({n})
Proxy({n}).real
Proxy({n}).__add__(2)
identity({n})
(lambda *a: a)(*range({i}))
(lambda **k: k)(a={n}, b={m})
[v for v in ({n}, {m}) if v]
{{v: v for v in ({n}, {m})}}
types.SimpleNamespace(a={n}, b={m})
types.SimpleNamespace(a={n}) == types.SimpleNamespace(a={m})
types.MappingProxyType({{{n}: 1}})[{n}]
contextvars.ContextVar("c", default={n}).get()
getattr({n}, "real")
getattr({n}, "nothing", {m})
hasattr({n}, "real")
hasattr({n}, "bit_length")
callable({n})
issubclass(type({n}), int)
vars(types.SimpleNamespace(a={n}))
iter(lambda: {n}, {n}).__class__.__name__
list(iter(lambda: {n}, {n}))
ascii([{n}, {m}])
str([{n}, ({m},)])
repr({{{n}: {m}}})
repr({{"a": [{n}]}})
repr(slice({n}))
str(Point({n}, {m}))
id({n}) == id({n})
threading.Semaphore({i}).acquire(blocking=False)
nothing({n}) or {m}
"""
