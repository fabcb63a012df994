"""Exceptions from outside at random moments: none is lost, and the program's state is one that eager could have.

usage: signal_storm.py [--count 1000] [--seed 0] [--only SCENARIO] [--kind KIND] [--python PATH ...] [--together]

NumPy programs run under each Python given, programs with torch under the first. Each program has a process of its own, which
may hang or die, unless they run --together.

A scenario is a program with a state. In eager it is run once instruction by instruction, and what its state was at each is
noted. Then it runs compiled, again and again, and each time a signal comes at a random moment of capture, compilation or
run (or a thread sends an exception). Its handler raises an exception of one of several kinds, or nothing. Looked at:

- the exception reaches the program exactly once, as the object that was raised; or CPython itself reports it as one that
  nobody can catch, where it was raised in a finalizer or a callback of a weak reference that is not ours, as in eager;
- the state that the handler sees, and the state afterwards, are among those that eager had;
- modes, gradients, the collector of cycles are as before, and the next signal is handled at once;
- the program, run on from there, does what eager does from there.

Left out, and counted, are signals that come while a context manager of torch's begins or ends: it leaves half of its work then,
in eager too.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import inspect
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

MANAGERS = {"__enter__", "__exit__", "__init__", "_vmap_increment_nesting", "_vmap_decrement_nesting"}

# Every source defines `start()`, which makes the state, `f`, and `program(f, s)`. SALT is a number that is new in each round,
# so that no kernel of a round before serves. What is printed is one string: CPython runs handlers between the parts of a
# print, which a look before each instruction does not see.
TORCH = {
    "effects": """
import torch
def start():
    return S(count=0, log=[], table={}, buffer=torch.zeros(4), kept=None, x=torch.arange(4.0))
def f(s, x):
    s.count += 1
    y = x * SALT + s.count
    s.log.append(s.count)
    for i in range(3):
        y = torch.relu(y - 3) + i
        s.table[f"k{i}"] = s.table.get(f"k{i}", 0) + 1
    s.buffer.add_(1)
    s.kept = y
    s.log.append("end")
    return y * 2
def program(f, s):
    for _ in range(3):
        s.last = f(s, s.x)
""",
    "breaks": """
import torch
def start():
    return S(out=io.StringIO(), log=[], x=torch.arange(6.0), held=[], n=0)
def inner(s, y):
    s.log.append("in")
    if y.sum().item() > 5:
        y = y + SALT
        s.held.append(y)
    print(f"said {len(s.held)}\\n", end="", file=s.out)
    y = torch.cumsum(y, 0)
    s.log.append("out")
    return y
def f(s, x):
    s.n += 1
    y = x * 2
    y = inner(s, y)
    z = inner(s, y - 4)
    s.held.append(z)
    return z.max()
def program(f, s):
    for _ in range(2):
        s.last = f(s, s.x)
        s.log.append(len(s.held))
""",
    "train": """
import torch
def start():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.arange(p.numel()).reshape(p.shape) % 3 - 1 + i % 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    return S(model=model, opt=opt, x=torch.arange(6.0).reshape(2, 3) - 2, losses=[])
def f(s, x):
    s.opt.zero_grad()
    loss = (s.model(x) * (SALT % 2 + 1)).sum()
    loss.backward()
    s.opt.step()
    s.losses.append(loss.detach())
    return loss.detach()
def program(f, s):
    for _ in range(2):
        s.last = f(s, s.x)
""",
    "backward": """
import torch
def start():
    a, b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)
    with torch.no_grad():
        for p in (*a.parameters(), *b.parameters()):
            p.copy_(torch.arange(p.numel()).reshape(p.shape) % 4 - 1)
    return S(a=a, b=b, x=torch.arange(6.0).reshape(2, 3) - 2, log=[])
def f(s, x):
    y = torch.relu(s.a(x)) + SALT % 5
    s.log.append(y.shape[0])
    print("part", file=S.null)
    return s.b(y).sum()
def program(f, s):
    for _ in range(2):
        loss = f(s, s.x)
        s.log.append("forward")
        loss.backward()
        s.log.append("backward")
""",
    "random": """
import torch
def start():
    return S(drop=torch.nn.Dropout(0.5), x=torch.ones(8), drawn=[], n=0)
def f(s, x):
    s.n += 1
    y = s.drop(x * (SALT % 7 + 1))
    s.drawn.append(torch.randint(0, 9, (3,)))
    y = y + torch.bernoulli(torch.full((8,), 0.5))
    s.n += 1
    return y
def program(f, s):
    for _ in range(3):
        s.drawn.append(f(s, s.x))
""",
    "long": """
import torch
def start():
    return S(x=torch.arange(4.0), w=torch.eye(4), log=[], b=torch.zeros(()))
def f(s, x):
    for i in range(150):
        x = torch.relu(x + (i + SALT) % 11) - i % 5
        if i % 30 == 7:
            x = x @ s.w
            s.b += 1
            s.log.append(i)
    return x
def program(f, s):
    s.last = f(s, s.x)
    s.last = f(s, s.x)
""",
    "contexts": """
import contextlib, torch
def start():
    return S(log=[], x=torch.arange(4.0, requires_grad=True), total=torch.zeros(4), depth=0)
class Noted:
    def __init__(self, s):
        self.s = s
    def __enter__(self):
        self.s.depth += 1
        return self
    def __exit__(self, *error):
        self.s.depth -= 1
@contextlib.contextmanager
def region(s):
    s.log.append("enter")
    yield SALT
    s.log.append("leave")
def pieces(s, x):
    for i in range(3):
        s.log.append(i)
        yield x * i
def f(s, x):
    with Noted(s), torch.no_grad():
        y = x + 1
        s.log.append(torch.is_grad_enabled())
    with region(s) as salt:
        for piece in pieces(s, x):
            y = y + piece * salt
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        s.total.add_(y.detach())
    return y
def program(f, s):
    for _ in range(2):
        s.last = f(s, s.x).detach()
""",
    "derived": """
import torch
from torch.utils.checkpoint import checkpoint
def start():
    return S(x=torch.arange(4.0), w=torch.full((4,), 2.0, requires_grad=True), log=[])
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
def f(s, x):
    s.log.append("a")
    y = torch.func.grad(lambda v: (v * v * (SALT % 3 + 1)).sum())(x)
    z = torch.vmap(lambda r: r.sum() + r)(torch.stack([y, x]))
    s.log.append("b")
    w = checkpoint(lambda v: torch.relu(v * s.w), z, use_reentrant=False)
    return Twice.apply(w).sum()
def program(f, s):
    for _ in range(2):
        loss = f(s, s.x)
        s.log.append("forward")
        loss.backward()
""",
    "explain": """
import torch, tatara
def start():
    return S(x=torch.arange(4.0), log=[])
def f(s, x):
    s.log.append(1)
    y = torch.relu(x - SALT % 9)
    s.log.append(2)
    return y + 1
def program(f, s):
    if isinstance(f, tatara._core.CompiledFunction):
        tatara.explain(f)(s, s.x)
    else:
        f(s, s.x)
    s.last = f(s, s.x)
""",
}
NUMPY = {
    "numpy": """
import numpy as np
def start():
    return S(x=np.arange(6.0), total=np.zeros(6), log=[], table={}, n=0)
def f(s, x):
    s.n += 1
    y = x * SALT + np.sqrt(x * x)
    s.total += 1
    s.log.append(s.n)
    for i in range(3):
        y = np.maximum(y - i, 0) + np.where(y > 3, y, i)
        s.table[i] = s.n
    s.total[1:3] = y[:2]
    return y.sum(), y
def program(f, s):
    for _ in range(3):
        s.last = f(s, s.x)
""",
    "numpy_breaks": """
import numpy as np
def start():
    return S(x=np.arange(6.0), log=[], out=io.StringIO(), n=0)
def part(s, y):
    if y.max() > 3:
        s.log.append(float(y.min()))
        y = y + SALT % 13
    print(f"part {s.n}\\n", end="", file=s.out)
    return np.cumsum(y)
def f(s, x):
    with np.errstate(all="ignore"):
        y = part(s, x * 2)
    s.n += 1
    y = part(s, y - 1)
    return np.stack([y, x])
def program(f, s):
    for _ in range(2):
        s.last = f(s, s.x)
        s.log.append("called")
""",
}


class S(types.SimpleNamespace):
    """The state of a program."""

    null = io.StringIO()


class InjectedError(Exception):
    """An ordinary exception of the program's own."""


class Stop(BaseException):
    """One that is no Exception."""


INSIDE = "inside of a transform, where tensors cannot be asked for their values"
KINDS = ("interrupt", "error", "timeout", "stop", "quiet", "sent")


def make(source: str, salt: int) -> Any:
    """The program's module."""
    module = types.ModuleType("program")
    module.__dict__.update(S=S, io=io, SALT=salt)
    exec(compile(source, f"<program {salt}>", "exec"), module.__dict__)
    return module


def started(module: Any) -> Any:
    """The program's state at its start, the same each time."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(5)
    return module.start()


def fingerprint(value: Any) -> Any:
    """What a state is, as plain data."""
    if isinstance(value, S):
        plain = {name: fingerprint(each) for name, each in sorted(vars(value).items())}
        if "torch" in sys.modules:
            if sys.modules["torch"]._C._functorch.peek_interpreter_stack() is not None:
                return INSIDE
            plain["generator"] = hash(sys.modules["torch"].get_rng_state().numpy().tobytes())
        return repr(plain)
    if isinstance(value, io.StringIO):
        return value.getvalue()
    if isinstance(value, dict):
        return {repr(key): fingerprint(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fingerprint(each) for each in value]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        assert not value.is_meta, "a placeholder in the program's state"
        return value.tolist(), str(value.dtype), value.requires_grad, fingerprint(value.grad if value.is_leaf else None)
    if torch is not None and isinstance(value, torch.nn.Module):
        return [fingerprint(p) for p in value.parameters()]
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        return [fingerprint(list(each.values())) for each in value.state.values()]
    if hasattr(value, "dtype"):
        return value.tolist(), str(value.dtype)
    return value


def states_of(module: Any) -> tuple[set[Any], Any]:
    """The states that eager goes through, looked at before each instruction, and the last one."""
    state = started(module)
    seen: set[Any] = {fingerprint(state)}

    def look(frame: Any, event: str, _arg: Any) -> Any:
        if "random.py" in frame.f_code.co_filename or frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            sys.settrace(None)
            seen.add(fingerprint(state))
            sys.settrace(look)
        return look

    # Python 3.12 reports instructions only if somebody asked for them before tracing began.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(look)
    try:
        module.program(module.f, state)
    finally:
        sys.settrace(None)
    last = fingerprint(state)
    return seen | {last, INSIDE}, last


def in_a_manager_of_torch(error: BaseException | None) -> bool:
    """Whether it was raised while a context manager of torch's began or ended. These leave half of their work then, in eager
    too: hooks that stay, levels of transforms that end twice.
    """
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            ours = f"{os.sep}torch{os.sep}" in frame.f_code.co_filename
            if ours and (frame.f_code.co_name in MANAGERS or frame.f_code.co_flags & inspect.CO_GENERATOR):
                return True
        error = error.__context__
    return False


def repair() -> None:
    """Puts torch's state back to what it is at the start of a process."""
    import torch

    gc.collect()
    functorch, autograd = torch._C._functorch, torch._C._autograd
    while (level := functorch.peek_interpreter_stack()) is not None:
        vmap = level.key() == functorch.TransformType.Vmap
        (functorch._vmap_decrement_nesting if vmap else functorch._grad_decrement_nesting)()
    autograd._saved_tensors_hooks_enable()
    while autograd._top_saved_tensors_default_hooks(False) is not None:
        autograd._pop_saved_tensors_default_hooks()
    torch.set_grad_enabled(True)


class Storm:
    """One program under signals."""

    def __init__(self, source: str, rng: random.Random) -> None:
        self.source = source
        self.rng = rng
        self.signals = 0  # that came while the program ran
        self.left_out = 0  # of them, because torch's own state is undefined then
        self.problems: list[str] = []
        self.seen_by_handler: list[Any] = []
        self.raised: list[BaseException] = []
        self.unraisable: list[BaseException] = []
        sys.unraisablehook = self.note_unraisable
        self.calm_seconds = {"cold": 0.0, "warm": 0.0}

    def round(self, phase: str, kind: str) -> None:
        """One run of the program with one signal."""
        import tatara

        salt = self.rng.randrange(1, 1000)
        module = make(self.source, salt)
        allowed, last = states_of(module)
        compiled = tatara.compile(module.f)
        if phase == "warm":
            module.program(compiled, started(module))
            module.program(compiled, started(module))
        state = started(module)
        delay = self.rng.random() * self.calm_seconds[phase] * 1.05 + 2e-6
        came, caught = self.disturb(kind, delay, state, lambda: module.program(compiled, state))
        if not came:
            return
        if any(map(in_a_manager_of_torch, caught)):
            for error in caught:
                error.__traceback__ = error.__context__ = None
            repair()
            self.left_out += 1
            return
        self.signals += 1
        where = f"{phase} {kind} salt {salt}"
        if caught != self.raised:
            self.problems.append(f"{where}: raised {self.raised}, caught {caught}")
        for seen in [*self.seen_by_handler, fingerprint(state)]:
            if seen not in allowed:
                self.problems.append(f"{where}: a state that eager never had: {seen}")
        if kind == "quiet" and fingerprint(state) != last:
            self.problems.append(f"{where}: not run to its end: {fingerprint(state)}")
        for error in caught:
            # Its frames keep generators of torch's context managers, which leave a level of a transform when they go.
            error.__traceback__ = error.__context__ = None
        self.check_calm(where)
        self.go_on(where, module, compiled, state)

    def note_unraisable(self, report: sys.UnraisableHookArgs) -> None:
        """What CPython has no caller for."""
        trace = report.exc_traceback
        while trace is not None and trace.tb_next is not None and trace.tb_next.tb_frame.f_code.co_filename != __file__:
            trace = trace.tb_next
        ours = trace is None or f"{os.sep}tatara{os.sep}" in trace.tb_frame.f_code.co_filename
        if report.exc_value is not None and not ours:
            self.unraisable.append(report.exc_value)

    def disturb(self, kind: str, delay: float, state: Any, run: Callable[[], None]) -> tuple[bool, list[BaseException]]:
        """Runs it with an exception on its way: whether it came, and what the program caught."""
        self.seen_by_handler, self.raised, self.unraisable = [], [], []
        caught: list[BaseException] = []
        over = False

        def handler(_number: int, _frame: Any) -> None:
            if over:
                return
            self.seen_by_handler.append(fingerprint(state))
            if kind == "quiet":
                return
            error = {
                "interrupt": KeyboardInterrupt, "error": InjectedError, "timeout": TimeoutError, "stop": Stop
            }[kind](f"number {self.signals}")  # fmt: skip
            self.raised.append(error)
            raise error

        sent: list[type] = []
        signal.signal(signal.SIGALRM, handler)
        thread = None
        try:
            try:
                if kind == "sent":
                    thread = threading.Thread(target=self.send, args=(delay, sent))
                    thread.start()
                else:
                    signal.setitimer(signal.ITIMER_REAL, delay)
                run()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                over = True
                if thread is not None:
                    thread.join()
                    for _ in range(10):
                        pass
        except BaseException as error:
            caught.append(error)
        caught += self.unraisable
        if sent:
            self.raised = [e for e in caught if type(e) is sent[0]] or [sent[0]("lost")]
        return bool(self.seen_by_handler or sent), caught

    def send(self, delay: float, sent: list[type]) -> None:
        time.sleep(delay)
        kind = type("SentError", (Exception,), {})
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(threading.main_thread().ident or 0), ctypes.py_object(kind)
        )
        sent.append(kind)

    def check_calm(self, where: str) -> None:
        """Everything is as it was before."""
        found = {"collector": gc.isenabled(), "main": threading.current_thread() is threading.main_thread()}
        wanted = {"collector": True, "main": True}
        if "torch" in sys.modules:
            torch = sys.modules["torch"]
            found |= {
                "modes": torch._C._len_torch_function_stack(),
                "grad": torch.is_grad_enabled(),
                "autocast": torch.is_autocast_enabled("cpu"),
                "hooks": torch._C._autograd._top_saved_tensors_default_hooks(False) is not None,
                "levels": torch._C._functorch.peek_interpreter_stack() is not None,
                "hooks refused": torch._C._autograd._saved_tensors_hooks_get_disabled_error_message(),
            }
            wanted |= {
                "modes": 0,
                "grad": True,
                "autocast": False,
                "hooks": False,
                "levels": False,
                "hooks refused": None,
            }
        if found != wanted:
            self.problems.append(f"{where}: left behind: {found}")
        came: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _frame: came.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(100):
            pass
        if len(came) != 1:
            self.problems.append(f"{where}: the next signal is not handled")

    def go_on(self, where: str, module: Any, compiled: Any, state: Any) -> None:
        """The program runs on, compiled and in eager."""
        torch = sys.modules.get("torch")
        beside = copy.deepcopy(state)
        before = torch.get_rng_state() if torch is not None else None
        module.program(module.f, beside)
        expected = fingerprint(beside)
        for _ in range(2):
            again = copy.deepcopy(state)
            if torch is not None:
                torch.set_rng_state(before)
            module.program(compiled, again)
            if fingerprint(again) != expected:
                self.problems.append(f"{where}: later calls differ: {fingerprint(again)} is not {expected}")

    def calibrate(self) -> None:
        """How long the program takes when nothing comes."""
        import tatara

        for _ in range(2):
            module = make(self.source, self.rng.randrange(1000, 2000))
            compiled = tatara.compile(module.f)
            for phase in ("cold", "warm", "warm"):
                state = started(module)
                start = time.perf_counter()
                module.program(compiled, state)
                self.calm_seconds[phase] = time.perf_counter() - start


def storm_on(name: str, seed: int, count: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Signals on one scenario."""
    import tatara

    tatara.config.cache = False
    rng = random.Random(f"{name} {seed}")
    storm = Storm({**TORCH, **NUMPY}[name], rng)
    storm.calibrate()
    tries = 0
    while storm.signals < count and tries < 10 * count + 20 and len(storm.problems) < 5:
        tries += 1
        storm.round(rng.choice(("cold", "cold", "warm")), rng.choice(kinds))
        tatara.reset()
    return {"signals": storm.signals, "left out": storm.left_out, "problems": storm.problems}


def run_child(python: str, name: str, seed: int, count: int, kinds: Sequence[str]) -> dict[str, Any]:
    """A process of its own: it may hang or die."""
    command = [python, "-X", "faulthandler", __file__, "--child", name, "--seed", str(seed), "--count", str(count)]
    command += [f"--kind={kind}" for kind in kinds]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * count, check=False)
    except subprocess.TimeoutExpired:
        return {"signals": 0, "problems": [f"{name} seed {seed}: hangs"]}
    if done.returncode != 0:
        return {"signals": 0, "problems": [f"{name} seed {seed}: exit {done.returncode}: {done.stderr[-3000:]}"]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def plan(pythons: list[str], only: list[str] | None, count: int) -> Iterator[tuple[str, str, int]]:
    """Which interpreter runs which scenario how often: torch is in the first one only."""
    names = [(pythons[0], name) for name in TORCH] + [(python, name) for python in pythons for name in NUMPY]
    names = [(python, name) for python, name in names if only is None or name in only]
    for i, (python, name) in enumerate(names):
        yield python, name, count // len(names) + (i < count % len(names))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append")
    parser.add_argument("--python", action="append")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(storm_on(arguments.child, arguments.seed, arguments.count, arguments.kind or KINDS)))
        return 0
    pythons = arguments.python or [sys.executable]
    total, failed = 0, 0
    for python, name, count in plan(pythons, arguments.only, arguments.count):
        if arguments.together:
            found = storm_on(name, arguments.seed, count, arguments.kind or KINDS)
        else:
            found = run_child(python, name, arguments.seed, count, arguments.kind or ())
        total += found["signals"]
        failed += len(found["problems"])
        left_out = f", {found['left out']} left out in torch's managers" if found.get("left out") else ""
        print(f"{python} {name}: {found['signals']} signals, {len(found['problems'])} problems{left_out}", flush=True)
        for problem in found["problems"]:
            print(f"  {problem[:1500]}", flush=True)
    print(f"{total} signals, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
