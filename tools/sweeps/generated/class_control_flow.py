"""Order and number of effects in nests of try, with, loops, generators and functions that tensors break into several graphs."""

from __future__ import annotations

import random

from .harness import Program
from .registry import program_class

PRELUDE = """
import contextlib, contextvars, sys, traceback, warnings
import torch

class Stop(Exception): pass
class Odd(Stop): pass
class Base(BaseException): pass

class Manager:
    def __init__(self, name, swallow=False, fails=None):
        self.name, self.swallow, self.fails = name, swallow, fails
    def __enter__(self):
        log.append(("enter", self.name))
        if self.fails == "enter": raise Odd(self.name)
        return self
    def __exit__(self, kind, value, tb):
        log.append(("exit", self.name, kind and kind.__name__, tb is not None))
        if self.fails == "exit": raise Stop("exit of " + str(self.name))
        return self.swallow

class Tensors(Manager):
    def __exit__(self, kind, value, tb):
        log.append(("sum", self.name, bool(held[0].sum() > 0)))
        return super().__exit__(kind, value, tb)

@contextlib.contextmanager
def managed(name, swallow=False):
    log.append(("before", name))
    try:
        yield name
    except Stop as e:
        log.append(("seen", name, type(e).__name__, str(e)))
        if not swallow: raise
    finally:
        log.append(("after", name))

variable = contextvars.ContextVar("variable", default=0)
log = []
held = [torch.ones(2)]
state = {"k": 0, "on": True}

def tell(*what):
    log.append(what)
    return what[-1]

def error():
    kind, value, tb = sys.exc_info()
    log.append(("error", kind and kind.__name__, str(value), tb is not None))
    if value is not None:
        c = value.__context__
        log.append(("context", type(c).__name__, type(value.__cause__).__name__, value.__suppress_context__))

def lines():
    return [(f.name) for f in traceback.extract_tb(sys.exc_info()[2])]
"""


class _Writer:
    """Random statements; each says in the log that it ran."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tag = 0
        self.budget = 26
        self.functions: list[str] = []
        self.names = 0

    def next_tag(self) -> int:
        self.tag += 1
        return self.tag

    def condition(self) -> str:
        r = self.rng
        return r.choice(
            [
                f"n > {r.randint(0, 3)}",
                f"n == {r.randint(0, 3)}",
                "n % 2",
                f"state['k'] % {r.randint(2, 3)} == {r.randint(0, 1)}",
                "state['on']",
                f"y.sum() > {r.choice([-3, 0, 1, 4])}",
                f"y.sum().item() > {r.choice([-3, 0, 1, 4])}",
                "y.shape[0] > 2",
                f"tell({self.next_tag()}, n > {r.randint(0, 2)})",
                f"len(log) % {r.randint(2, 3)}",
            ]
        )

    def simple(self, in_loop: bool, in_handler: bool, in_function: bool) -> list[str]:
        r = self.rng
        t = self.next_tag()
        choices = [
            f"log.append({t})",
            f"tell({t}, 'a')",
            f"print({t})",
            "y = y + 1",
            "y = y * 2 - n",
            "y = torch.sin(y)",
            "y = y.relu() + 0.5",
            f"log.append(({t}, round(y.sum().item(), 2)))",
            f"log.append(({t}, bool(y.sum() > 0)))",
            "held[0] = y",
            "held.append(y)",
            "state['k'] += 1",
            "state['on'] = not state['on']",
            f"variable.set({t})",
            "log.append(variable.get())",
            "y.add_(1)" if not in_function else "y = y - 1",
            f"log.append((sys.exc_info()[0] is None, {t}))",
            f"warnings.warn('w{t}')",
            "torch._dynamo.graph_break() if False else None",
            "assert n < 9, 'n'",
        ]
        if in_handler:
            choices += ["error()", "log.append(lines())", "log.append(traceback.format_exc().splitlines()[-1])"] * 2
        return [r.choice(choices)]

    def leave(self, in_loop: bool, in_handler: bool, in_function: bool) -> list[str]:
        """A statement that goes elsewhere."""
        r = self.rng
        t = self.next_tag()
        choices = [f"raise {r.choice(['Stop', 'Odd', 'ValueError', 'KeyError'])}({t})"] * 2
        choices.append(f"return tell({t}, y)")
        choices.append("return y")
        choices.append(f"{{}}[{t}]")
        choices.append("y[100]")
        choices.append("y.reshape(7, 7)")
        choices.append("raise Base('b')")
        if in_loop:
            choices += ["break", "continue"] * 4
        if in_handler:
            choices += ["raise", f"raise Odd({t}) from None", f"raise Odd({t}) from sys.exc_info()[1]"]
        line = r.choice(choices)
        if r.random() < 0.85:
            return [f"if {self.condition()}:", "    " + line]
        return [line]

    def block(self, depth: int, in_loop: bool, in_handler: bool, in_function: bool = False) -> list[str]:
        lines: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            lines += self.statement(depth, in_loop, in_handler, in_function)
        return lines

    def statement(self, depth: int, in_loop: bool, in_handler: bool, in_function: bool) -> list[str]:
        r = self.rng
        self.budget -= 1
        if depth <= 0 or self.budget <= 0:
            return self.simple(in_loop, in_handler, in_function)
        kind = r.random()
        args = (in_loop, in_handler, in_function)

        def body(loop: bool = in_loop, handler: bool = in_handler) -> list[str]:
            return ["    " + line for line in self.block(depth - 1, loop, handler, in_function)]

        if kind < 0.25:
            return self.simple(*args)
        if kind < 0.4:
            return self.leave(*args)
        if kind < 0.65:
            lines = ["try:", *body()]
            handlers = r.choice([0, 1, 1, 2])
            for k in range(handlers):
                kinds = ["Stop", "Odd", "(Stop, KeyError)", "Exception", "ValueError", "BaseException", "LookupError"]
                name = f" as e{self.next_tag()}" if r.random() < 0.4 else ""
                lines += [f"except {r.choice(kinds)}{name}:", *body(handler=True)]
            if handlers and r.random() < 0.25:
                lines += ["else:", *body()]
            if not handlers or r.random() < 0.6:
                lines += ["finally:", *body()]
            return lines
        if kind < 0.77:
            t = self.next_tag()
            manager = r.choice(
                [
                    f"Manager({t})",
                    f"Manager({t}, True)",
                    f"Manager({t}, fails={r.choice(['enter', 'exit'])!r})",
                    f"Tensors({t}, {r.choice(['True', 'False'])})",
                    f"managed({t})",
                    f"managed({t}, True)",
                    "contextlib.suppress(Stop)",
                    f"contextlib.suppress({r.choice(['KeyError', 'ValueError', 'Exception'])})",
                    f"Manager({t}) as m, managed(m.name) as k",
                    "torch.no_grad()",
                    f"contextlib.ExitStack() as s{t}",
                    f"contextlib.closing(count(y, n, {t})) as g{t}",
                    f"warnings.catch_warnings(record=True) as w{t}",
                ]
            )
            lines = [f"with {manager}:"]
            if "ExitStack" in manager:
                lines.append(f"    s{t}.callback(tell, {t}, 'stack')")
                lines.append(f"    s{t}.enter_context(Manager('in stack', {r.choice(['True', 'False'])}))")
            if "closing" in manager:
                lines.append(f"    tell(next(g{t}))")
            return [*lines, *body()]
        if kind < 0.88:
            t = self.next_tag()
            head = r.choice(
                [
                    f"for i{t} in range({r.randint(1, 3)}):",
                    "for v in [1, 2, 3]:",
                    f"for v in count(y, {r.randint(1, 3)}, {t}):",
                    f"for v in count(y, n, {t}):",
                    f"for v in (tell({t}, k) for k in range(3)):",
                    f"for v in delegate(y, n, {t}):",
                    f"while w{t} < {r.randint(1, 3)}:",
                    "for v in y:",
                ]
            )
            lines = [f"w{t} = 0", head, f"    w{t} += 1"] if head.startswith("while") else [head]
            lines += body(loop=True)
            if r.random() < 0.3:
                lines += ["else:", *body()]
            return lines
        if kind < 0.93 and not in_function:
            self.names += 1
            name = f"inner{self.names}"
            inner = [f"def {name}(y, n):", *("    " + line for line in self.block(depth - 1, False, False, True)), "    return y"]  # fmt: skip
            call = r.choice([f"y = {name}(y, n)", f"tell({self.next_tag()}, {name}(y, n) is None)", f"y = {name}(y, n + 1)"])  # fmt: skip
            if r.random() < 0.5:
                self.functions.append("\n".join(inner))
                return [call]
            return [*inner, call]
        t = self.next_tag()
        return r.choice(
            [
                [f"g = count(y, n, {t})", "tell(next(g, None))", "g.close()"],
                [
                    f"g = count(y, 3, {t})",
                    "next(g)",
                    f"try: tell(g.throw({r.choice(['Stop', 'ValueError'])}({t})))",
                    "except Exception as e: tell(type(e).__name__)",
                ],
                [f"g = echo({t})", "next(g)", "tell(g.send(n))", "del g"],
                [f"g = delegate(y, n, {t})", "tell(next(g, None))", "g = None"],
                [f"tell([v for v in count(y, n, {t})][:1])"],
                [f"tell(any(tell({t}, v) for v in (0, n, 3)))"],
                [f"tell({t}, next(count(y, 2, {t})))"],
                ["y = sum(u for u in (y, y * 2))"],
                [f"a, b = tell({t}, 1), tell({t}, 2)"],
            ]
        )


GENERATORS = """
def count(y, n, tag):
    try:
        for k in range(int(n)):
            log.append(("yield", tag, k))
            yield k
        log.append(("done", tag))
    except {kind} as e:
        log.append(("thrown", tag, type(e).__name__))
        {caught}
    finally:
        log.append(("closed", tag{more}))

def echo(tag):
    got = None
    try:
        while True:
            got = yield got
            log.append(("got", tag, got))
    finally:
        log.append(("echo closed", tag))

def delegate(y, n, tag):
    try:
        got = yield from count(y, n, tag)
        log.append(("delegated", tag, got))
        yield from echo(tag) if n > 5 else [7]
    finally:
        log.append(("delegate closed", tag))
"""


@program_class("control_flow")
def control_flow(rng: random.Random) -> Program:
    """One function of such nests, and helpers of the same kind."""
    w = _Writer(rng)
    body = []
    while w.budget > 6 and len(body) < 40:
        body += w.statement(3, False, False, False)
    generators = GENERATORS.format(
        kind=rng.choice(["Stop", "ValueError", "GeneratorExit", "Exception"]),
        caught=rng.choice(["raise", "raise Odd(tag)", "pass", "raise"]),
        more=rng.choice(["", ", bool(y.sum() > 0)", ", sys.exc_info()[0] is None"]),
    )
    text = [PRELUDE, generators, *w.functions, "def f(x, n):", "    y = x + 1"]
    if rng.random() < 0.2:
        text.append("    held[0] = y")
    text += ["    " + line for line in body]
    text += ["    log.append('end')", "    return y", "x = torch.linspace(-1, 1, 3)"]
    steps = ["f(x, 1)", f"f(x, {rng.randint(0, 3)})", f"f(x, {rng.randint(1, 3)})", "f(x, 1)"]
    steps.append(
        rng.choice(
            [
                "state['on'] = False",
                "state['k'] = 1",
                "x = -x",
                "x = torch.ones(4)",
                "log.clear()",
                "held.clear(); held.append(x)",
            ]
        )
    )
    steps += [f"f(x, {rng.randint(0, 3)})", "f(x, 1)"]
    if rng.random() < 0.5:  # some calls where the caller handles an exception
        for k in rng.sample([0, 1, 2, 3, 5, 6], rng.randint(1, 3)):
            steps[k] = f"try: raise KeyError('caller')\nexcept KeyError: result = {steps[k]}"
    return Program("\n".join(text), tuple(steps))
