"""NumPy programs with loops over elements, rows and slices; and those that tensors go through, with gradients by differences."""

from __future__ import annotations

import random

from .body import Body
from .harness import Program
from .registry import program_class

PRELUDE = """import math

import math
import numpy as np

def turned(a):
    return np.ascontiguousarray(a[..., ::-1])[..., ::-1]
"""

GRADIENTS = """
import tatara, torch

def value_and_gradients():
    given = [np.asarray(a, dtype=np.float64).copy() for a in (x, y, w)]
    numbers = lambda arrays: sum(float((np.asarray(r, dtype=np.float64) * np.cos(np.arange(np.size(r)).reshape(np.shape(r)))).sum())
                                 for r in g(*[a.copy() for a in arrays]))
    plain = [np.ascontiguousarray(r) for r in g(*[a.copy() for a in given])]
    size = float(np.max([np.abs(r).max(initial=0) for r in plain]))  # large numbers round differences away
    if compiled(len) is len: return plain, True
    tensors = [torch.from_numpy(a.copy()).requires_grad_() for a in given]
    try:
        results = tatara.wrap_numpy(g)(*tensors)
        total = sum((r * torch.cos(torch.arange(r.numel()).reshape(r.shape).double())).sum() for r in map(torch.as_tensor, results))
        grads = torch.autograd.grad(total, tensors, allow_unused=True) if total.requires_grad else [None] * 3
    except tatara.Unsupported:
        return plain, True
    assert len(results) == len(plain)
    right = True
    for k, a in enumerate(given):
        mine = np.zeros(a.shape) if grads[k] is None else grads[k].numpy()
        for place in list(np.ndindex(a.shape))[:6]:
            step, sides = 1e-6, []
            for sign in (1, -1):
                moved = [b.copy() for b in given]
                moved[k][place] += sign * step
                with np.errstate(all="ignore"): sides.append(numbers(moved))
            slope = (sides[0] - sides[1]) / (2 * step)
            if np.isfinite(size) and not abs(slope - mine[place]) <= 1e-4 * (1 + abs(slope)) + 1e-8 * size: right = (k, place, slope, float(mine[place]))
    return [np.ascontiguousarray(r.detach().numpy() if isinstance(r, torch.Tensor) else r) for r in results], right
"""


class Arrays(Body):
    """Functions of `x`, `y` (vectors), `w` (a matrix), `k` (whole numbers), `m` (a mask); they work on `r` (vector), `q` (matrix)."""

    most = 3

    def __init__(self, rng: random.Random, smooth: bool) -> None:
        super().__init__(rng)
        self.smooth = smooth
        self.float = "float64" if smooth else rng.choice(["float64"] * 5 + ["float32"] * 3 + ["float16", "complex128"])
        self.whole = rng.choice(["int64"] * 4 + ["int32", "int16", "uint8", "int8"])
        self.size = rng.choice([5, 8, 12, 17, 40]) if not smooth else rng.choice([4, 5, 8])
        self.complex = self.float == "complex128"
        self.exact = self.float in ("float32", "float16")  # sums in another order, and sines, differ in their last bits
        self.counters: list[str] = []
        self.rows: list[str] = []

    def index(self, most: str = "n") -> str:
        choices = ["0", "-1", "2", "1"]
        for each in self.counters:
            choices += [each] * 4 + [f"{each} - 1", f"({each} + 1) % {most}", f"-{each} - 1", f"{most} - 1 - {each}"]
        if not self.smooth and self.counters:
            choices += [f"k[{self.counters[-1]}] % {most}"]
        return self.rng.choice(choices)

    def number(self, depth: int = 2) -> str:
        """A number."""
        if depth == 0 or self.rng.random() < 0.2:
            choices = [
                f"x[{self.index()}]",
                f"r[{self.index()}]",
                f"q[{self.index()}, {self.index()}]",
                "s",
                "s",
                "0.5",
                "2",
                f"y[{self.index()}]",
            ]
            if not self.smooth:
                choices += [f"k[{self.index()}]", "c", f"m[{self.index()}]", f"int(k[{self.index()}])"]
            choices += self.counters
            return self.rng.choice(choices)
        a, b = self.number(depth - 1), self.number(depth - 1)
        kind = self.rng.randrange(12)
        if kind < 6:
            return f"({a} {self.rng.choice('+-*')} {b})"
        if kind == 6:
            return f"({a} / {self.rng.choice(['4.0', '(1.5 + abs(' + b + '))', b if not self.smooth else '3'])})"
        if kind == 7:
            real = ["sqrt(abs({}))", "floor({})", "log(abs({}) + 1)", "tanh({})"] if not self.smooth else ["tanh({})"]
            functions = ["sin({})", "cos({})", "exp(-abs({}))", "abs({})", *(real if not self.complex else [])]
            functions = functions if not self.exact else ["abs({})", "sqrt(abs({}))", "floor({})"]
            return "np." + self.rng.choice(functions).format(a)
        if kind == 8 and not self.smooth:
            return (
                self.rng.choice(
                    [
                        f"({a} ** 2)",
                        f"({a} // {self.rng.choice(['3', '2.0'])})",
                        f"({a} % 3)",
                        f"max({a}, {b})",
                        f"np.maximum({a}, {b})",
                    ]
                )
                if not self.complex
                else f"({a} ** 2)"
            )
        if kind == 9 and not self.complex:
            return f"({a} if {self.test()} else {b})"
        if kind == 10 and not self.exact:
            return self.rng.choice(
                [f"np.dot(x, r[:{'n'}])", "r.sum()", "q[0].mean()", "(x * y).sum()", "q[:, 1].sum()", "r[::2].sum()"]
            )
        return f"({a} * 0.25)"

    def test(self) -> str:
        c = self.counters[-1] if self.counters else "n"
        tests = [f"{c} % 3 == 0", f"{c} > 2", f"{c} != 4"]
        if not self.smooth:
            tests += [f"m[{self.index()}]", f"k[{self.index()}] > 3", "c > 2"]
            if not self.complex:
                tests += [
                    f"x[{self.index()}] > 0",
                    "s < 1",
                    f"r[{self.index()}] >= s",
                    f"x[{self.index()}] != x[{self.index()}]",
                ]
        return self.rng.choice(tests)

    def vector(self, depth: int = 2) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            choices = [
                "x",
                "r",
                "y",
                "q[0]",
                "q[:, 1]",
                "x[::-1]",
                "w[-1]",
                "w.T[0]",
                f"q[{self.index()}]",
                "r[::-1]",
                "q.diagonal()",
                f"w[:, {self.index()}]",
            ]
            return self.rng.choice(choices + ["k", "m"] * (not self.smooth) + self.rows)
        a, b = self.vector(depth - 1), self.rng.choice([self.vector(depth - 1), self.number(1)])
        kind = self.rng.randrange(14)
        if self.exact and kind in (6, 7, 8, 11):
            return f"np.{self.rng.choice(['abs', 'negative', 'square', 'sqrt', 'floor', 'sign'])}({a})"
        if kind < 5:
            return f"({a} {self.rng.choice('+-*' if not self.smooth else '+-*')} {b})"
        if kind == 5:
            return f"({a} / {self.rng.choice(['2', '(2 + np.abs(' + b + '))', b if not self.smooth else '4.0'])})"
        if kind < 8:
            return f"np.{self.rng.choice(['sin', 'abs', 'negative', 'square', 'cos'] + ['sqrt', 'exp', 'floor', 'sign'] * (not self.smooth and not self.complex))}({a})"
        if kind == 8:
            return self.rng.choice(
                [
                    f"np.cumsum({a})",
                    f"np.roll({a}, 1)",
                    f"({a}) @ w",
                    f"np.dot(w, {a})",
                    f"np.outer({a}, y).sum(0)",
                    f"np.concatenate([({a})[1:], y[:1]])",
                ]
            )
        if kind == 9 and not self.complex:
            return (
                self.rng.choice([f"np.where(m, {a}, {b})", f"np.maximum({a}, {b})", f"np.clip({a}, -1, 2)"])
                if not self.smooth
                else f"np.where(np.arange(n) % 2 == 0, {a}, {b})"
            )
        if kind == 10 and not self.smooth:
            return self.rng.choice(
                [
                    f"({a}).astype(np.float32)",
                    f"np.asarray({a}, dtype=np.int64)" if not self.complex else f"({a}).real",
                    f"({a} > 0)" if not self.complex else f"({a} == 0)",
                    f"({a})[k % n]",
                    f"np.sort({a})",
                    f"np.add({a}, {b}, where=m, out=np.zeros(n, dtype=np.result_type({a}, {b})))",
                ]
            )
        if kind == 11:
            return f"np.stack([{a}, y]).{self.rng.choice(['sum(0)', 'mean(axis=0)', 'max(0)' if not self.complex and not self.smooth else 'sum(axis=0)'])}"
        return f"({a} * 0.5)"

    def part(self) -> tuple[str, str]:
        """A place in an array that is written, and what fits there."""
        i = self.index()
        # Where a row is written to a column, NumPy reads what it has just written.
        vector = f"({self.vector(1)}) * 1"
        return self.rng.choice([
            (f"r[{i}]", self.number()), (f"r[{i}]", self.number()), (f"q[{i}, {self.index()}]", self.number()), ("r[:]", vector), ("r[1:]", f"({vector} + r)[:-1]"),
            ("r[::-1]", vector), ("r[::2]", f"({vector} + r)[::2]"), (f"q[{i}]", vector), (f"q[:, {i}]", vector), ("q[1:-1]", "(q[:-2] + q[2:]) * 0.5"), ("q[::-1, 0]", vector),
            ("r[:-1]", "r[1:]"), ("r[1:]", "r[:-1]"), ("q[:]", "q.T"), ("q[:, ::-1]", "q * 0.5"), ("q.T[0]", vector), ("r[-1:0:-1]", "r[1:]"),
        ])  # fmt: skip

    def statement(self, v: str, depth: int) -> list[str]:
        kind = self.rng.randrange(24)
        place, value = self.part()
        if kind < 6:
            return [f"{place} = {value}"]
        if kind < 9:
            return [f"{place} {self.rng.choice(['+=', '-=', '*='] + ['/='] * (not self.smooth))} {value}"]
        if kind < 11:
            return [f"s {self.rng.choice(['=', '+=', '='])} {self.number()} * 0.5"]
        if kind == 11:
            return [f"r = {self.vector()} + 0 * r"]
        if kind == 12 and not self.smooth:
            return [self.rng.choice([
                "np.add.at(r, k % n, x)", "np.add.at(r, k % n, 1)", "np.multiply(r, y, out=r)", f"np.add(r, {self.vector(1)}, out=r, where=m)", "r[m] = y[m]", "r[m] *= 0.5", "r[~m] = 0", "r[k % n] = x",
                "r[k % n] += 1", "k += 1", "k *= 3", "k[1:] = k[:-1]", "c += int(k.sum())", "k <<= 1", "z += np.int8(100)", "k[0] = c % 100", "np.subtract.at(q, (k % n, k % n), 0.5)", "r.sort()", "np.copyto(r, y, where=m)",
                "m ^= True", "r[np.argmax(k)] = 0", "k //= 2", "np.negative(k, out=k)", "r.fill(s)", "c = c * 3 + 1", "np.maximum(k, 2, out=k)", "m[k % n] = False", "r[m & (k > 1)] += 1",
            ])]  # fmt: skip
        if kind < 16 and len(self.counters) < 2 and depth < 2:
            return self.loop(v, depth)
        if kind < 19 and depth < 3:
            return self.branch(self.test(), 0.4, v, depth + 1)
        if kind == 19 and depth and self.counters:
            return [f"if {self.test()}: {self.rng.choice(['break', 'continue'])}"]
        if kind == 20:
            return [
                self.rng.choice(
                    [
                        f"part = r[{self.rng.choice(['1:', ':2', '::2'])}]",
                        "part = q[0]",
                        "part = q.T[1]",
                        "part[0] = s",
                        "part += 1",
                        "part = part[::-1]",
                    ]
                )
            ]
        if kind >= 21 and not self.smooth:
            return [self.of_two_kinds()]
        return [f"{place} = {value}"]

    def of_two_kinds(self) -> str:
        """Locals that are Python's or NumPy's, as it comes; places, tuples, lists of rows."""
        i, j, a = self.index(), self.index(), self.number()
        choices = ["c += 1", f"c = k[{i}]", f"t = ({i}, {a})", f"t = ({i}, c)", f"r[[0, {i}]] = r[[{i}, 0]]", f"q[[1, {i}]] = q[[{i}, 1]]",
                   f"q[[{i}, {j}], 1:] = q[[{j}, {i}], 1:]", "c = int(c)"]  # fmt: skip
        if not self.complex:
            choices += [f"c = max(c, k[{i}])", f"s = max(0, {a})", f"s = max(0.0, {a})", f"s = min(s, {a}, 1.5)", f"c = min(k[{i}], 3)", "c = np.argmax(r)",
                        "c = q.argmin(1)[0]", "r[:] = np.argmax(q, axis=0)", "s = math.sqrt(abs(s))", f"s = np.sign({a})", f"t = (max(0, {a}), s, c)", f"c = max(c, {i}) + 1",
                        f"r[{i}] = max(0, s, {a})", f"c = q[{i}].argmax()"]  # fmt: skip
        return self.rng.choice(choices)

    def loop(self, v: str, depth: int) -> list[str]:
        i = self.name("i")
        more = [i]
        kind = self.rng.randrange(12)
        rows: list[str] = []
        if kind < 6:
            bounds = (
                ["n", "1, n", "n - 1, -1, -1", "0, n, 2", "1, n - 1"]
                + [f"{c}" for c in self.counters]
                + [f"{c}, n" for c in self.counters]
            )
            head = [f"for {i} in range({self.rng.choice(bounds)}):"]
        elif kind == 6:
            head = [f"for {i}, s in enumerate(x):"]
        elif kind == 7:
            rows = [self.name("row")]
            head = [f"for {i}, {rows[0]} in enumerate({self.rng.choice(['q', 'w', 'w.T', 'q[::-1]'])}):"]
        elif kind == 8:
            head = [f"for s, {i} in zip(y, range(n)):"]
        elif kind == 9:
            rows, more = [self.name("row")], []
            head = [f"for {rows[0]} in {self.rng.choice(['w', 'q', 'w.T'])}:"]
        else:
            head = [f"{i} = -1", f"while {i} < n - 1:", f"    {i} += 1"]
        self.counters += more
        self.rows += rows
        body = self.indent(self.block(v, depth + 1))
        for _ in more:
            self.counters.pop()
        for _ in rows:
            self.rows.pop()
        return [*head, *body]

    def function(self) -> str:
        arguments = "x, y, w" if self.smooth else "x, y, w, k, m"
        start = self.rng.choice(
            [
                "x * 1",
                "np.zeros(n)",
                f"np.zeros(n, dtype={'x.dtype' if self.smooth else self.rng.choice(['x.dtype', 'np.int64', 'np.float32', 'x.dtype'])})",
                "y.copy()",
                "np.ones_like(x)",
            ]
        )
        lines = [
            "n = len(x)",
            f"r = {start}",
            f"q = {self.rng.choice(['w * 1', 'w.copy()', 'np.zeros((n, n))', 'w.T.copy()'])}",
            "s, c, z, t = 0.0, 0, np.int8(1), (0, 0)",
            "part = r[:2]",
        ]
        if not self.smooth and self.rng.random() < 0.3:
            lines.append(self.rng.choice(["r = x", "q = w", "r = y[::-1]", "q = w.T", "r = w[0]"]))
        lines += self.loop("r", 0)
        for _ in range(self.rng.randrange(2)):
            lines += self.statement("r", 0)
        results = ["r", "q"]
        if not self.smooth:
            results += ["s", "c", "z", "t"] + self.rng.choice(
                [["part"], [] if self.exact else ["r.sum()"], ["r[::-1]"], []]
            )
        lines.append(f"return {', '.join(results)}")
        return "\n".join([f"def g({arguments}):", *self.indent(lines)])

    def inputs(self) -> list[str]:
        made = f"draw.standard_normal(n).astype(np.{self.float})"
        lines = ["def make(n, by=1):", "    global x, y, w, k, m", "    draw = np.random.default_rng(n)", f"    x, y = {made}, {made} * by",
                 f"    w = (draw.standard_normal((n, n)) * 0.5).astype(np.{self.float})", f"    k = draw.integers(0, 9, n).astype(np.{self.whole})", "    m = draw.random(n) > 0.4"]  # fmt: skip
        if not self.smooth and self.rng.random() < 0.25:
            lines.append(
                f"    {self.rng.choice(['x[1] = np.nan', 'x[0] = np.inf', 'y[2] = 0', 'k[1] = np.iinfo(k.dtype).max', 'w[0] = 0'])}"
            )
        return lines


@program_class("numpy_loops")
def numpy_loops(rng: random.Random) -> Program:
    """Results, arrays that are written, warnings and exceptions, for several sizes, and arrays that lie otherwise."""
    maker = Arrays(rng, smooth=False)
    source = [PRELUDE, maker.function(), "f = g", *maker.inputs(), f"make({maker.size})"]
    call, steps = "f(x, y, w, k, m)", []
    steps += [call, call, f"make({maker.size}, 0.5)", call]
    if rng.random() < 0.4:
        steps += [f"make({maker.size + rng.choice([1, 3])})", call, call]
    if rng.random() < 0.4:
        steps += [
            f"make({maker.size})",
            rng.choice(
                [
                    "x, w = turned(x), turned(w)",
                    "w = w.T",
                    "x = w[0]",
                    "x = x[::-1]",
                    "y = np.broadcast_to(y[:1], y.shape)",
                ]
            ),
            call,
            call,
        ]
    return Program("\n".join(source), tuple(steps))


@program_class("wrapped_numpy_loops")
def wrapped_numpy_loops(rng: random.Random) -> Program:
    """Values of `tatara.wrap_numpy` are NumPy's, gradients those of differences."""
    maker = Arrays(rng, smooth=True)
    source = [PRELUDE, GRADIENTS, maker.function(), "f = g", *maker.inputs(), f"make({maker.size})"]
    return Program("\n".join(source), ("value_and_gradients()", f"make({maker.size + 1})", "value_and_gradients()"))
