"""Levels and modes around compiled functions and inside of them: torch.func's transforms, forward-mode derivatives,
torch.autograd.functional, batches of cotangents, no_grad, inference mode, autocast, hooks on saved tensors, function and
dispatch modes. They are entered before the first call, only at a later one, or left in between.
"""

from __future__ import annotations

import random

from .harness import Program
from .registry import program_class

HEAD = """
import contextlib, functools
import torch
import torch.autograd.forward_ad as fw
from torch import nn
from torch.autograd import functional as AF
from torch.func import (functional_call, functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize,
                        vjp, vmap)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

log = []

class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        log.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))

class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        log.append(str(func))
        return func(*args, **(kwargs or {}))

class Counts(Operators):
    # A pass of its own: which sum of gradients comes when, and how a gradient gets into a view's place, is the engine's affair.
    passed = ("aten.add.Tensor", "aten.new_zeros", "aten.copy_", "aten.slice_backward", "aten.select_backward", "aten.zeros")
    def __enter__(self):
        self.first = len(log)
        return super().__enter__()
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        views = any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.arguments)
        if not views and not str(func).startswith(self.passed):
            log.append(str(func))
        return func(*args, **(kwargs or {}))
    def __exit__(self, *error):
        log[self.first:] = sorted(map(str, log[self.first:]))
        return super().__exit__(*error)

def pack(t):
    log.append(("pack", tuple(t.shape)))
    return t * 1

def unpack(t):
    log.append("unpack")
    return t

def parts(o):
    if isinstance(o, torch.Tensor):
        return [o]
    return [t for each in (o.values() if isinstance(o, dict) else o) for t in parts(each)] if isinstance(o, (dict, list, tuple)) else []

def un(o):
    return [tuple(fw.unpack_dual(t)) for t in parts(o)]

def dual(t, k=1.0):
    return fw.make_dual(t, torch.full_like(t, k))

def total(o):
    return sum((t * t).sum() for t in parts(o) if t.is_floating_point())

class Twice(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x):
        return x * 2
    @staticmethod
    def setup_context(ctx, inputs, output):
        pass
    @staticmethod
    def backward(ctx, g):
        return g * 2
    @staticmethod
    def jvp(ctx, t):
        return t * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3).double()
    def forward(self, x):
        return torch.tanh(self.linear(x))

net = Net()
weight = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)
param = nn.Parameter(torch.tensor([0.5, -0.25, 1.0], dtype=torch.float64))
x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
y = torch.tensor([1.5, 0.25, -0.5], dtype=torch.float64)
g = torch.tensor([0.3, 0.7, -1.1], dtype=torch.float64, requires_grad=True)
batch = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(4, 3)
"""
# Statements that give `v` another value, of the same shape; `a` is the argument.
STATEMENTS = (
    "v = v.sin()",
    "v = v * a",
    "v = v + a.cos()",
    "v = torch.tanh(v) * 2",
    "v = v @ weight",
    "v = v * v.sum()",
    "v = v / (1 + v.abs())",
    "v = torch.softmax(v, -1)",
    "v = v.cumsum(-1)",
    "v = torch.where(v > 0, v, v * 0.5)",
    "v = v.flip(-1)",
    "v = torch.stack([v, a]).sum(0)",
    "v = torch.cat([v[..., 1:], v[..., :1]], -1)",
    "v = v.clone(); v.mul_(1.5)",
    "v = v * 1; v[..., 0] = 2.0",
    "v = v * 1; v += a",
    "v = v.exp().log1p()",
    "v = v.pow(2) * 0.25",
    "v = v + v.detach()",
    "v = v.unsqueeze(0).squeeze(0)",
    "v = torch.nn.functional.relu(v) + 0.1 * v",
    "v = v - v.mean()",
    "v = v.norm() * v",
    "v = torch.maximum(v, a)",
    "v = v.expand(2, 3).sum(0)",
    "v = v.view(v.shape)",
    "v = v.to(torch.float32).double()",
    "v = torch.outer(v, a).sum(0)",
    "v = v.sort().values",
    "v = v.index_select(-1, torch.tensor([2, 0, 1]))",
    "v = torch.einsum('i,ij->j', v, weight)",
    "v = v * param.detach()",
    "v = v * param",
    "v = net(v)",
    "v = Twice.apply(v)",
    "v = checkpoint(torch.sin, v, use_reentrant=False)",
    "v = inner(v)",
    "v = inner(v) + inner(a)",
    "v = grad(lambda z: (z * z.sin()).sum())(v)",
    "v = vmap(lambda r: r * 2 + 1)(v)",
    "v = vmap(lambda r, k: r * k)(v, torch.arange(3.0, dtype=torch.float64))",
    "v = jvp(torch.sin, (v,), (a,))[1]",
    "v = vjp(lambda z: z * z.sum(), v)[1](a)[0]",
    "v = jacrev(lambda z: z.sin() * z.sum())(v).sum(0)",
    "v = jacfwd(lambda z: z.cos())(v).sum(-1)",
    "v = hessian(lambda z: (z ** 3).sum())(v).diagonal()",
    "v = functional_call(net, {'linear.bias': v}, (a,))",
    "with torch.no_grad(): w = v * 2\n    v = v + w",
    "with torch.no_grad():\n        v = v.relu()",
    "with torch.enable_grad(): v = v.neg()",
    "for k in range(2): v = v * 0.5 + k",
    "if v.shape[-1] == 3: v = v + 1",
    "if a.requires_grad: v = v * 3",
    "if torch.is_grad_enabled(): v = v + 0.5",
    "if v.dim() == 1: v = v - 0.5",
    "v = sum(part for part in (v, a, v))",
    "assert isinstance(v, torch.Tensor)",
    "counts.append(len(counts))",
    "print('called')",
    "v = v + (fw.unpack_dual(v).tangent is None)",
    "v = v + v.is_leaf",
    "v = v + v.is_inference()",
    "v = v * (a.grad_fn is None)",
    "v = v + (0 if v.sum() > 100 else 1)",
    "v = v + torch.rand(3, dtype=torch.float64) * 0",
    "v = nn.functional.dropout(v, 0.5)",
    "v = kept[0] * v",
    "kept[0] = v.detach()",
    "stamp = v._version; v = v + stamp",
)
RESULTS = (
    "v",
    "v",
    "v",
    "v.sum()",
    "(v, v.sum())",
    "[v, a]",
    "{'v': v, 'k': 3}",
    "v, v * 2",
    "v.sum(), None",
    "v.T",
    "v[0]",
)
# Expressions; {f} is the compiled function.
PLAIN = ("{f}(x)", "{f}(g)", "{f}(y)", "{f}(x.clone())", "{f}(param)", "{f}(g * 1)")
TRANSFORMS = (
    "grad(lambda z: total({f}(z)))(x)",
    "grad(lambda z: total({f}(z)))(g)",
    "grad_and_value(lambda z: total({f}(z)))(x)",
    "grad(lambda z: ((r := {f}(z)), total(r))[1])(x)",
    "vjp({f}, x)[0]",
    "(lambda out, pull: pull(out))(*vjp({f}, x))",
    "jvp({f}, (x,), (y,))",
    "jvp({f}, (g,), (y,))",
    "vmap({f})(batch)",
    "vmap({f}, in_dims=1)(batch.t())",
    "vmap({f}, out_dims=-1)(batch)",
    "vmap({f}, chunk_size=3)(batch)",
    "vmap({f}, randomness='different')(batch)",
    "vmap({f}, randomness='same')(batch)",
    "vmap(vmap({f}))(batch.reshape(2, 2, 3))",
    "vmap(lambda z, w: {f}(z) if True else w, in_dims=(0, None))(batch, x)",
    "jacrev({f})(x)",
    "jacfwd({f})(x)",
    "jacrev({f}, chunk_size=2)(x)",
    "jacfwd(jacrev({f}))(x)",
    "jacrev(jacfwd({f}))(x)",
    "jacfwd(jacfwd({f}))(x)",
    "jacrev(jacrev({f}))(x)",
    "hessian(lambda z: total({f}(z)))(x)",
    "vmap(jacrev({f}))(batch)",
    "vmap(grad(lambda z: total({f}(z))))(batch)",
    "jacrev(vmap({f}))(batch)",
    "grad(lambda z: total(vmap({f})(z)))(batch)",
    "grad(lambda z: total(grad(lambda w: total({f}(w)))(z)))(x)",
    "jvp(grad(lambda z: total({f}(z))), (x,), (y,))",
    "vmap(lambda t: jvp({f}, (x,), (t,))[1])(batch)",
    "(lambda out, pull: vmap(lambda c: pull(c * parts(out)[0]))(batch[:, :1]))(*vjp({f}, x))",
    "(lambda out, push: (out, push(y), push(x)))(*linearize({f}, x))",
    "functionalize({f})(x)",
    "functionalize(vmap({f}))(batch)",
    "vmap(functionalize({f}))(batch)",
    "functional_call(net, {{'linear.bias': parts({f}(x))[0]}}, (y,))",
    "grad(lambda z: total({f}(y)) + z.sum())(x)",
    "vmap(lambda z: z * total({f}(y)))(batch)",
    "jvp(lambda z: {f}(y), (x,), (y,))",
    "grad(lambda p: total(functional_call(net, {{'linear.bias': p}}, (parts({f}(x))[0],))))(x)",
)
AUTOGRAD = (
    "torch.autograd.grad(total({f}(g)), g)",
    "torch.autograd.grad(total({f}(g)), g, create_graph=True)",
    "torch.autograd.grad(total({f}(g)), [g, param], allow_unused=True)",
    "torch.autograd.grad(total({f}(g)), [g, param], materialize_grads=True, allow_unused=True)",
    "torch.autograd.grad(torch.autograd.grad(total({f}(g)), g, create_graph=True)[0].sum(), g)",
    "(lambda r: torch.autograd.grad(r, g, torch.stack([r.detach(), r.detach() * 2]), is_grads_batched=True))(parts({f}(g))[0])",
    "(lambda r: vmap(lambda c: torch.autograd.grad(r, g, c * r.detach(), retain_graph=True)[0])(batch[:, 0]))(parts({f}(g))[0])",
    "(lambda r: vmap(lambda c: torch.autograd.grad(r, g, c * r.detach(), create_graph=True)[0])(batch[:, 0]))(parts({f}(g))[0])",
    "(lambda r: vmap(vmap(lambda c: torch.autograd.grad(r, g, c * r.detach(), retain_graph=True)[0]))(batch[:, :2]))(parts({f}(g))[0])",
    "(lambda r: grad(lambda c: total(torch.autograd.grad(r, g, c * r.detach(), create_graph=True)[0]))(x[0]))(parts({f}(g))[0])",
    "(lambda r: jacrev(lambda c: torch.autograd.grad(r, g, c * r.detach(), create_graph=True)[0])(x[0]))(parts({f}(g))[0])",
    "(lambda r: jvp(lambda c: torch.autograd.grad(r, g, c * r.detach(), create_graph=True)[0], (x[0],), (y[0],)))(parts({f}(g))[0])",
    "AF.jacobian({f}, x)",
    "AF.jacobian({f}, x, create_graph=True)",
    "AF.jacobian({f}, x, vectorize=True)",
    "AF.jacobian({f}, x, vectorize=True, strategy='forward-mode')",
    "AF.jacobian({f}, x, strict=True)",
    "AF.hessian(lambda z: total({f}(z)), x)",
    "AF.hessian(lambda z: total({f}(z)), x, vectorize=True)",
    "AF.hessian(lambda z: total({f}(z)), x, vectorize=True, outer_jacobian_strategy='forward-mode')",
    "AF.vjp({f}, x, y)",
    "AF.jvp({f}, x, y)",
    "AF.vhp(lambda z: total({f}(z)), x, y)",
    "AF.hvp(lambda z: total({f}(z)), x, y)",
    "total({f}(g)).backward()",
    "total({f}(g)).backward(retain_graph=True)",
    "checkpoint({f}, g, use_reentrant=False)",
    "torch.autograd.grad(total(checkpoint({f}, g, use_reentrant=False)), g)",
    "torch.autograd.grad(total(checkpoint({f}, g, use_reentrant=True)), g)",
    "torch.autograd.gradcheck(lambda z: total({f}(z)), g, raise_exception=False) * 0",
)
# A level for one call: statements; r is the result.
LEVELS = (
    "with fw.dual_level():\n    r = un({f}(dual(x)))",
    "with fw.dual_level():\n    r = un({f}(dual(g, 2.0)))",
    "with fw.dual_level():\n    d = dual(g)\n    r = un({f}(d))\n    r = r, torch.autograd.grad(total([q for p in r for q in p if q is not None]), g, allow_unused=True)\n    del d",
    "with fw.dual_level():\n    r = {f}(x), un({f}(dual(y))), {f}(y)",
    "with fw.dual_level():\n    r = un({f}(fw.unpack_dual(dual(x)).primal))",
    "with fw.dual_level():\n    r = un({f}(fw.unpack_dual(dual(x)).tangent))",
    "with fw.dual_level():\n    r = un({f}(dual(x.clone()) * 2))",
    "with fw.dual_level():\n    r = un(vmap({f})(dual(batch)))",
    "with fw.dual_level():\n    r = un(grad(lambda z: total({f}(z)))(dual(x)))",
    "with fw.dual_level():\n    r = un(torch.autograd.grad(total({f}(g)), g, dual(torch.ones((), dtype=torch.float64))))",
    "with fw.dual_level():\n    d = dual(x)\nr = {f}(d)\ndel d",
    "with torch.no_grad():\n    r = {f}(g)",
    "with torch.no_grad():\n    r = {f}(x), vmap({f})(batch)",
    "with torch.no_grad():\n    r = grad(lambda z: total({f}(z)))(x)",
    "with torch.inference_mode():\n    r = {f}(x)",
    "with torch.inference_mode():\n    r = {f}(g)",
    "with torch.inference_mode():\n    r = {f}(x * 1)",
    "with torch.inference_mode():\n    r = vmap({f})(batch)",
    "with torch.inference_mode():\n    z = x * 1\nr = {f}(z)\ndel z",
    "with torch.enable_grad():\n    r = {f}(g)",
    "with torch.set_grad_enabled(False):\n    r = {f}(g)",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    r = {f}(x)",
    "with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n    r = {f}(g)",
    "with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n    r = torch.autograd.grad(total({f}(g)), g)",
    "with torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n    r = grad(lambda z: total({f}(z)))(x)",
    "with torch.autograd.graph.save_on_cpu():\n    r = torch.autograd.grad(total({f}(g)), g)",
    "with torch.autograd.graph.allow_mutation_on_saved_tensors():\n    r = torch.autograd.grad(total({f}(g)), g)",
    "with Functions():\n    r = {f}(x)",
    "with Functions():\n    r = torch.autograd.grad(total({f}(g)), g)",
    "with Operators():\n    r = {f}(x)",
    "with Operators():\n    r = {f}(g)",
    "with Operators():\n    r = vmap({f})(batch)",
    "with Operators():\n    r = torch.autograd.grad(total({f}(g)), g)",
    "r = total({f}(g))\nwith Counts():\n    r = torch.autograd.grad(r, g)",
    "with Functions(), Operators():\n    r = grad(lambda z: total({f}(z)))(x)",
    "with torch.device('cpu'):\n    r = {f}(x)",
    "with torch.autograd.forward_ad._set_fwd_grad_enabled(False):\n    r = {f}(x)",
    "with fw.dual_level(), torch.no_grad():\n    r = un({f}(dual(g)))",
    "with fw.dual_level(), torch.autograd.graph.saved_tensors_hooks(pack, unpack):\n    r = un({f}(dual(g)))",
    "with contextlib.ExitStack() as stack:\n    stack.enter_context(torch.no_grad())\n    r = {f}(g)\n    stack.enter_context(torch.enable_grad())\n    r = r, {f}(g)",
)
# A level that is entered in one step and left in a later one.
HELD = (
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.inference_mode()",
    "fw.dual_level()",
    "torch.autocast('cpu', dtype=torch.bfloat16)",
    "torch.autograd.graph.saved_tensors_hooks(pack, unpack)",
    "torch.set_grad_enabled(False)",
)
CHANGES = (
    "param = nn.Parameter(param.detach() * 2)",
    "with torch.no_grad():\n    param.mul_(0.5)",
    "net.requires_grad_(False)",
    "param.requires_grad_(False)",
    "x = x * 2",
    "g.grad = None",
    "kept[0] = y",
    "weight = weight.t()",
    "with torch.no_grad():\n    g.add_(0.25)",
    "g = g.detach()",
    "x = torch.linspace(0, 1, 3, dtype=torch.float32)",
    "counts.clear()",
)


def function(rng: random.Random, name: str, deep: bool) -> list[str]:
    """A function of one tensor."""
    few = rng.choice([1, 2, 3, 5])
    pool = [s for s in STATEMENTS if deep or "inner" not in s]
    lines = [f"def {name}(a):", "    v = a"]
    lines += ["    " + rng.choice(pool) for _ in range(few)]
    return [*lines, f"    return {rng.choice(RESULTS) if deep else 'v'}"]


def expression(rng: random.Random, kinds: tuple[tuple[str, ...], ...], name: str) -> str:
    return rng.choice(rng.choice(kinds)).replace("{f}", name).replace("{{", "{").replace("}}", "}")


@program_class("levels")
def levels(rng: random.Random) -> Program:
    """One or two compiled functions, called under levels at random."""
    lines = function(rng, "inner", False)
    nested = rng.random() < 0.4
    if nested:
        lines.insert(0, "@compiled")
    lines += function(rng, "f", True)
    who = "f"
    if rng.random() < 0.25:  # a compiled function that applies transforms to the compiled function
        who = "outer"
        chosen = expression(rng, (TRANSFORMS, AUTOGRAD, PLAIN), "f")
        lines += [
            "@compiled" if rng.random() < 0.7 else "",
            "def outer(z):",
            f"    return {chosen.replace('(x)', '(z)')}",
        ]
    kinds = rng.choice(
        (
            (TRANSFORMS,),
            (AUTOGRAD,),
            (LEVELS,),
            (LEVELS, PLAIN),
            (TRANSFORMS, AUTOGRAD),
            (PLAIN, TRANSFORMS, AUTOGRAD, LEVELS),
        )
    )
    few = [expression(rng, kinds, who) for _ in range(rng.randint(1, 3))]
    steps = [f"{who}(x)"] if rng.random() < 0.3 else []
    steps += [rng.choice(few) if k else few[0] for k in range(rng.randint(3, 5))]
    if rng.random() < 0.35:  # a level over some of the calls
        at, end = sorted(rng.sample(range(len(steps) + 1), 2))
        steps.insert(end, "held.__exit__(None, None, None); del held")
        steps.insert(at, f"held = {rng.choice(HELD)}; entered = held.__enter__()")
    steps += [rng.choice(CHANGES), few[0], expression(rng, (PLAIN, TRANSFORMS), who)]
    source = HEAD + "counts, kept = [], [x]\n" + "\n".join(lines) + "\n"
    return Program(source, tuple(steps), seed=rng.randrange(1000))
