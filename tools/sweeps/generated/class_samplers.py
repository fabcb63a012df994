"""Programs that draw random numbers in many ways, one after the other: torch's samplers in and out of place, with the default
generator and others, layers that drop, distributions, Python's and NumPy's own; seeds and states set, kept and put back in the
middle; in loops, handlers, calls, branches on what was drawn, checkpoints and passes of gradients.
"""

from __future__ import annotations

import random

from .body import Body
from .harness import Program
from .registry import program_class

STATE = """
import contextlib, copy, functools, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

gen, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(4)
gens = [gen, other, None]
rng, legacy = np.random.default_rng(5), np.random.RandomState(6)
own = random.Random(7)
kept, log = [], []
x = torch.linspace(-1, 2, 12).reshape(4, 3)
xg = torch.linspace(-1, 2, 12).reshape(4, 3).requires_grad_()
p = torch.linspace(0.1, 0.9, 12).reshape(4, 3)
w = torch.full((3,), 0.5, requires_grad=True)
state = torch.zeros(4, 3)
drop, drop1d, alpha, rrelu = nn.Dropout(0.5), nn.Dropout1d(0.4), nn.AlphaDropout(0.3), nn.RReLU()
net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.2))
lstm = nn.LSTM(3, 3, 2, dropout=0.4)
layer = nn.TransformerEncoderLayer(3, 1, 4, batch_first=True)
class Noise(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale, self.calls = scale, 0
        self.register_buffer("mean", torch.zeros(3))
    def forward(self, v):
        self.calls += 1
        noise = torch.randn_like(v) * self.scale
        self.mean.lerp_(noise.detach().mean(0), 0.1)
        return v + noise if self.training else v
noise = Noise(0.1)
class Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.mask = (torch.rand_like(v) > 0.3).to(v.dtype)
        return v * ctx.mask
    @staticmethod
    def backward(ctx, g): return g * ctx.mask
def sample(make, v): return v + make(v.shape)
def draws(count):
    for _ in range(count): yield torch.rand(3)
"""

# Each gives a 4 x 3 tensor of float32 from {v}; {g} is a generator, or None.
TENSORS = [
    "{v} + torch.rand(4, 3)",
    "{v} + torch.rand(4, 3, generator={g})",
    "{v} + torch.rand({v}.shape, dtype=torch.float64).float()",
    "{v} + torch.randn(4, 3, generator={g})",
    "{v} + torch.randn(17, dtype=torch.bfloat16).float().sum()",
    "{v} * torch.randn_like({v})",
    "{v} + torch.rand_like({v}, dtype=torch.float64)",
    "{v} + torch.randint_like({v}, {n}, {n} + 5)",
    "{v} + torch.randint({n}, (4, 3))",
    "{v} + torch.randint(0, {n}, (3,), generator={g})",
    "{v} + torch.randint(2, 9, (4, 1), dtype=torch.int32, generator={g})",
    "{v} + torch.randint(2, 9, (4, 3), dtype=torch.float16)",
    "{v}[torch.randperm(4)]",
    "{v}[torch.randperm(4, generator={g})]",
    "{v}[:, torch.randperm(3, dtype=torch.int32).long()]",
    "torch.normal({v}, 2.0, generator={g})",
    "torch.normal({v}.detach(), p, generator={g})",
    "{v} + torch.normal(0.0, 1.0, (4, 3), generator={g})",
    "{v} * torch.bernoulli(p)",
    "{v} * torch.bernoulli(p, generator={g})",
    "{v} * torch.bernoulli({v}, 0.3)",
    "{v} + torch.multinomial(p, 3, generator={g})",
    "{v} + torch.multinomial(p, 3, replacement=True)",
    "{v} + torch.poisson(p, generator={g})",
    "{v} + torch.binomial(torch.full((4, 3), 5.0), p, generator={g})",
    "{v} + torch._standard_gamma(p + 1)",
    "{v} + torch.empty(4, 3).uniform_(-1, 1, generator={g})",
    "{v} + torch.empty(4, 3).normal_(1.0, 0.5)",
    "{v} + torch.empty(3, 4).exponential_(generator={g}).t()",
    "{v} + torch.zeros(4, 3).cauchy_().clamp(-1, 1)",
    "{v} + torch.zeros(4, 3).geometric_(0.4, generator={g})",
    "{v} + torch.zeros(4, 3).log_normal_().clamp(max=2)",
    "{v} + torch.zeros(4, 3, dtype=torch.int64).random_(0, 9, generator={g})",
    "{v} + torch.zeros(4, 3).random_({n})",
    "{v}.masked_fill(torch.zeros(4, 3, dtype=torch.bool).bernoulli_(0.4, generator={g}), 0.0)",
    "torch.where(torch.rand(4, 3) < 0.5, {v}, -{v})",
    "F.dropout({v}, 0.5, True)",
    "F.dropout({v} + 0, 0.2, True, True)",
    "drop({v})",
    "drop1d({v})",
    "alpha({v})",
    "rrelu({v})",
    "net({v})",
    "noise({v})",
    "lstm({v})[0]",
    "layer({v}[None])[0]",
    "Drop.apply({v})",
    "F.gumbel_softmax({v}, hard={b})",
    "F.scaled_dot_product_attention({v}[None], {v}[None], {v}[None], dropout_p=0.3)[0]",
    "checkpoint(drop, {v}, use_reentrant=False)",
    "checkpoint(lambda v: F.dropout(v * torch.rand(3), 0.3), {v}, use_reentrant=False)",
    "torch.distributions.Normal({v}, 1.0).rsample()",
    "{v} + torch.distributions.Uniform(0.0, 1.0).sample((4, 3))",
    "{v} + torch.distributions.Categorical(p).sample()[:, None]",
    "{v} * torch.distributions.Bernoulli(p).sample()",
    "{v} + torch.distributions.Gamma(p + 1, 1.0).sample()",
    "{v} + nn.init.trunc_normal_(torch.empty(4, 3), generator={g})",
    "nn.init.xavier_uniform_(torch.empty(4, 3)) + {v}",
    "{v} @ nn.init.orthogonal_(torch.empty(3, 3), generator={g})",
    "{v} + random.random()",
    "{v} * own.uniform(0, 1)",
    "{v} + own.randint(0, {n})",
    "{v} + float(np.random.rand())",
    "{v} + torch.from_numpy(np.random.standard_normal((4, 3))).float()",
    "{v} + torch.from_numpy(rng.random(3, dtype=np.float32))",
    "{v} + float(legacy.uniform())",
    "{v} + torch.as_tensor(np.random.permutation(3))",
    "sample(torch.rand, {v})",
    "sample(functools.partial(torch.randn, generator={g}), {v})",
    "sum(draws(2)) + {v}",
    "torch.stack([torch.rand(3, generator=g) for g in gens[:2] for _ in range(2)]) + {v}",
    "{v} + torch.vmap(lambda r: r + torch.rand(3), randomness='different')({v})",
    "{v} + torch.func.grad(lambda r: (r * torch.rand(3)).sum())(torch.ones(3))",
]
STATEMENTS = [
    "torch.manual_seed({n})",
    "gen.manual_seed({n})",
    "other.set_state(gen.get_state())",
    "kept[:] = [torch.get_rng_state()]",
    "if kept: torch.set_rng_state(kept[-1])",
    "kept[:] = [gen.get_state()]",
    "state.uniform_(generator={g})",
    "state.normal_()",
    "state[0].bernoulli_(0.5)",
    "torch.rand(4, 3, out=state)",
    "torch.randn(4, 3, generator={g}, out=state)",
    "state.add_(torch.rand(3))",
    "random.seed({n})",
    "np.random.seed({n})",
    "own.seed({n})",
    "own.shuffle(log)",
    "log.append(random.choice([1, 2, 3]))",
    "log.append(int(torch.randint(0, 9, ())))",
    "log.append(torch.rand(()).item())",
    "log.append(torch.initial_seed())",
    "log.append(gen.initial_seed())",
    "print('drawn', {n})",
    "net.train({b})",
    "drop.eval() if {b} else drop.train()",
    "noise.train({b})",
    "gens.reverse()",
    "log[:] = log[-4:]",
]


class Draws(Body):
    """Statements that draw, and change what is drawn from."""

    most = 2

    def fill(self, text: str, v: str) -> str:
        rng = self.rng
        generator = rng.choice(["gen", "gen", "other", "None", "gens[0]"])
        flag = rng.choice(["True", "False", "flag"])
        return (
            text.replace("{v}", v).replace("{n}", str(rng.randint(2, 9))).replace("{g}", generator).replace("{b}", flag)
        )

    def value(self, v: str) -> str:
        return self.fill(self.rng.choice(TENSORS), v)

    def statement(self, v: str, depth: int) -> list[str]:
        rng = self.rng
        roll = rng.random()
        if roll < 0.55 or depth >= 3:
            return [f"{v} = {self.value(v)}"]
        if roll < 0.72:
            return [self.fill(rng.choice(STATEMENTS), v)]
        return rng.choice(
            [self.managed, self.managed, self.called, self.looped, self.decided, self.handled, self.graded]
        )(v, depth + 1)

    def managed(self, v: str, depth: int) -> list[str]:
        manager = self.rng.choice(["torch.random.fork_rng()", "torch.random.fork_rng()", "torch.no_grad()", "torch.enable_grad()",
                                   "contextlib.nullcontext()"])  # fmt: skip
        return [f"with {manager}:", *self.indent(self.block(v, depth))]

    def called(self, v: str, depth: int) -> list[str]:
        name = self.name("h")
        self.functions += [f"def {name}(v, flag):", *self.indent(self.block("v", depth)), "    return v"]
        return [f"{v} = {self.rng.choice([f'{name}({v}, flag)', f'functools.partial({name}, flag=flag)({v})'])}"]

    def turns(self) -> int:
        return self.rng.randint(2, 3)

    def decided(self, v: str, depth: int) -> list[str]:
        test = self.rng.choice(["flag", "not flag", "len(log) % 2", "torch.rand(()) < 0.5", "random.random() < 0.5",
                                f"{v}.sum() > 0", "bool(torch.bernoulli(p[0, 0]))"])  # fmt: skip
        return self.branch(test, 0.5, v, depth)

    def handled(self, v: str, depth: int) -> list[str]:
        fails = self.rng.choice(["torch.multinomial(p - 2, 2)", "torch.bernoulli(p + 1)", "torch.randint(3, 1, (2,))",
                                 "torch.zeros(2).uniform_(2, 1)", "torch.zeros(2).normal_(0, -1)", "torch.rand(2, dtype=torch.int64)",
                                 "torch.randperm(-1)", "torch.normal(0.0, -1.0, (2,))"])  # fmt: skip
        block = self.block(v, depth)
        return ["try:", *self.indent([*block, f"log.append({fails}.sum().item())"]), "except (RuntimeError, ValueError) as error:",
                *self.indent(["log.append(type(error).__name__)", *self.block(v, depth)])]  # fmt: skip

    def graded(self, v: str, depth: int) -> list[str]:
        t = self.name("t")
        lines = [f"{t} = (({self.value(v)}) * w).sum()", f"if {t}.requires_grad:", f"    {t}.backward()"]
        return [*lines, f"{v} = {v}.detach()"]


@program_class("samplers")
def samplers(rng: random.Random) -> Program:
    """One function; between its calls seeds and modes change."""
    body = Draws(rng)
    lines = body.whole("v")
    result = rng.choice(["v", "v.sum()", "(v, state)", "{'v': v, 'n': len(log)}", "[v, v * 2]"])
    source = [STATE, *body.functions, "def f(v, flag=True):", *body.indent(lines), f"    return {result}"]
    x = rng.choice(["x", "x", "xg"])
    steps = [f"f({x})" if rng.random() < 0.75 else f"f({x}, False)" for _ in range(rng.randint(3, 6))]
    changes = ["torch.manual_seed(5)", "gen.manual_seed(9)", "state.zero_()", "net.eval()", "drop.p = 0.25", "w.grad = None",
               "gen.set_state(other.get_state())", "random.seed(1)", "np.random.seed(1)", "noise.scale = 0.2", "log.clear()",
               "gens[0] = other"]  # fmt: skip
    for _ in range(rng.randint(1, 3)):
        steps.insert(rng.randint(1, len(steps)), rng.choice(changes))
    steps += [f"f({x})"] * 2
    options = (
        ("options", {"recompile_limit": 1000}),
        *rng.choice([(), (), (), (("backend", "eager"),), (("dynamic", True),)]),
    )
    return Program("\n".join(source), tuple(steps), seed=rng.randint(0, 99), options=options)
