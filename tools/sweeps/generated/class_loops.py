"""Loops of tensors as people write them, and their derivatives: gradients, gradients of these, tangents, batches."""

from __future__ import annotations

import random
from collections.abc import Callable

from .body import Body
from .harness import Program
from .registry import program_class

PRELUDE = """
import math
import torch
import torch.nn.functional as F

def flat(result):
    if isinstance(result, torch.Tensor): return [result]
    if isinstance(result, dict): result = list(result.values())
    return [part for each in result for part in flat(each)] if isinstance(result, (tuple, list)) else []

def loss(result):
    total = 0.0
    for part in flat(result):
        if part.is_complex(): part = torch.view_as_real(part)
        if part.is_floating_point():
            total = total + (part.double() * torch.linspace(-1, 1, part.numel(), dtype=torch.float64).view(part.shape)).sum()
    return total

def leaves(given):
    return [a.detach().clone().requires_grad_() for a in given]

def train(given, again=False):
    given = leaves(given)
    result = f(*given, mask, ids)
    total = loss(result)
    if not isinstance(total, torch.Tensor) or not total.requires_grad: return result, None
    try:
        grads = torch.autograd.grad(total, given, allow_unused=True, create_graph=again)
    except RuntimeError as error:  # which of several tensors it names is of no interest
        if "modified by an inplace operation" not in str(error): raise
        return result, "spoiled"
    if not again: return result, grads
    second = sum((loss(g * 1.0) for g in grads if g is not None), start=torch.zeros(()))
    if not second.requires_grad: return result, grads
    return result, [g if g is None else g.detach() for g in grads], torch.autograd.grad(second, given, allow_unused=True)

def strided(a):
    if a.dim() < 2: return torch.stack([a, a], -1)[..., 0]
    return a.transpose(0, -1).contiguous().transpose(0, -1)
"""

FORMS = {
    "forward": ("def f(*a): return g(*a)", "f(*given(1.0), mask, ids)"),
    "no_grad": (
        "def f(*a):\n    with torch.no_grad(): return g(*a)",
        "f(*leaves(given(1.0)), mask, ids)",
    ),
    "training": ("f = g", "train(given(1.0))"),
    "second": ("f = g", "train(given(1.0), True)"),
    "backward inside": (
        "def f(*a):\n    total = loss(g(*a))\n    if isinstance(total, torch.Tensor) and total.requires_grad: total.backward()\n"
        "    return [b.grad for b in a[:3]]",
        "f(*leaves(given(1.0)), mask, ids)",
    ),
    "jvp": (
        "def f(x, w, b, mask, ids):\n"
        "    return torch.func.jvp(lambda *a: tuple(flat(g(*a, mask, ids))), (x, w, b), (torch.ones_like(x), w * 0.5, b))",
        "f(*given(1.0), mask, ids)",
    ),
    "grad": (
        "def f(x, w, b, mask, ids):\n"
        "    return torch.func.grad(lambda *a: loss(g(*a, mask, ids)) + 0 * loss(a), argnums=(0, 1, 2))(x, w, b)",
        "f(*given(1.0), mask, ids)",
    ),
    "hessian times vector": (
        "def f(x, w, b, mask, ids):\n"
        "    slope = torch.func.grad(lambda w: loss(g(x, w, b, mask, ids)) + 0 * loss(w))\n"
        "    return torch.func.jvp(slope, (w,), (torch.ones_like(w),))",
        "f(*given(1.0), mask, ids)",
    ),
    "vmap": (
        "def f(x, w, b, mask, ids):\n"
        "    return torch.func.vmap(lambda x: tuple(flat(g(x, w, b, mask, ids))), randomness='different')(torch.stack([x, x * 0.5, x + 0.1]))",
        "f(*given(1.0), mask, ids)",
    ),
    "vmap of grad": (
        "def f(x, w, b, mask, ids):\n"
        "    one = torch.func.grad(lambda x, w: loss(g(x, w, b, mask, ids)) + 0 * loss(x) + 0 * loss(w), argnums=(0, 1))\n"
        "    return torch.func.vmap(one, in_dims=(0, None), randomness='different')(torch.stack([x, x * 0.5]), w)",
        "f(*given(1.0), mask, ids)",
    ),
}
DIFFERENTIATED = {"training", "second", "backward inside", "jvp", "grad", "hessian times vector", "vmap of grad"}


class Loops(Body):
    """A function of `x` (turns, rows, columns; or rows, turns, columns), `w`, `b`, a mask and whole numbers for each turn.

    Its state is `h` and `c` (rows, columns), and more that is made on the way; all stay near one.
    """

    most = 2

    def __init__(self, rng: random.Random, form: str) -> None:
        super().__init__(rng)
        self.dtype = rng.choice(
            ["float32"] * 6 + ["float64"] * 4 + ["complex64"] * 2 + ["bfloat16"] * (form not in DIFFERENTIATED)
        )
        self.complex = self.dtype == "complex64"
        self.rows, self.columns = rng.choice([1, 2, 3]), rng.choice([2, 3, 4])
        self.turns_of_loop = rng.choice([3, 9, 24, 26, 26, 26, 27, 28, 28, 30, 33, 40])
        if form in ("forward", "training") and rng.random() < 0.05:
            self.turns_of_loop = rng.choice([100, 300])
        self.first = rng.random() < 0.6  # turns are the first dimension of x
        self.draws = form in ("forward", "training", "no_grad", "second", "jvp") and rng.random() < 0.15
        self.writes = rng.random() < 0.5  # tensors in place, which eager may refuse in derivatives
        self.grows = rng.random() < 0.1  # exponentially, until it leaves its type
        self.now: str | None = None  # the number of the turn, where there is one
        self.item: str | None = None
        self.lists: list[str] = []
        self.outs: list[str] = []
        self.others: list[str] = []  # further values of the state's shape
        self.numbers: list[str] = []
        self.kept: list[str] = []
        self.inner = 0

    def part(self, place: str) -> str:
        return f"x[{place}]" if self.first else f"x[:, {place}]"

    def scalar(self) -> str:
        """A number or a tensor without dimensions."""
        choices = ["0.5", "0.9", "-0.3", "b[0]", "b[-1]", "h.mean()", "c.sum() * 0.1", "w[0, 1]"]
        if self.now:
            choices += [f"{self.now} * 0.01", f"1 / ({self.now} + 2)", f"0.9 ** {self.now}", f"math.cos({self.now})"]
            choices += [f"b[{self.now} % {self.columns}]", f"ids[{self.now}]", f"({self.now} % 3)"]
        choices += [f"{n} * 0.01" for n in self.numbers]
        return self.rng.choice(choices)

    def leaf(self) -> str:
        choices = ["h", "h", "h", "c", "c", "b", *self.others, *self.kept]
        if self.item:
            choices += [self.item] * 3
        if self.now:
            now = self.now
            choices += [self.part(now)] * 2 + [self.part(f"max({now} - 1, 0)"), self.part(f"{now} - 1")]
            if self.first:
                choices += [f"x[{now}, 0]", f"x[{now}:{now} + 2].mean(0)", f"x[{now}, :, :1]"]
            else:
                choices += [f"x[:, {now}:{now} + 2].sum(1)", f"x[0, {now}]"]
            choices += [f"{out}[{now}]" for out in self.outs if self.rng.random() < 0.3]
            choices += [f"{out}[{now} - 1]" for out in self.outs if self.rng.random() < 0.3]
            choices += [f"mask[{now}, :, None] * h"]
        choices += [f"{each}[-1]" for each in self.lists if self.rng.random() < 0.2]
        return self.rng.choice(choices)

    def value(self, depth: int = 2) -> str:
        """An expression of the state's shape, or one that broadcasts to it."""
        if depth == 0 or self.rng.random() < 0.15:
            return self.leaf()
        a = self.value(depth - 1)
        kind = self.rng.randrange(22)
        if kind < 5:
            return f"({a} {self.rng.choice('+-*')} {self.value(depth - 1)})"
        if kind < 7:
            return f"({a} {self.rng.choice(['*', '+', '-'])} {self.scalar()})"
        if kind < 11:
            real = ["relu", "abs", "erf"] if not self.complex else ["conj", "square"]
            return f"torch.{self.rng.choice(['tanh', 'sin', 'cos', 'sigmoid', *real])}({a})"
        if kind < 14:
            return f"((h + {a}) @ w)" if a.endswith(("]", ")")) else f"({a} @ w)"
        if kind == 14:
            return f"({a} / (1.5 + {self.value(depth - 1)}.abs()))"
        if kind == 15 and not self.complex:
            test = self.rng.choice([f"{a} > 0", f"mask[{self.now or 0}, :, None]", "h > c", "b < 0.1"])
            return f"torch.where({test}, {self.value(depth - 1)}, {self.value(depth - 1)})"
        if kind == 16 and not self.complex:
            return self.rng.choice(
                [f"torch.maximum({a}, {self.value(0)})", f"{a}.clamp(-0.5, 0.7)", f"F.softmax({a}, -1)"]
            )
        if kind == 17:
            return f"({a} + torch.zeros_like(h)){self.rng.choice(['.flip(-1)', '.roll(1, -1)', '.cumsum(-1) * 0.3', '.mean(0)', '.sum(-1, keepdim=True)', '[:, :1]', '.T.contiguous().T', '.reshape(-1).view(h.shape)'])}"
        if kind == 18 and not self.complex:
            return (
                f"F.layer_norm({a} + h, (h.shape[-1],))"
                if self.rng.random() < 0.5
                else f"({a} + h).amax(-1, keepdim=True)"
            )
        if kind == 19:
            return f"torch.cat([(h + {a})[:, 1:], (c + {self.value(0)})[:, :1]], 1)"
        if kind == 20 and self.draws:
            real = [f"F.dropout({a} + h, 0.3)", "torch.bernoulli(torch.full_like(h, 0.5))", "torch.rand_like(h)"]
            return self.rng.choice(
                ["torch.randn_like(h)", f"torch.randn(h.shape) * {a}", *(real if not self.complex else [])]
            )
        return f"torch.einsum('ij,jk->ik', h + {a}, w)" if self.rng.random() < 0.3 else f"F.linear(h + {a}, w)"

    def bounded(self) -> str:
        """A value that stays near one, but in programs that grow."""
        value = self.value(self.rng.choice([1, 2, 2, 3]))
        if self.grows and self.rng.random() < 0.5:
            return self.rng.choice([f"(h * 1.5 + {value})", f"(c * {value} + h)", f"(h @ w * 4 + {value})"])
        if self.complex:
            return self.rng.choice(
                [
                    f"({value}).tanh() * 0.5 + h * 0.1",
                    f"torch.sin({value}) * 0.2",
                    f"({value}) / (2 + h.abs() + ({value}).abs())",
                ]
            )
        return self.rng.choice(
            [f"torch.tanh({value})", f"torch.sin({value})", f"torch.sigmoid({value})", f"({value}).clamp(-1, 1) * 0.9"]
        )

    def whole_value(self) -> str:
        """A bounded value of the state's own shape."""
        return self.rng.choice(
            [f"{self.bounded()} + 0 * h", f"0.5 * h + 0.4 * {self.bounded()}", f"(c + {self.bounded()}) * 0.5"]
        )

    def test(self) -> str:
        now = self.now
        by_turn = (
            [f"{now} % 3 == 0", f"{now} < 5", f"{now} == 7", f"{now} in (4, 5)", f"{now} > 20", f"{now} % 2"]
            if now
            else []
        )
        by_data = ["(h.real if h.is_complex() else h).sum() > 0", "bool(mask.any())"]
        return self.rng.choice(
            by_turn * 3 + by_data + [f"{n} % 4 == 1" for n in self.numbers] * 2 + ["h.shape[0] == 2"]
        )

    def statement(self, v: str, depth: int) -> list[str]:
        kind = self.rng.randrange(30)
        if kind < 7:
            return [f"{v} = {self.whole_value()}"]
        if kind < 10:
            return [f"{self.rng.choice('hc')} = {self.whole_value()}"]
        if kind < 12:
            return [f"h, c = {self.whole_value()}, {self.rng.choice(['h', 'h * 0.5', self.whole_value()])}"]
        if kind < 15 and self.outs and self.now and not self.inner:
            return self.write()
        if kind < 18 and self.lists:
            return [
                f"{self.rng.choice(self.lists)}.append({self.rng.choice(['h', 'h', 'c', self.whole_value(), 'h.clone()', 'h[:, 0]', 'h[0]'])})"
            ]
        if kind < 20 and self.writes:
            return [self.rng.choice([
                f"{v} *= 0.9", f"{v} += {self.bounded()}", f"{v}.mul_(0.7).add_(0.1)", f"{v}[:, 0] = 0.3", f"{v}[0] += {self.scalar()}",
                f"{v}[:, 1:] *= 0.5", f"{v}.copy_({self.bounded()})", f"{v}.tanh_()", f"torch.sin_({v})", f"{v}[0] = {self.value(1)}[0] if False else c[0]",
                f"{v}.data.mul_(0.9)", f"{v}.zero_()", "x[0] *= 0.99",
            ])]  # fmt: skip
        if kind < 23 and depth < 2:
            return self.branch(self.test(), 0.4, v, depth + 1)
        if kind == 23 and depth < 2 and self.inner < 1:
            self.inner += 1
            inner = self.name("k")
            body = self.indent(self.block(v, depth + 1))
            self.inner -= 1
            return [f"for {inner} in range({self.rng.choice([1, 2, 3])}):", *body]
        if kind < 26 and self.numbers:
            n = self.rng.choice(self.numbers)
            return [
                self.rng.choice(
                    [
                        f"{n} += 1",
                        f"{n} += 2",
                        f"{n} = {n} + {self.now or 1}",
                        f"{n} = len({self.lists[0] if self.lists else 'b'})",
                    ]
                )
            ]
        if kind == 26 and self.others:
            return [
                f"{self.rng.choice(self.others)} = {self.rng.choice(['h', 'c', self.whole_value(), 'h[:, :1]', 'h.detach()', 'h.T.T'])}"
            ]
        if kind == 27 and self.kept:
            return [
                f"{self.rng.choice(self.kept)} = {self.rng.choice(['h[0]', 'h[:, :1]', 'c[-1:]', 'h.view(-1)[:1]'])}"
            ]
        if kind == 28 and depth and self.now and self.rng.random() < 0.4:
            return (
                [f"if {self.now} == {self.rng.choice([5, 17, 28])}: {self.rng.choice(['break', 'continue'])}"]
                if not self.inner
                else ["pass"]
            )
        return [f"{v} = {self.whole_value()}"]

    def write(self) -> list[str]:
        out, now = self.rng.choice(self.outs), self.now
        value = self.rng.choice(["h", "h", "c", self.whole_value(), "h * 2"])
        return [self.rng.choice([
            f"{out}[{now}] = {value}", f"{out}[{now}] = {value}", f"{out}[{now}] += {value}", f"{out}[{now}, 0] = ({value})[0]",
            f"{out}[{now}, :, 0] = ({value})[:, 0]", f"{out}[{now}].copy_({value})", f"{out}[-{now} - 1] = {value}", f"{out}[{now}, :, 1:] = 0.5",
        ])]  # fmt: skip

    def head(self) -> list[str]:
        """The line of the loop; sets what its body may read."""
        turns, t = "n", self.name("t")
        dim = 0 if self.first else 1
        self.now, self.item = t, None
        rows = self.rng.choice([f"x.unbind({dim})", "x" if self.first else "x.transpose(0, 1)", f"x.movedim({dim}, 0)"])
        kind = self.rng.randrange(13)
        if kind < 5:
            return [f"for {t} in range({turns}):"]
        if kind == 5:
            return [
                f"for {t} in {self.rng.choice(['range(n - 1, -1, -1)', 'reversed(range(n))', 'range(0, n, 2)', 'range(1, n)'])}:"
            ]
        self.item = self.name("row")
        if kind < 8:
            return [f"for {t}, {self.item} in enumerate({rows}):"]
        if kind == 8:
            return [f"for {self.item}, {t} in zip({rows}, {self.rng.choice(['range(n)', 'range(n - 1, -1, -1)'])}):"]
        if kind == 9:
            self.now = None
            return [f"for {self.item} in {rows}:"]
        if kind == 10:
            self.now = None
            return [f"for {self.item}, m in zip({rows}, mask[:, :, None]):"]
        if kind == 11:
            self.item = None
            return [f"{t} = -1", f"while {t} < n - 1:", f"    {t} += 1"]
        return [f"for {t}, ({self.item}, m) in enumerate(zip({rows}, ids)):"]

    def loop(self, v: str) -> list[str]:
        *before, head = (lines := self.head())
        if len(lines) == 3:
            before, head, step = [lines[0]], lines[1], [lines[2]]
        else:
            step = []
        body = self.block(v, 0)
        for each in self.lists:
            if self.rng.random() < 0.8 and not any(f"{each}.append" in line for line in body):
                body.append(f"{each}.append({v})")
        for each in self.outs:
            if self.now and self.rng.random() < 0.6 and not any(line.startswith(f"{each}[") for line in body):
                body.append(f"{each}[{self.now}] = {v}")
        self.now = self.item = None
        return [*before, head, *step, *self.indent(body)]

    def function(self, form: str) -> str:
        lines = [f"n = x.shape[{0 if self.first else 1}]"]
        rows = "x.shape[1]" if self.first else "x.shape[0]"
        start = self.rng.choice(
            [
                f"x.new_zeros({rows}, x.shape[2])",
                self.part("0"),
                f"torch.zeros({rows}, x.shape[2], dtype=x.dtype)",
                f"b.expand({rows}, -1)",
                f"{self.part('0')}.clone()",
            ]
        )
        last = f"{self.part('-1')} * 0.5"
        lines += [f"h = {start}", f"c = {self.rng.choice(['h', 'h.clone()', 'h + b', last, 'torch.ones_like(h)'])}"]
        for name in ("seen", "more"):
            if self.rng.random() < 0.5:
                self.lists.append(name)
                lines.append(f"{name} = []")
        for name in ("out", "rest"):
            if self.rng.random() < 0.4:
                self.outs.append(name)
                other = "float64" if self.dtype == "float32" and self.rng.random() < 0.2 else self.dtype
                zeros = f"torch.zeros(n, {rows}, x.shape[2], dtype=torch.{other})"
                turned = "x * 1.0" if self.first else "x.transpose(0, 1) * 1.0"
                lines.append(
                    f"{name} = {self.rng.choice([zeros, zeros, f'x.new_ones(n, {rows}, x.shape[2])', turned])}"
                )
        if self.rng.random() < 0.3:
            self.others.append("prev")
            lines.append("prev = h")
        if self.rng.random() < 0.3:
            self.numbers.append("k")
            lines.append(f"k = {self.rng.choice([0, 1, 3])}")
        if self.rng.random() < 0.2:
            self.kept.append("part")
            lines.append("part = h[:, :1]")
        for _ in range(self.rng.choice([1, 1, 1, 2])):
            lines += self.loop("h")
        more = ["c", "h.sum()", "h[0]"][: 2 if form == "jvp" else 3]  # whether tangents are views is not eager's
        results = ["h", *self.rng.sample(more, self.rng.randrange(2))]
        for each in self.lists:
            results.append(
                f"{self.rng.choice(['torch.stack', 'torch.cat', 'tuple', 'torch.stack', 'len'])}({each})"
                if self.rng.random() < 0.8
                else f"{each}[-1:]"
            )
        results += [self.rng.choice([out, f"{out}[1:]", f"{out}.sum(0)"]) for out in self.outs]
        results += self.numbers
        results += [part for part in self.others + self.kept if self.rng.random() < 0.5]
        self.rng.shuffle(results)
        lines.append(f"return {', '.join(results)}{',' if len(results) == 1 else ''}")
        return "\n".join(["def g(x, w, b, mask, ids):", *self.indent(lines)])

    def inputs(self) -> list[str]:
        size = f"{self.rows}, n, {self.columns}" if not self.first else f"n, {self.rows}, {self.columns}"
        shift = "" if self.complex else " - 0.2"
        return [
            "def make(n):",
            "    global x, w, b, mask, ids",
            "    draw = torch.Generator().manual_seed(n)",
            f"    x = (torch.randn({size}, dtype=torch.{self.dtype}, generator=draw) * 0.5{shift})",
            f"    w = torch.randn({self.columns}, {self.columns}, dtype=torch.{self.dtype}, generator=draw) * {0.6 / self.columns**0.5:.2f}",
            f"    b = torch.randn({self.columns}, dtype=torch.{self.dtype}, generator=draw) * 0.5",
            f"    mask = torch.rand(n, {self.rows}, generator=draw) > 0.3",
            "    ids = torch.randint(0, 4, (n,), generator=draw)",
            "def given(by):",
            "    return [x * by, w * by, b * by]",
        ]


def _steps(rng: random.Random, call: str, turns: int) -> tuple[str, ...]:
    other = {1.0: call, 0.9: call.replace("1.0", "0.9", 1), 0.8: call.replace("1.0", "0.8", 1)}
    steps = [other[1.0], other[0.9], other[0.8]]
    if rng.random() < 0.3:
        steps += ["x, w = strided(x), strided(w)", other[1.0], "given = lambda by: [x, w, b]", other[0.9]]
    if rng.random() < 0.4:
        steps += [f"make({rng.choice([turns + 1, turns + 7, max(turns - 2, 2)])})", other[1.0], other[0.9]]
    if rng.random() < 0.1:
        steps += [f"with torch.no_grad(): seen = {other[1.0]}" if "train" not in call else other[0.8]]
    return tuple(steps)


def _program(forms: list[str]) -> Callable[[random.Random], Program]:
    def make(rng: random.Random) -> Program:
        form = rng.choice(forms)
        maker = Loops(rng, form)
        if form not in DIFFERENTIATED:
            maker.writes = rng.random() < 0.6
        function = maker.function(form)
        compiled, call = FORMS[form]
        source = [PRELUDE, function, compiled, *maker.inputs(), f"make({maker.turns_of_loop})"]
        return Program("\n".join(source), _steps(rng, call, maker.turns_of_loop), seed=rng.randrange(100))

    return make


program_class("loops")(_program(["forward", "forward", "no_grad", "vmap"]))
program_class("gradients_of_loops")(_program(["training", "training", "backward inside", "grad", "jvp"]))
program_class("second_gradients_of_loops")(_program(["second", "second", "hessian times vector", "vmap of grad"]))
