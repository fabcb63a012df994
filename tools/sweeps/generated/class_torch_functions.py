"""Objects with __torch_function__, and modes of torch functions and of dispatch: each call is seen once, in order."""

from __future__ import annotations

import random

from .harness import Program
from .registry import program_class

PRELUDE = """
import contextlib
import torch
from torch.overrides import TorchFunctionMode, is_tensor_like, has_torch_function
from torch.utils._python_dispatch import TorchDispatchMode

log = []
state = {"n": 0, "on": True}

def name_of(func):
    return getattr(func, "__name__", str(func))

class Logs(TorchFunctionMode):
    def __init__(self, name="logs", change=None):
        super().__init__()
        self.name, self.change, self.count = name, change, 0
    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        log.append((self.name, name_of(func), len(args), sorted(kwargs or {})))
        result = func(*args, **(kwargs or {}))
        if self.change and isinstance(result, torch.Tensor) and name_of(func) == "sin":
            result = result * self.change
        return result

class Dispatch(TorchDispatchMode):
    def __init__(self, name="dispatch"):
        super().__init__()
        self.name, self.count = name, 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        log.append((self.name, str(func)))
        return func(*args, **(kwargs or {}))

class Replaces(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            log.append("replaced")
            return torch.cos(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(("tagged", name_of(func), [t.__name__ for t in types]))
        return super().__torch_function__(func, types, args, kwargs or {})

class Plain(torch.Tensor):
    tag = 1

class Silent(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

class Like:
    # Not a tensor, but functions of torch take it.
    def __init__(self, value): self.value = value
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(("like", name_of(func)))
        args = [a.value if isinstance(a, Like) else a for a in args]
        return func(*args, **(kwargs or {}))

class Counts:
    calls = 0
    def __init__(self, value): self.value = value
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls += 1
        if func is torch.add:
            return NotImplemented
        return Counts(cls.calls)
    def __add__(self, other): return ("added", self.value)
    def __radd__(self, other): return ("added to", self.value)

class Refuses:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append("refuses")
        raise ValueError("no " + name_of(func))

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
    def forward(self, y): return torch.sin(y * self.weight)

def number(v):
    if isinstance(v, torch.Tensor): v = v.detach()
    return round(float(v.value if isinstance(v, Like) else v), 3) if not isinstance(v, (tuple, Counts)) else v

torch.manual_seed(0)
mode = Logs("kept")
dispatch = Dispatch("kept dispatch")
tagged = torch.arange(3.0).as_subclass(Tagged)
plain = torch.arange(3.0).as_subclass(Plain)
silent = torch.arange(3.0).as_subclass(Silent)
like = Like(torch.ones(3))
counts = Counts(0)
refuses = Refuses()
module = Module()
"""

SIMPLE = """
y = torch.sin(y)
y = y + 1
y = y * 2
y = torch.add(y, torch.ones(3))
y = y.cos()
y = torch.nn.functional.relu(y)
y = torch.nn.functional.softmax(y, 0)
y = y.reshape(3, 1).squeeze(1)
y = y.clone().add_(1)
y = torch.where(y > 0, y, -y)
y = torch.stack([y, y]).sum(0)
y = module(y)
log.append(y.shape[0])
log.append(y.dim())
log.append(len(y))
log.append(y.dtype is torch.float32)
log.append(y.is_floating_point())
log.append(isinstance(y, torch.Tensor))
log.append(type(y).__name__)
log.append(number(y.sum()))
log.append(y.sum().item() > 0)
log.append(y.requires_grad)
log.append(is_tensor_like(y))
log.append(has_torch_function((y,)))
print(number(y.sum()))
if y.sum() > 3: y = y - 3
y[0] = 1
z = y[1:]; y = y + z.sum()
y = y.to(torch.float64).to(torch.float32)
y = y.detach()
y = torch.rand(3) * 0 + y
y = torch.dropout(y, 0.5, False)
a, b = y[:1], y[1:]; y = torch.cat([a, b])
y = y.numpy().sum() + y if type(y) is torch.Tensor else y
y = y @ torch.eye(3)
y = (y == y).float() + y
log.append(mode.count)
log.append(dispatch.count)
state["n"] += 1
y = sum([y, y])
for v in y: log.append(number(v))
""".strip().split("\n")

OTHERS = """
w = tagged + 1; log.append(type(w).__name__)
w = torch.sin(tagged); y = y + w.sum().as_subclass(torch.Tensor)
w = tagged * y; log.append(type(w).__name__)
w = y + tagged; log.append((type(w).__name__, number(w.sum())))
log.append(number(tagged.sum()))
log.append(tagged.shape)
w = plain + y; log.append((type(w).__name__, w.tag))
w = torch.cat([plain, y]); log.append(type(w).__name__)
w = silent + y; log.append(type(w).__name__)
w = torch.add(silent, 1); log.append(type(w).__name__)
y = y + torch.sin(like)
y = torch.add(y, like)
y = torch.mul(like, y)
w = torch.stack([like.value, y]).sum(); y = y + w
w = torch.sin(counts); log.append(w.value)
w = counts + y; log.append(w)
w = y + counts; log.append(w if isinstance(w, tuple) else w.value)
w = torch.mul(counts, y); log.append((w.value, Counts.calls))
torch.sin(refuses)
torch.add(y, refuses)
y = torch.nn.functional.linear(y, torch.eye(3), like) if False else y
w = torch.Tensor.add(plain, 1); log.append(type(w).__name__)
w = y.as_subclass(Tagged).sum(); log.append(type(w).__name__)
w = y.as_subclass(Plain); w.tag = 5; log.append((w.tag, type(w).__name__))
w = torch.nn.Parameter(tagged.detach().clone()); log.append(type(w).__name__)
with torch._C.DisableTorchFunctionSubclass(): w = tagged + 1; log.append(type(w).__name__)
with torch._C.DisableTorchFunction(): w = torch.sin(tagged); log.append(type(w).__name__)
tagged.add_(1)
like.value = y
log.append(torch.is_tensor(like))
log.append(torch.overrides.get_overridable_functions is None)
""".strip().split("\n")

MANAGERS = [
    "Logs('a')",
    "Logs('b', 2)",
    "Logs('a'), Logs('b')",
    "Replaces()",
    "mode",
    "Dispatch('d')",
    "dispatch",
    "Logs('a'), Dispatch('d')",
    "torch.device('cpu')",
    "torch.no_grad()",
    "contextlib.nullcontext()",
    "torch._C.DisableTorchFunctionSubclass()",
]


@program_class("torch_functions")
def torch_functions(rng: random.Random) -> Program:
    """Torch functions on such objects under such modes, in graphs that break."""

    def lines(count: int, depth: int) -> list[str]:
        made: list[str] = []
        for _ in range(count):
            kind = rng.random()
            if kind < 0.5:
                made.append(rng.choice(SIMPLE))
            elif kind < 0.75:
                line = rng.choice(OTHERS)
                made += ["try:", f"    {line}", "except (ValueError, TypeError) as e: log.append(str(e)[:20])"] if "refuses" in line or rng.random() < 0.2 else [line]  # fmt: skip
            elif depth > 0:
                made.append(f"with {rng.choice(MANAGERS)}:")
                made += ["    " + line for line in lines(rng.randint(1, 3), depth - 1)]
            else:
                made.append(rng.choice(SIMPLE))
        return made

    body = lines(rng.randint(2, 6), 2)
    if rng.random() < 0.25:
        cut = rng.randint(0, 2)
        body = ["def inner(y):", *("    " + line for line in body), "    return y", *SIMPLE[:cut], "y = inner(y)"]
    text = [
        PRELUDE,
        "def f(x):",
        "    y = x",
        *("    " + line for line in body),
        "    return y",
        "x = torch.linspace(-1, 1, 3)",
    ]
    arguments = ["x", "x", "x", "tagged", "plain", "silent", "x.double()", "-x"]
    argument = rng.choice(arguments)
    steps = []
    for _ in range(5):
        call = f"f({rng.choice(arguments) if rng.random() < 0.2 else argument})"
        steps.append(f"with {rng.choice(MANAGERS)}: out = {call}" if rng.random() < 0.25 else call)
    steps.insert(rng.randint(2, 4), rng.choice(["log.clear()", "mode.count = 0", "like.value = torch.zeros(3)", "Counts.calls = 10", "tagged = plain", "x = x * 2", "Tagged.__torch_function__ = torch.Tensor.__torch_function__"]))  # fmt: skip
    return Program("\n".join(text), tuple(steps))
