"""Programs whose operators fail when they run, after and before all that a program may have done by then.

What compiled code has begun is then given up and done again in eager, or goes on from the point reached: everything that
could be seen of it must have happened once. A program is a function whose body is made of draws, writes, prints, breaks and
operators that fail for some of their arguments, inside of handlers, context managers, loops, calls, generators and passes of
gradients.
"""

from __future__ import annotations

import random

from .body import Body
from .harness import Program
from .registry import program_class

STATE = """
import collections, contextlib, contextvars, functools, logging, random, warnings
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Plain:
    total = 0
    def __init__(self): self.count, self.items = 0, []
    def bump(self, n): self.count += n; self.items.append(self.count)
class Slots:
    __slots__ = ("a", "b")
    def __init__(self): self.a = 1
class Swallow:
    def __init__(self, *kinds): self.kinds = kinds
    def __enter__(self): log.append("enter"); return self
    def __exit__(self, kind, value, trace):
        log.append(("exit", kind.__name__ if kind else None))
        return kind is not None and issubclass(kind, self.kinds)
@contextlib.contextmanager
def noted(name):
    log.append("in " + name)
    try:
        yield len(log)
    except IndexError:
        log.append("failed " + name)
        raise
    finally:
        log.append("out " + name)
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v): return v * 2
    @staticmethod
    def backward(ctx, g): return g * 2
def apply(function, *args): return function(*args)
def twice(function, v): return function(function(v))

log, table, ordered, queue = [], {"n": 0}, collections.OrderedDict(a=1), collections.deque([1, 2], maxlen=5)
seen, number, plain, slots = {1}, 0, Plain(), Slots()
var = contextvars.ContextVar("var", default=0)
gen = torch.Generator().manual_seed(3)
big = torch.zeros(400, 500)
small, buffer, line = torch.zeros(3), torch.ones(4, 3), torch.arange(6.0)
w = torch.full((3,), 0.5, requires_grad=True)
norm, drop, linear = nn.BatchNorm1d(3, eps=0.1), nn.Dropout(0.5), nn.Linear(3, 3)
optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
logger = logging.getLogger("program")
logger.propagate = False
class Notes(logging.Handler):
    def emit(self, record): log.append(record.getMessage())
logger.handlers = [Notes()]
x = torch.linspace(-1, 2, 12).reshape(4, 3)
xg = torch.linspace(-1, 2, 12).reshape(4, 3).requires_grad_()
i, bad_i = torch.tensor([0, 1, 3, 2]), torch.tensor([0, 1, 7, 2])
m, bad_m = torch.eye(3) * 2, torch.zeros(3, 3)
p, bad_p = torch.full((4, 3), 0.5), torch.full((4, 3), 1.5)
"""

# Operators that fail for one of the arguments (i, m, p) when they run; all give a 4 x 3 tensor.
FAILS = [
    "{v}[i]",
    "{v}.index_select(0, i)",
    "torch.gather({v}, 0, i.unsqueeze(1).expand(4, 3))",
    "{v} + torch.take({v}, i).unsqueeze(1)",
    "F.embedding(i, {v})",
    "torch.zeros(4, 3).index_add(0, i, {v})",
    "{v} * torch.zeros(4).scatter(0, i, 1.0).unsqueeze(1)",
    "{v} + F.one_hot(i, 4).sum()",
    "{v} + F.nll_loss({v}.repeat(1, 2)[:, :4], i)",
    "{v} @ torch.linalg.inv(m)",
    "{v} + torch.linalg.cholesky(m)[0]",
    "torch.linalg.solve(m, {v}.t()).t()",
    "{v} * torch.bernoulli(p)",
    "{v} + torch.multinomial(p + 1 - 2 * p.floor() * 2, 3).float()",
    "{v} + torch.poisson(1.4 - p)",
    "{v} + torch.binomial(torch.full((4, 3), 5.0), p)",
]
PURE = [
    "{v} * 2",
    "torch.sin({v})",
    "{v} + {v}.mean()",
    "torch.relu({v}) - 0.5",
    "{v}.t().contiguous().t()",
    "F.softmax({v}, 1)",
    "linear({v})",
    "{v} * w",
    "Double.apply({v})",
    "{v} + small",
]
DRAWS = [
    "{v} + torch.rand(4, 3)",
    "{v} * torch.randn_like({v})",
    "F.dropout({v}, 0.5, True)",
    "drop({v})",
    "{v} + torch.rand(4, 3, generator=gen)",
    "{v} + torch.randint(0, 5, (4, 3))",
    "{v} + torch.randperm(3)",
    "{v} + torch.empty(4, 3).uniform_(generator=gen)",
    "norm({v})",
    "checkpoint(drop, {v}, use_reentrant=False)",
]
WRITES = [
    "log.append({n})",
    "table['n'] += {n}",
    "table.setdefault({n}, []).append({n})",
    "ordered.move_to_end('a') if {n} > 8 else ordered.update(b={n})",
    "ordered['c'] = {n}",
    "queue.append({n})",
    "queue.rotate(1)",
    "seen.add({n})",
    "plain.bump({n})",
    "plain.mark = {n}",
    "Plain.total += {n}",
    "slots.a = {n}",
    "slots.b = slots.a",
    "globals()['number'] += 1",
    "small.add_({n})",
    "buffer[1:3].mul_(0.5)",
    "buffer[0] = {n}",
    "line.copy_(line.flip(0))",
    "big.add_(1)",
    "torch.add(small, 1, out=small)",
    "plain.last = {v}.detach().sum()",
    "log[:] = log[-3:]",
    "token = var.set({n})",
    "logger.warning('said %d', {n})",
    "warnings.warn('warned {n}')",
    "print('said', {n})",
    "w.grad = None",
    "small.requires_grad_(False)",
    "log.extend(k * {n} for k in range(2))",
    "np.random.rand()",
    "log.append(random.random())",
    "log.append(float(np.random.standard_normal()))",
]
BREAKS = [
    "log.append({v}.sum().item() > 1000)",
    "print(tuple({v}.shape))",
    "table['hash'] = hash(str(len(log)))",
    "if {v}.sum() > 100: log.append('big')",
    "print(float({v}.detach().max()) < 1e6)",
]


class Failures(Body):
    """Statements that may fail, and such that can be seen from outside."""

    def fill(self, text: str, v: str) -> str:
        return text.replace("{v}", v).replace("{n}", str(self.rng.randint(1, 9)))

    def value(self, v: str) -> str:
        """An expression, a 4 x 3 tensor."""
        kinds = [PURE, DRAWS, FAILS]
        return self.fill(self.rng.choice(self.rng.choices(kinds, (3, 3, 3))[0]), v)

    def statement(self, v: str, depth: int) -> list[str]:
        rng = self.rng
        roll = rng.random()
        if roll < 0.38 or depth >= 3:
            return [f"{v} = {self.value(v)}"]
        if roll < 0.58:
            return [self.fill(rng.choice(WRITES), v)]
        if roll < 0.64:
            return [self.fill(rng.choice(BREAKS), v)]
        make = rng.choice(
            [
                self.handled,
                self.handled,
                self.managed,
                self.managed,
                self.called,
                self.looped,
                self.decided,
                self.graded,
            ]
        )
        return make(v, depth + 1)

    def handled(self, v: str, depth: int) -> list[str]:
        rng = self.rng
        lines = ["try:", *self.indent(self.block(v, depth))]
        kinds = rng.choice(
            ["IndexError", "RuntimeError", "Exception", "(IndexError, ValueError)", "torch.linalg.LinAlgError"]
        )
        only_finally = rng.random() < 0.25
        if not only_finally:
            lines += [
                f"except {kinds} as error:",
                *self.indent(["log.append(type(error).__name__)", *self.block(v, depth)]),
            ]
            if rng.random() < 0.2:
                lines += self.indent(
                    [rng.choice(["raise", "raise KeyError('again') from error", "raise ValueError('other')"])]
                )
            if rng.random() < 0.3:
                lines += ["else:", *self.indent(self.block(v, depth))]
        if only_finally or rng.random() < 0.3:
            lines += ["finally:", *self.indent([self.fill(rng.choice(WRITES), v), *self.statement(v, depth)])]
        return lines

    def managed(self, v: str, depth: int) -> list[str]:
        manager = self.rng.choice(
            [
                f"noted('{self.name('c')}')",
                "Swallow(IndexError)",
                "Swallow(RuntimeError, IndexError)",
                "contextlib.suppress(IndexError)",
                "contextlib.suppress(RuntimeError)",
                "torch.no_grad()",
                "torch.enable_grad()",
                "torch.autocast('cpu', dtype=torch.bfloat16, enabled=False)",
                "torch.random.fork_rng()",
                "contextlib.nullcontext()",
                "warnings.catch_warnings()",
            ]
        )
        return [f"with {manager}:", *self.indent(self.block(v, depth))]

    def called(self, v: str, depth: int) -> list[str]:
        rng = self.rng
        name = self.name("h")
        kind = rng.choice(
            ["plain", "plain", "closure", "method", "generator", "comprehension", "lambda", "apply", "map"]
        )
        inner = self.indent(self.block("v", depth))
        if kind == "comprehension":
            return [f"{v} = sum([part.sum() for part in {v}[i]]) + {v}"]
        if kind == "lambda":
            return [f"{v} = twice(lambda v: {self.value('v')}, {v})"]
        if kind == "closure":
            return [
                f"count{name} = 0",
                f"def {name}(v):",
                f"    nonlocal count{name}",
                f"    count{name} += 1",
                *inner,
                "    return v",
                f"{v} = {name}({v})",
                f"log.append(count{name})",
            ]
        if kind == "generator":
            self.functions += [
                f"def {name}(v, i, m, p):",
                "    try:",
                "        yield v",
                *self.indent(inner),
                "        yield v",
                "    finally:",
                f"        log.append('closed {name}')",
            ]
            return [f"for {v} in {name}({v}, i, m, p):", f"    {self.fill(rng.choice(WRITES), v)}"]
        self.functions += [f"def {name}(v, i, m, p):", *inner, "    return v"]
        call = {
            "plain": f"{v} = {name}({v}, i, m, p)",
            "method": f"{v} = Plain.__dict__.get('{name}', {name})({v}, i, m, p)",
            "apply": f"{v} = apply(functools.partial({name}, m=m, p=p), {v}, i)",
            "map": f"{v} = list(map(lambda each: {name}(each, i, m, p), [{v}]))[0]",
        }
        return [call[kind]]

    def decided(self, v: str, depth: int) -> list[str]:
        test = self.rng.choice(["flag", "not flag", "table['n'] % 2", "len(log) % 3 == 0", "torch.is_grad_enabled()"])
        lines = self.branch(test, 0.4, v, depth)
        if self.rng.random() < 0.15:
            lines += [f"if {test}: raise ValueError('by hand')"]
        return lines

    def graded(self, v: str, depth: int) -> list[str]:
        """A pass of gradients inside."""
        t = self.name("t")
        inner = self.rng.choice([self.value(v), f"{v} * 3"])
        after = self.rng.choice(["optimizer.step()", "optimizer.zero_grad()", "log.append(1)", "w.grad.mul_(0.5)"])
        lines = [f"{t} = (({inner}) * w).sum()", f"if {t}.requires_grad:", f"    {t}.backward()", f"    {after}"]
        # A second pass through the same history is an error of its own, which depends on what was saved.
        return [*lines, f"{v} = {v}.detach()"]


@program_class("back_to_eager")
def back_to_eager(rng: random.Random) -> Program:
    """One function, called with arguments that are good and bad by turns."""
    body = Failures(rng)
    lines = body.whole("v")
    lines.append("v = " + body.fill(rng.choice(FAILS), "v"))
    lines += body.block("v", 1) if rng.random() < 0.6 else []
    result = rng.choice(["v", "v.sum()", "(v, small)", "{'v': v, 'n': len(log)}", "[v, v * 2]"])
    source = [STATE, *body.functions, "def f(v, i, m, p, flag=True):", *body.indent(lines), f"    return {result}"]
    x = rng.choice(["x", "x", "xg"])
    calls = {
        "good": f"f({x}, i, m, p)",
        "bad_i": f"f({x}, bad_i, m, p)",
        "bad_m": f"f({x}, i, bad_m, p)",
        "bad_p": f"f({x}, i, m, bad_p)",
        "other": f"f({x}, i, m, p, False)",
    }
    steps = []
    for _ in range(rng.randint(5, 8)):
        steps.append(calls[rng.choice(["good", "good", "bad_i", "bad_i", "bad_m", "bad_p", "other"])])
    change = rng.choice(["small.add_(1)", "table['n'] += 1", "torch.manual_seed(5)", "gen.manual_seed(9)", "log.clear()",
                         "norm.eval()", "w.grad = None", "plain.count = 3"])  # fmt: skip
    steps.insert(rng.randint(2, len(steps)), change)
    steps += [calls["good"], calls[rng.choice(["bad_i", "bad_m", "bad_p"])], calls["good"]]
    # Contents of the log are guarded: a program may well be compiled more often than the limit allows.
    options = (
        ("options", {"recompile_limit": 1000}),
        *rng.choice([(), (), (), (("backend", "eager"),), (("dynamic", True),)]),
    )
    return Program("\n".join(source), tuple(steps), seed=rng.randint(0, 99), options=options)
