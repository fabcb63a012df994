"""Other compilers inside of compiled code and around it: torch.compile, torch.cond and its kin, flex_attention, torch.jit,
torch.fx, torch.export, AOTAutograd. Each runs as in eager, over three calls and one more after a change from outside.

`make other-compilers` runs the same table with the slow ones (inductor) and at every position.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.utils import _pytree as pytree

import tatara
from counters import counts
from generated import harness
from results import same

ALL = bool(os.environ.get("TATARA_ALL_COMPILERS"))

HEAD = """
import contextlib, functools, warnings
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as hop_map
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from functorch.compile import aot_function, aot_module, nop

torch._dynamo.reset()

def plain(x):
    return x.sin() * 2 + x.sum(-1, keepdim=True)

def two(x, y):
    return x * y, (x - y).relu()

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return torch.tanh(self.linear(x)) + x
"""

# Each is the source of a function `other` of a (4, 4) float tensor, run in the module.
COMPILERS: dict[str, str] = {
    "cond": """
def other(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2, (x,))
""",
    "cond_method": """
class Branches:
    def yes(self, a): return a * self.k
    def no(self, a): return a - self.k
    def __init__(self): self.k = 3.0
branches = Branches()
def other(x):
    return torch.cond(x.mean() > 0.1, branches.yes, branches.no, [x * 2])
""",
    "nested_cond": """
def inner(a):
    return torch.cond(a.sum() > 1, lambda b: b + 1, lambda b: b - 1, (a,))
def other(x):
    return torch.cond(x.sum() > 0, inner, lambda a: a.cos(), (x,))
""",
    "while_loop": """
def other(x):
    return torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 1.5), (torch.tensor(0), x))[1]
""",
    "while_loop_operator": """
def other(x):
    return while_loop(lambda i, a: a.sum().abs() < 100, lambda i, a: (i + 1, a * 2 + 1), (torch.tensor(0), x.abs()))[1]
""",
    "scan": """
def other(x):
    carry, rows = scan(lambda c, y: (c + y, c * y), torch.zeros(4), x, dim=0)
    return rows + carry
""",
    "associative_scan": """
def other(x):
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
""",
    "map": """
def other(x):
    return hop_map(lambda row, k: row * k + 1, x, x[0])
""",
    "flex_attention": """
def other(x):
    q = x.reshape(1, 1, 4, 4)
    return flex_attention(q, q * 2, q, score_mod=lambda s, b, h, i, j: s + i - j).reshape(4, 4)
""",
    "flex_attention_mask": """
def other(x):
    q = x.reshape(1, 1, 4, 4)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 4, 4, device="cpu")
    return flex_attention(q, q, q, block_mask=mask).reshape(4, 4)
""",
    "script": """
scripted = torch.jit.script(Block())
def other(x):
    return scripted(x)
""",
    "script_function": """
@torch.jit.script
def scripted(x):
    if bool(x.sum() > 0):
        return x * 2
    return x - 1
def other(x):
    return scripted(x)
""",
    "script_inside": """
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
def other(x):
    return torch.jit.script(Block())(x).detach() * 0 + x
""",
    "trace": """
traced = torch.jit.trace(plain, (torch.randn(4, 4),))
def other(x):
    return traced(x)
""",
    "trace_inside": """
def other(x):
    return torch.jit.trace(plain, (x,))(x + 1)
""",
    "symbolic_trace": """
graph = torch.fx.symbolic_trace(Block())
def other(x):
    return graph(x)
""",
    "symbolic_trace_inside": """
def other(x):
    return torch.fx.symbolic_trace(plain)(x)
""",
    "make_fx": """
graph = make_fx(plain, tracing_mode="symbolic")(torch.randn(4, 4))
def other(x):
    return graph(x)
""",
    "make_fx_inside": """
def other(x):
    return make_fx(plain)(x)(x * 2)
""",
    "make_fx_fake_inside": """
def other(x):
    return make_fx(plain, tracing_mode="fake")(x)(x * 2)
""",
    "export": """
exported = torch.export.export(Block(), (torch.randn(4, 4),)).module()
def other(x):
    return exported(x)
""",
    "export_inside": """
block = Block()
def other(x):
    return torch.export.export(block, (x.detach(),)).module()(x)
""",
    "aot_function": """
aot = aot_function(plain, fw_compiler=nop)
def other(x):
    return aot(x)
""",
    "aot_module": """
aot = aot_module(Block(), fw_compiler=nop)
def other(x):
    return aot(x)
""",
    "disable": """
disabled = torch.compiler.disable(plain)
def other(x):
    return disabled(x)
""",
    "disable_inside": """
def other(x):
    return torch.compiler.disable(plain)(x)
""",
    "disable_without_callees": """
disabled = torch.compiler.disable(plain, recursive=False)
def other(x):
    return disabled(x)
""",
    "checkpoint_of_compiled": """
compiled = torch.compile(plain, backend="eager", fullgraph=True)
def other(x):
    return torch.utils.checkpoint.checkpoint(compiled, x, use_reentrant=False)
""",
    "compiled_checkpoint": """
@torch.compile(backend="aot_eager", fullgraph=True)
def compiled(x):
    return torch.utils.checkpoint.checkpoint(plain, x, use_reentrant=False) * 2
def other(x):
    return compiled(x)
""",
    "compile_breaks": """
@torch.compile(backend="eager")
def compiled(x):
    y = x * 2
    print("inside")
    return y.sin() if y.sum() > 0 else y.cos()
def other(x):
    return compiled(x)
""",
    "compiled_method": """
class Holder:
    def __init__(self): self.k = 2.0
    @torch.compile(backend="eager", fullgraph=True)
    def go(self, x): return x * self.k
holder = Holder()
def other(x):
    return holder.go(x)
""",
    "compiled_grad": """
@torch.compile(backend="eager", fullgraph=True)
def compiled(x):
    return torch.func.grad(lambda a: a.sin().sum())(x)
def other(x):
    return compiled(x)
""",
    "compiled_mutation": """
state = torch.zeros(4, 4)
@torch.compile(backend="aot_eager", fullgraph=True)
def compiled(x):
    state.add_(x.detach())
    return x + state
def other(x):
    return compiled(x)
""",
    "compiled_error": """
@torch.compile(backend="eager", fullgraph=True)
def compiled(x):
    return x @ x[:3, :2]
def other(x):
    try:
        return compiled(x)
    except Exception as error:
        return x * len(type(error).__mro__)
""",
    "fullgraph_error": """
@torch.compile(backend="eager", fullgraph=True)
def compiled(x):
    print("cannot be in a graph")
    return x
def other(x):
    try:
        return compiled(x)
    except torch._dynamo.exc.Unsupported:
        return x * 3
""",
    "tatara_below": """
import tatara
below = tatara.compile(plain)
compiled = torch.compile(lambda x: below(x) + 1, backend="eager", fullgraph=True)
def other(x):
    return compiled(x)
""",
    "tatara_below_breaks": """
import tatara
@tatara.compile
def below(x):
    print("below")
    return plain(x)
compiled = torch.compile(lambda x: below(x) + 1, backend="eager")
def other(x):
    return compiled(x)
""",
}
BACKENDS = ["eager", "aot_eager", *(["aot_eager_decomp_partition", "ts", "inductor"] if ALL else [])]
for backend, full, dynamic in itertools.product(BACKENDS, (True, False), (None, True) if ALL else (None,)):
    if dynamic and backend not in ("eager", "inductor"):
        continue
    how = f'backend="{backend}", fullgraph={full}' + (f", dynamic={dynamic}" if dynamic else "")
    name = f"{backend}_{'full' if full else 'part'}{'_dynamic' if dynamic else ''}"
    COMPILERS[f"compile_{name}"] = f"""
compiled = torch.compile(plain, {how})
def other(x):
    return compiled(x)
"""
    COMPILERS[f"compile_{name}_inside"] = f"""
def other(x):
    return torch.compile(plain, {how})(x)
"""
    COMPILERS[f"compile_{name}_module"] = f"""
compiled = torch.compile(Block(), {how})
def other(x):
    return compiled(x)
"""

# Where `other` is called in the compiled function `f`.
POSITIONS: dict[str, str] = {
    "expression": """
def f(x):
    return other(x * 2) + 1
""",
    "callee": """
def helper(x, k):
    y = x * k
    z = other(y)
    return z - y
def f(x):
    return helper(x, 2) * helper(x, 3)
""",
    "loop": """
def f(x):
    total = torch.zeros(4, 4)
    for i in range(3):
        total = total + other(x * (i + 1))
    return total.sin()
""",
    "comprehension": """
def f(x):
    return sum([other(row.expand(4, 4)) for row in (x[0], x[1])])
""",
    "map": """
def f(x):
    a, b = map(other, (x, x * 2))
    return a - b
""",
    "method": """
class Owner:
    def __init__(self):
        self.seen = []
    def __call__(self, x):
        self.seen.append(x.shape)
        return other(x)
owner = Owner()
def f(x):
    return owner(x.cos()) * 2
""",
    "after_break": """
def f(x):
    y = x + 1
    print("before")
    z = other(y)
    k = z.sum().item()
    return other(z * 0.1) + (1 if k > 0 else 2)
""",
    "under_modes": """
def f(x):
    with torch.no_grad():
        a = other(x)
    with torch.enable_grad():
        b = other(x * 2)
    return a + b
""",
    "tried": """
def f(x):
    try:
        y = other(x)
    finally:
        log.append(1)
    return y * len(log)
log = []
""",
    "closure": """
def make(k):
    def inner(x):
        return other(x * k) + k
    return inner
parts = [make(1.0), make(2.0)]
def f(x):
    for part in parts:
        x = part(x)
    return x
""",
    "module": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return self.last(other(self.first(x)))
net = Net()
def f(x):
    return net(x)
""",
    "step": """
weight = torch.full((4, 4), 0.5, requires_grad=True)
def f(x):
    loss = other(x * weight).square().mean()
    loss.backward()
    with torch.no_grad():
        weight.sub_(weight.grad * 0.1)
    weight.grad = None
    return loss
""",
    "generator": """
def rows(x):
    for i in range(2):
        yield other(x + i)
def f(x):
    return torch.stack(list(rows(x)))
""",
}


def program(compiler: str, position: str, grad: bool) -> harness.Program:
    """Three calls, one with another value and one after a change from outside."""
    source = HEAD + COMPILERS[compiler] + POSITIONS[position]
    source += f"\nx = (torch.arange(16.0).reshape(4, 4) / 16).requires_grad_({grad})\ny = torch.ones(4, 4)\n"
    steps = ("f(x)", "f(x)", "f(y)", "with torch.no_grad():\n    x.mul_(-1)", "f(x)")
    if grad:
        steps += ("f(x).sum().backward() if f(x).requires_grad else None",)
    # Functions that are made in each call are other ones in each.
    return harness.Program(source, steps, options=(("options", {"recompile_limit": 100}),))


def positions_of(compiler: str) -> list[str]:
    """All; in the suite one for each compiler, another one for each."""
    names = list(POSITIONS)
    if "inductor" in compiler:  # 10 to 30 s each
        return ["callee", "step"] if "inside" in compiler else ["after_break"]
    if ALL:
        return names
    at = list(COMPILERS).index(compiler)
    return [names[(at * 5 + 3) % len(names)]]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_inside(compiler: str) -> None:
    for k, position in enumerate(positions_of(compiler)):
        for grad in (False, True) if ALL else (list(COMPILERS).index(compiler) % 2 == 0,):
            made = program(compiler, position, grad)
            try:
                if k == 0 and not (ALL and grad):
                    harness.observe(made, compiled=False)  # what torch says once in a process
                harness.compare(made)
            except harness.Differs as error:
                # What torch's compiler cannot capture is no wrong program: ours may take it.
                if "eager ('result', 'exception', 'torch._dynamo.exc'" in str(error):
                    continue
                pytest.fail(f"{compiler}, {position}, grad {grad}: {error}\n{made.text()}")


# Expressions of `f`, which is compiled: other compilers, and what they have made, around it.
AROUND: dict[str, str] = {
    "compile": 'torch.compile(lambda a: f(a) + 1, backend="eager", fullgraph=True)(x)',
    "compile_direct": 'torch.compile(f, backend="aot_eager", fullgraph=True)(x)',
    "compile_breaks": 'torch.compile(lambda a: [f(a), print("between"), f(a * 2)], backend="eager")(x)',
    "compile_method": 'torch.compile(lambda a: Methods().go(a), backend="eager", fullgraph=True)(x)',
    "compile_module": 'torch.compile(Uses(), backend="eager", fullgraph=True)(x)',
    "compile_bound": 'torch.compile(bound, backend="eager", fullgraph=True)(x)',
    "compile_gradient": "torch.autograd.grad(torch.compile(lambda a: f(a).sum(), backend='aot_eager')(g), g)",
    "cond": "torch.cond(x.sum() > 0, f, lambda a: a + 1, (x,))",
    "while_loop": "torch.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, f(a).clone()), (torch.tensor(0), x))",
    "scan": "scan(lambda c, a: (c + a, f(a.expand(4, 4)).sum(0) + c), torch.zeros(4), x)",
    "map": "hop_map(lambda a, b: f(a.expand(4, 4)) + b, x, x[0])",
    "flex_attention": "flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: scores(s, b, h, i, j))",
    "score_mod": "flex_attention(q, q, q, score_mod=scores)",
    "block_mask": "str(create_block_mask(masks, None, None, 4, 4, device='cpu').to_dense())",
    "trace": "torch.jit.trace(f, (x,))(y)",
    "trace_lambda": "torch.jit.trace(lambda a: f(a) * 2, (x,))(y)",
    "trace_module": "torch.jit.trace(Uses(), (x,))(y)",
    "symbolic_trace": "torch.fx.symbolic_trace(lambda a: f(a) * 2)(y)",
    "symbolic_trace_module": "torch.fx.symbolic_trace(Uses())(y)",
    "make_fx": "make_fx(f)(x)(y)",
    "make_fx_fake": "make_fx(f, tracing_mode='fake')(x)(y)",
    "make_fx_symbolic": "make_fx(lambda a: f(a) + 1, tracing_mode='symbolic')(x)(y)",
    "make_fx_functional": "make_fx(torch.func.functionalize(f))(x)(y)",
    "make_fx_gradient": "make_fx(torch.func.grad(lambda a: f(a).sum()))(x)(y)",
    "make_fx_vmap": "make_fx(torch.vmap(f))(torch.stack([x, y]))(torch.stack([y, x]))",
    "export": "torch.export.export(Uses(), (x,)).module()(y)",
    "export_strict": "torch.export.export(Uses(), (x,), strict=True).module()(y)",
    "aot_function": "aot_function(f, fw_compiler=nop)(g)",
    "aot_gradient": "torch.autograd.grad(aot_function(f, fw_compiler=nop)(g).sum(), g)",
    "functionalize": "torch.func.functionalize(f)(x)",
    "checkpoint": "torch.autograd.grad(checkpoint(f, g, use_reentrant=False).sum(), g)",
    "disable": "torch.compiler.disable(f)(x)",
    "stance": "stanced(x)",
    "fake": "fake(x)",
    "device": "on_device()",
    "inference": "torch.inference_mode()(f)(x)",
}
USERS = """
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
import tatara

{body}
f0 = f
class Methods:
    k = 2.0
    def go(self, x):
        return f(x) * self.k
class Uses(nn.Module):
    def forward(self, x):
        return f(x) + 1
def stanced(x):
    with torch.compiler.set_stance("force_eager"):
        return torch.compile(f, backend="eager")(x)
def fake(x):
    with FakeTensorMode() as mode:
        result = f(mode.from_tensor(x))
        return type(result).__name__, result.shape
def ones():
    return torch.ones(3) * 2
def on_device():
    with torch.device("meta"):
        return made().device.type
bound = lambda a: holder.go(a)
class Holder:
    def go(self, x):
        return f(x) - 1
holder = Holder()
def score(s, b, h, i, j):
    return s + i - j
def mask(b, h, i, j):
    return i >= j
scores, masks, made = tatara.compile(score), tatara.compile(mask), tatara.compile(ones)
x, y = torch.arange(16.0).reshape(4, 4) / 16, torch.ones(4, 4)
g = (x + 0.5).requires_grad_()
q = x.reshape(1, 1, 4, 4)
"""
BODIES = {
    "plain": "def f(x):\n    return x.sin() * 2 + x.sum(-1, keepdim=True)",
    "module": "block = Block().requires_grad_(False)\ndef f(x):\n    return block(x)",
    "in_place": "def f(x):\n    y = x * 2\n    y.add_(1)\n    y[0] = 3\n    return y * x",
}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("around", AROUND)
def test_around(around: str, warm: bool) -> None:
    names = list(BODIES)
    for name in names if ALL else (names[list(AROUND).index(around) % len(names)],):
        source = HEAD + USERS.format(body=BODIES[name])
        step = AROUND[around]
        steps = (step, step, step, "x.mul_(2)", step, "f(x)")
        made = harness.Program(source, ("f(x), f(g), made(), scores(x[0], 1, 2, 3, 4)", *steps) if warm else steps)
        try:
            harness.observe(made, compiled=False)  # what torch says once in a process
            harness.compare(made)
        except harness.Differs as error:
            pytest.fail(f"{around}, {name}: {error}\n{made.text()}")


def plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2 + x.sum(-1, keepdim=True)


def test_breaks_and_reasons() -> None:
    compiled = torch.compile(plain, backend="eager", fullgraph=True)

    def f(x: torch.Tensor) -> Any:
        return compiled(x * 2) + 1

    x = torch.randn(3, 4)
    report = tatara.explain(f)(x)
    assert len(report.graphs) == 2 and len(report.breaks) == 1
    assert "another compiler" in report.breaks[0].reason and "torch/_dynamo/eval_frame.py" in report.breaks[0].reason
    with pytest.raises(tatara.Unsupported, match="another compiler"):
        tatara.compile(f, fullgraph=True)(x)


def test_what_asks_for_compilers_breaks_nothing() -> None:
    def f(x: torch.Tensor) -> Any:
        if torch.jit.is_scripting() or torch.jit.is_tracing() or torch.compiler.is_dynamo_compiling():
            return x
        if torch.compiler.is_exporting() or torch.fx._symbolic_trace.is_fx_tracing():
            return x
        return torch.compiler.disable(plain)(x) + helper(x)

    @torch.jit.script_if_tracing
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    x = torch.randn(3, 4)
    torch.testing.assert_close(tatara.compile(f)(x), plain(x) + x.cos())
    report = tatara.explain(f)(x)
    assert len(report.graphs) == 1 and not report.breaks


@dataclasses.dataclass
class _Registered:
    a: Any
    b: Any = None


def test_containers_that_compilers_have_registered() -> None:
    """The functions that pytree calls for torch.Size and others stand in the files of compilers, and are none."""
    torch.export.register_dataclass(_Registered)
    containers = [
        torch.Size([2, 3]),
        immutable_list([torch.ones(3), 2.0]),
        immutable_dict(a=torch.ones(3), b=1),
        _Registered(torch.ones(3)),
        _Registered(1, (torch.ones(3), torch.Size([4]))),
    ]

    def f(x: torch.Tensor, tree: Any) -> Any:
        leaves, spec = pytree.tree_flatten(tree)
        again = pytree.tree_unflatten([x * leaf for leaf in leaves], spec)
        return pytree.tree_leaves(again), pytree.tree_leaves(pytree.tree_map(lambda leaf: leaf * 2, tree))

    x = torch.randn(3)
    for tree in containers:
        with counts() as grown:
            ours, theirs = tatara.compile(f)(x, tree), f(x, tree)
        assert [grown[k] for k in ("graphs", "breaks", "fallbacks")] == [1, 0, 0], tree
        same(ours, theirs)


def test_programs_are_told_that_they_are_compiled() -> None:
    """By each name of the question; torch's own code, and what goes on for real, is told what eager tells."""

    def library(x: torch.Tensor) -> torch.Tensor:
        told = torch.compiler.is_compiling(), torch._dynamo.is_compiling(), torch._utils.is_compiling()
        return x * 2 if all(told) else x * 3 if not any(told) else x

    def f(x: torch.Tensor) -> Any:
        before = library(x)
        print(end="")  # the graph breaks
        return before, library(x)

    x = torch.randn(3, 4)
    compiled = tatara.compile(f)
    for _ in range(3):
        first, second = compiled(x)
        torch.testing.assert_close((first, second), (x * 2, x * 2))
    torch.testing.assert_close(library(x), x * 3)
    torch.testing.assert_close(tatara.disable(library)(x), x * 3)
    assert not torch.compiler.is_compiling()

    adam = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [torch.optim.Adam([p], lr=0.1) for p in adam]
    steps = [optimizers[0].step, tatara.compile(optimizers[1].step)]
    for _ in range(3):
        for parameter, step in zip(adam, steps, strict=True):
            parameter.grad = torch.full((3,), 0.5)
            step()
    torch.testing.assert_close(adam[1], adam[0], rtol=1e-6, atol=1e-7)


def test_program_modes_inside() -> None:
    """A mode that the program enters after a graph break inside of a handler of ours is its own."""

    class Counts(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    def f(x: torch.Tensor, seen: list[str]) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        with Counts() as counts:
            z = torch.sin(y) + 1
        seen.extend(counts.names)
        return z * 3

    compiled = tatara.compile(f)
    for sign in (1, 1, -1, 1):
        theirs: list[str] = []
        ours: list[str] = []
        x = sign * torch.ones(3)
        expected = f(x, theirs)
        torch.testing.assert_close(compiled(x, ours), expected)
        assert ours == theirs
        assert torch._C._len_torch_function_stack() == 0


def in_threads(*functions: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_compile_with_both() -> None:
    """torch.compile takes the interpreter's frames as Tatara does; each sees its own thread's."""
    torch._dynamo.reset()
    x = torch.randn(4, 4, dtype=torch.float64)

    def body(k: int, notes: list[int]) -> Callable[..., Any]:
        def f(x: torch.Tensor) -> torch.Tensor:
            for i in range(3):
                x = step(x, i)
            return x

        def step(x: torch.Tensor, i: int) -> torch.Tensor:
            notes.append(i)
            return x.sin() * k + i

        return f

    def ours() -> None:
        for k in range(60):
            theirs_notes: list[int] = []
            notes: list[int] = []
            expected = body(k, theirs_notes)(x)
            compiled = tatara.compile(body(k, notes))
            for calls in range(1, 4):
                torch.testing.assert_close(compiled(x), expected)
                assert notes == theirs_notes * calls

    def others() -> None:
        for k in range(60):
            compiled = torch.compile(lambda x, k=k: x.sin() * k + 1, backend="eager", fullgraph=True)
            torch.testing.assert_close(compiled(x), x.sin() * k + 1)
            if k % 10 == 9:
                torch._dynamo.reset()

    in_threads(ours, others, ours)
    # Nobody's evaluator is left in place: a frame of neither is plain Python's again.
    compiled = tatara.compile(plain, fullgraph=True)
    torch.testing.assert_close(compiled(x), plain(x))


def test_another_threads_compiler_ends_while_we_trace() -> None:
    """The evaluator of torch.compile goes when its last call ends, and takes ours with it: the trace notices."""
    torch._dynamo.reset()
    entered = threading.Event()
    seen: list[int] = []
    started: list[bool] = []
    ended: list[bool] = []

    def wait(x: torch.Tensor) -> torch.Tensor:
        entered.set()
        while not started:
            time.sleep(0)
        return x

    def key(k: int) -> int:  # called by code in C, so that nothing stands between it and the interpreter
        if not started:
            started.append(True)
            turns = 0
            while not ended and turns < 3_000_000:  # the other thread has its turns
                turns += 1
        seen.append(k)
        return k

    def f(x: torch.Tensor) -> torch.Tensor:
        sorted([2, 1], key=key)
        seen.append(3)
        return x * 2

    compiled_by_torch = torch.compile(lambda x: wait(x) + 1, backend="eager")

    def other() -> None:
        compiled_by_torch(torch.ones(2))
        ended.append(True)

    thread = threading.Thread(target=other)
    compiled = tatara.compile(f)
    thread.start()
    entered.wait(20)
    for calls in range(1, 4):
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert seen == [2, 1, 3] * calls
        thread.join()
        started[:] = [] if calls == 1 else [True]  # first as the trace found it
        ended[:] = started
