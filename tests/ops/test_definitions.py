"""Operator definitions (types, decompositions, loops) against eager, without code generation."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

sys.path.insert(0, os.path.dirname(__file__))
from reference import Reference, library  # noqa: E402

if library() is None:
    pytest.skip("needs the reference evaluator (the build makes it)", allow_module_level=True)

REF = Reference()
TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 2e-5,
    torch.float64: 1e-9,
    torch.complex64: 2e-5,
    torch.complex128: 1e-9,
}

Case = tuple[str, list[Any], Callable[..., Any]]
CASES: list[Case] = []


def case(op: str, args: list[Any], eager: Callable[[], Any]) -> None:
    CASES.append((op, args, eager))


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


torch.manual_seed(0)
FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
X4 = r(2, 3, 4, 5)
CL = r(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
CL3 = r(2, 3, 4, 6, 6).contiguous(memory_format=torch.channels_last_3d)
PERMUTED = r(2, 3, 4, 5).permute(0, 3, 1, 2)
T = r(6, 7).t()
P3 = r(4, 5, 6).transpose(1, 2)
I = torch.randint(-5, 5, (3, 4))
B = torch.rand(3, 4) > 0.5
NAN = r(3, 5)
NAN[1, 2] = float("nan")
NAN[2, 0] = float("inf")
C = torch.randn(3, 4, dtype=torch.complex64)

# -- reductions
for x in (X4, PERMUTED, X4.half(), X4.bfloat16(), X4.double()):
    for dim, keep in ((1, False), ((0, 2), True), (-1, False)):
        dims = [dim] if isinstance(dim, int) else list(dim)
        for name in ("sum", "mean", "nansum", "nanmean"):
            case(name, [x, dims, keep], lambda x=x, d=dims, k=keep, n=name: getattr(torch, n)(x, d, k))
        for name in ("amax", "amin", "logsumexp"):
            case(name, [x, dims, keep], lambda x=x, d=dims, k=keep, n=name: getattr(torch, n)(x, d, k))
        for name in ("var", "std", "var_mean", "std_mean"):
            for corr in (None, 0, 1, 2.5):
                case(
                    f"{name}.correction",
                    [x, dims, corr, keep],
                    lambda x=x, d=dims, k=keep, n=name, c=corr: getattr(torch, n)(x, d, correction=c, keepdim=k),
                )
    for name in ("var", "std", "var_mean"):
        case(name, [x, False], lambda x=x, n=name: getattr(torch, n)(x, False))
        case(f"{name}.dim", [x, [1], True, True], lambda x=x, n=name: getattr(torch, n)(x, [1], True, True))
for x in (X4, I, B, NAN, C, X4.half(), I.to(torch.int32), I.to(torch.uint8)):
    case("sum", [x], lambda x=x: torch.sum(x))
    case("prod", [x, 1, False], lambda x=x: torch.prod(x, 1))
    case("any", [x, [1], True], lambda x=x: torch.any(x, 1, True))
    case("all", [x, [0]], lambda x=x: torch.all(x, 0))
    case("any", [x], lambda x=x: torch.any(x))
    case("count_nonzero", [x, [1]], lambda x=x: torch.count_nonzero(x, 1))
    case("cumsum", [x, 1], lambda x=x: torch.cumsum(x, 1))
    case("cumprod", [x, 0], lambda x=x: torch.cumprod(x, 0))
    if not x.is_complex():
        for name in ("max", "min"):
            case(name, [x], lambda x=x, n=name: getattr(torch, n)(x))
            case(f"{name}.dim", [x, 1, False], lambda x=x, n=name: getattr(torch, n)(x, 1))
        for name in ("argmax", "argmin"):
            if x.dtype != torch.bool:
                case(name, [x, 1, True], lambda x=x, n=name: getattr(torch, n)(x, 1, True))
                case(name, [x], lambda x=x, n=name: getattr(torch, n)(x))
        case("aminmax", [x, 0], lambda x=x: torch.aminmax(x, dim=0))
        for name in ("cummax", "cummin"):
            case(name, [x, 1], lambda x=x, n=name: getattr(torch, n)(x, 1))
case("sum", [B, [0], False, torch.float16], lambda: torch.sum(B, 0, dtype=torch.float16))
case("mean", [I, [0], False, torch.float32], lambda: torch.mean(I, 0, dtype=torch.float32))
case("var.correction", [C, [1], 1, False], lambda: torch.var(C, [1]))
case("nansum", [NAN, [1]], lambda: torch.nansum(NAN, 1))
case(
    "logsumexp", [torch.full((2, 3), float("-inf")), [1]], lambda: torch.logsumexp(torch.full((2, 3), float("-inf")), 1)
)
case("logcumsumexp", [X4, 1], lambda: torch.logcumsumexp(X4, 1))
case("logcumsumexp", [NAN, 1], lambda: torch.logcumsumexp(NAN, 1))
for p in (2, 1, 0, 3.5, float("inf"), float("-inf")):
    for x in (X4, X4.half(), C):
        case("linalg_vector_norm", [x, p, [1], True], lambda x=x, p=p: torch.linalg.vector_norm(x, p, 1, True))
case("norm.ScalarOpt_dim", [X4, 2, [0, 1], False], lambda: torch.norm(X4, 2, [0, 1]))
S0 = torch.tensor(2.5)
for name in ("sum", "prod", "amax", "mean", "argmax", "max"):
    case(name, [S0], lambda n=name: getattr(torch, n)(S0))
case("cumsum", [S0, 0], lambda: torch.cumsum(S0, 0))
case("cummax", [S0, 0], lambda: torch.cummax(S0, 0))
case("max.dim", [S0, 0, False], lambda: torch.max(S0, 0))
EMPTY = torch.zeros(0, 3)
case("sum", [EMPTY, [0]], lambda: EMPTY.sum(0))
case("prod", [EMPTY, 0], lambda: EMPTY.prod(0))
case("mean", [EMPTY, [0]], lambda: EMPTY.mean(0))
case("var.correction", [EMPTY, [0], 1, False], lambda: EMPTY.var(0))
case("amax", [EMPTY, [1]], lambda: EMPTY.amax(1))

# -- softmax, activations, norms
for x in (X4, PERMUTED, X4.half(), X4.bfloat16(), NAN):
    for d in (0, 1, -1):
        case("softmax", [x, d, None], lambda x=x, d=d: torch.softmax(x, d))
        case("log_softmax", [x, d, None], lambda x=x, d=d: torch.log_softmax(x, d))
case("softmax", [X4.half(), 1, torch.float32], lambda: torch.softmax(X4.half(), 1, dtype=torch.float32))
case("softmax", [I, 1, torch.float32], lambda: torch.softmax(I, 1, dtype=torch.float32))
case("softmax", [S0, 0, None], lambda: torch.softmax(S0, 0))
ACT: list[tuple[str, list[Any], Callable[[torch.Tensor], torch.Tensor]]] = [
    ("relu", [], torch.relu),
    ("relu6", [], F.relu6),
    ("hardtanh", [-0.5, 0.7], lambda x: F.hardtanh(x, -0.5, 0.7)),
    ("hardsigmoid", [], F.hardsigmoid),
    ("hardswish", [], F.hardswish),
    ("silu", [], F.silu),
    ("mish", [], F.mish),
    ("elu", [1.5, 1, 1], lambda x: F.elu(x, 1.5)),
    ("selu", [], F.selu),
    ("celu", [1.3], lambda x: F.celu(x, 1.3)),
    ("leaky_relu", [0.1], lambda x: F.leaky_relu(x, 0.1)),
    ("softplus", [2.0, 3.0], lambda x: F.softplus(x, 2.0, 3.0)),
    ("log_sigmoid", [], F.logsigmoid),
    ("softshrink", [0.4], lambda x: F.softshrink(x, 0.4)),
    ("hardshrink", [0.4], lambda x: F.hardshrink(x, 0.4)),
    ("threshold", [0.1, 20.0], lambda x: F.threshold(x, 0.1, 20.0)),
    ("gelu", ["none"], F.gelu),
    ("gelu", ["tanh"], lambda x: F.gelu(x, approximate="tanh")),
    ("rrelu", [0.1, 0.3, False, None], lambda x: F.rrelu(x, 0.1, 0.3)),
]
for name, extra, fn in ACT:
    for x in (X4, T, T.half(), T.bfloat16(), NAN, CL):
        if name == "gelu" and x is NAN:
            continue  # eager's vector code gives NaN at infinity
        case(name, [x, *extra], lambda x=x, fn=fn: fn(x))
for x in (X4[..., :4], T[:, :6], T[:, :6].half()):
    case("glu", [x, -1], lambda x=x: F.glu(x, -1))
W3 = r(3)
case("prelu", [CL, W3], lambda: F.prelu(CL, W3))
case("prelu", [T, torch.tensor([0.3])], lambda: F.prelu(T, torch.tensor([0.3])))
W5 = r(5)
B5 = r(5)
for dt in FLOATS:
    x = X4.to(dt)
    w, b = W5.to(dt), B5.to(dt)
    case("layer_norm", [x, [5], w, b, 1e-5], lambda x=x, w=w, b=b: F.layer_norm(x, (5,), w, b))
    case("layer_norm", [x, [4, 5], None, None, 1e-5], lambda x=x: F.layer_norm(x, (4, 5)))
    case("native_layer_norm", [x, [5], w, b, 1e-5], lambda x=x, w=w, b=b: torch.native_layer_norm(x, (5,), w, b, 1e-5))
    case("rms_norm", [x, [5], w, None], lambda x=x, w=w: F.rms_norm(x, (5,), w))
    case("rms_norm", [x, [5], None, 1e-3], lambda x=x: F.rms_norm(x, (5,), eps=1e-3))
case("rms_norm", [PERMUTED, [4], None, None], lambda: F.rms_norm(PERMUTED, (4,)))
case("layer_norm", [PERMUTED, [4], None, None, 1e-5], lambda: F.layer_norm(PERMUTED, (4,)))
case("layer_norm", [X4.half(), [5], W5, B5, 1e-5], lambda: F.layer_norm(X4.half(), (5,), W5, B5))
X6 = r(2, 6, 4, 3)
W6 = r(6)
for x in (X6, X6.contiguous(memory_format=torch.channels_last), X6.double()):
    w = W6.to(x.dtype)
    case("group_norm", [x, 3, w, w, 1e-5], lambda x=x, w=w: F.group_norm(x, 3, w, w))
    case("group_norm", [x, 2, None, None, 1e-5], lambda x=x: F.group_norm(x, 2))
    rm, rv = r(6).to(x.dtype), torch.rand(6).to(x.dtype) + 0.5
    case(
        "batch_norm",
        [x, w, w, rm, rv, False, 0.1, 1e-5, True],
        lambda x=x, w=w, m=rm, v=rv: F.batch_norm(x, m, v, w, w),
    )

    def trained(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        m2, v2 = m.clone(), v.clone()
        return F.batch_norm(x, m2, v2, w, w, training=True), m2, v2

    case("batch_norm", [x, w, w, rm, rv, True, 0.1, 1e-5, True], lambda x=x, w=w, m=rm, v=rv: trained(x, w, m, v))
    case(
        "batch_norm",
        [x, None, None, None, None, True, 0.1, 1e-5, True],
        lambda x=x: F.batch_norm(x, None, None, training=True),
    )

    def instance(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        m2, v2 = m.clone(), v.clone()
        return F.instance_norm(x, m2, v2, w, w), m2, v2

    case("instance_norm", [x, w, w, rm, rv, True, 0.1, 1e-5, True], lambda x=x, w=w, m=rm, v=rv: instance(x, w, m, v))
    case("instance_norm", [x, None, None, None, None, True, 0.1, 1e-5, True], lambda x=x: F.instance_norm(x))

# -- losses
LX, LY = r(4, 5), r(4, 5)
for red in (0, 1, 2):
    name = ["none", "mean", "sum"][red]
    for dt in (torch.float32, torch.bfloat16):
        a, b = LX.to(dt), LY.to(dt)
        case("mse_loss", [a, b, red], lambda a=a, b=b, n=name: F.mse_loss(a, b, reduction=n))
        case("l1_loss", [a, b, red], lambda a=a, b=b, n=name: F.l1_loss(a, b, reduction=n))
        case("smooth_l1_loss", [a, b, red, 0.7], lambda a=a, b=b, n=name: F.smooth_l1_loss(a, b, reduction=n, beta=0.7))
        case("huber_loss", [a, b, red, 0.7], lambda a=a, b=b, n=name: F.huber_loss(a, b, reduction=n, delta=0.7))
    prob = LY.sigmoid()
    case("kl_div", [LX, prob, red, False], lambda n=name: F.kl_div(LX, prob, reduction=n))
    case("kl_div", [LX, LY, red, True], lambda n=name: F.kl_div(LX, LY, reduction=n, log_target=True))
    case(
        "binary_cross_entropy_with_logits",
        [LX, prob, None, W5, red],
        lambda n=name: F.binary_cross_entropy_with_logits(LX, prob, pos_weight=W5, reduction=n),
    )
    case("soft_margin_loss", [LX, LY, red], lambda n=name: F.soft_margin_loss(LX, LY, reduction=n))
    target = torch.tensor([1, 4, -100, 0])
    wc = torch.rand(5)
    for w in (None, wc):
        for smooth in (0.0, 0.2):
            case(
                "cross_entropy_loss",
                [LX, target, w, red, -100, smooth],
                lambda n=name, w=w, s=smooth: F.cross_entropy(LX, target, w, reduction=n, label_smoothing=s),
            )
            case(
                "cross_entropy_loss",
                [LX, LY.softmax(1), w, red, -100, smooth],
                lambda n=name, w=w, s=smooth: F.cross_entropy(LX, LY.softmax(1), w, reduction=n, label_smoothing=s),
            )
        case("nll_loss_nd", [LX, target, w, red, -100], lambda n=name, w=w: F.nll_loss(LX, target, w, reduction=n))
    L4, T4 = r(2, 5, 3), torch.randint(0, 5, (2, 3))
    case(
        "cross_entropy_loss",
        [L4, T4, None, red, -100, 0.0],
        lambda n=name, a=L4, t=T4: F.cross_entropy(a, t, reduction=n),
    )
    case(
        "cross_entropy_loss",
        [L4.bfloat16(), T4, None, red, 1, 0.0],
        lambda n=name, a=L4, t=T4: F.cross_entropy(a.bfloat16(), t, reduction=n, ignore_index=1),
    )

# -- indexing
G = r(4, 5, 6)
IDX = torch.tensor([2, 0, -1])
IDX2 = torch.tensor([[1, 0, 2], [3, -2, 1]])
case("index", [G, [IDX]], lambda: G[IDX])
case("index", [G, [None, IDX]], lambda: G[:, IDX])
case("index", [G, [IDX, IDX2]], lambda: G[IDX, IDX2])
case("index", [G, [IDX, None, IDX2]], lambda: G[IDX, :, IDX2])
case("index", [G, [None, IDX2, IDX]], lambda: G[:, IDX2, IDX])
case("index", [T, [IDX]], lambda: T[IDX])
case("index", [T, [None, IDX2]], lambda: T[:, IDX2])
J = torch.tensor([1, 0])
case("index", [PERMUTED, [J, None, J]], lambda: PERMUTED[J, :, J])
case("index", [G, [torch.tensor(1)]], lambda: G[torch.tensor(1)] + 0)
V = r(3, 5, 6)
IU = torch.tensor([2, 0, 1])
case("index_put", [G, [IU], V, False], lambda: G.index_put((IU,), V))
V6 = r(6)
case("index_put", [G, [IDX2], V6, True], lambda: G.index_put((IDX2,), V6, accumulate=True))
case("index_put", [G, [G > 0], torch.tensor(2.0), False], lambda: G.index_put((G > 0,), torch.tensor(2.0)))
MASK45 = torch.rand(4, 5) > 0.5
case("index_put", [G, [MASK45], torch.tensor(2.0), False], lambda: G.index_put((MASK45,), torch.tensor(2.0)))
case("index_put", [T, [IU], torch.tensor(1.0), False], lambda: T.index_put((IU,), torch.tensor(1.0)))
GI = torch.randint(0, 4, (2, 5, 3))
case("gather", [G, 0, GI], lambda: G.gather(0, GI))
case("gather", [S0, 0, torch.tensor(0)], lambda: S0.gather(0, torch.tensor(0)))
SRC = r(2, 5, 3)
case("scatter.src", [G, 0, GI[:1], SRC], lambda: G.scatter(0, GI[:1], SRC))
case(
    "scatter.value",
    [T, 0, torch.zeros(2, 2, dtype=torch.long), 3.5],
    lambda: T.scatter(0, torch.zeros(2, 2, dtype=torch.long), 3.5),
)
case("scatter_add", [G, 0, GI, SRC], lambda: G.scatter_add(0, GI, SRC))
case("scatter.reduce", [G, 0, GI, SRC, "multiply"], lambda: G.scatter(0, GI, SRC, reduce="multiply"))
for red in ("sum", "prod", "amax", "amin", "mean"):
    for inc in (True, False):
        case(
            "scatter_reduce",
            [G, 0, GI, SRC, red, inc],
            lambda a=red, i=inc: G.scatter_reduce(0, GI, SRC, a, include_self=i),
        )
case("index_select", [T, 1, IU], lambda: T.index_select(1, IU))
A36 = r(3, 6)
case("index_add", [T, 0, IU, A36, 2], lambda: T.index_add(0, IU, A36, alpha=2))
case("index_copy", [T, 0, IU, A36], lambda: T.index_copy(0, IU, A36))
case("index_fill", [T, 0, IU, 2.0], lambda: T.index_fill(0, IU, 2.0))
case("take", [T, IDX2], lambda: T.take(IDX2))
case(
    "take_along_dim",
    [T, torch.zeros(2, 6, dtype=torch.long), 0],
    lambda: torch.take_along_dim(T, torch.zeros(2, 6, dtype=torch.long), 0),
)
EI = torch.tensor([[0, 2], [6, 1]])
case("embedding", [T, EI], lambda: F.embedding(EI, T))
case("masked_fill", [T, T > 0, float("-inf")], lambda: T.masked_fill(T > 0, float("-inf")))
case("masked_fill", [I, B, 7], lambda: I.masked_fill(B, 7))
case("one_hot", [EI, 8], lambda: F.one_hot(EI, 8))
for x in (T, I, B, CL):
    for k in (-1, 0, 2):
        case("tril", [x, k], lambda x=x, k=k: x.tril(k))
        case("triu", [x, k], lambda x=x, k=k: x.triu(k))
for x in (T, P3, CL):
    case("flip", [x, [0, 1]], lambda x=x: x.flip([0, 1]))
    case("roll", [x, [1, -2], [0, 1]], lambda x=x: x.roll((1, -2), (0, 1)))
    case("roll", [x, [3], []], lambda x=x: x.roll(3))
    for k in (1, 2, 3, -1):
        case("rot90", [x, k, [0, 1]], lambda x=x, k=k: x.rot90(k, [0, 1]))
    case("repeat", [x, [2] + [1] * x.dim()], lambda x=x: x.repeat([2] + [1] * x.dim()))
    case("tile", [x, [2, 3]], lambda x=x: x.tile((2, 3)))
    case("repeat_interleave.self_int", [x, 3, 1], lambda x=x: x.repeat_interleave(3, 1))
    case("repeat_interleave.self_int", [x, 2, None], lambda x=x: x.repeat_interleave(2))
    case("diff", [x, 1, 0, None, None], lambda x=x: x.diff(1, 0))
    for k in range(4):
        if k < x.dim():
            case("cat", [[x, x, x], k], lambda x=x, k=k: torch.cat([x, x, x], k))
            case("stack", [[x, x], k], lambda x=x, k=k: torch.stack([x, x], k))
    case("stack", [[x, x], -1], lambda x=x: torch.stack([x, x], -1))
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        case(name, [[x, x]], lambda x=x, n=name: getattr(torch, n)([x, x]))
R34 = r(3, 4)
case("cat", [[I, R34], 0], lambda: torch.cat([I, R34], 0))
case("cat", [[B, I], 1], lambda: torch.cat([B, I], 1))
case("cat", [[torch.zeros(0), R34], 1], lambda: torch.cat([torch.zeros(0), R34], 1))

# -- padding, pooling, resampling
for x in (CL, P3, X6):
    case("constant_pad_nd", [x, [1, 2], 3.5], lambda x=x: F.pad(x, (1, 2), value=3.5))
    case("constant_pad_nd", [x, [-1, 2, 1, -1], 0.0], lambda x=x: F.pad(x, (-1, 2, 1, -1)))
    case("constant_pad_nd", [x, [-1, -1], 0.0], lambda x=x: F.pad(x, (-1, -1)))
for mode in ("reflect", "replicate", "circular"):
    case("pad", [CL, [2, 1, 0, 2], mode, None], lambda m=mode: F.pad(CL, (2, 1, 0, 2), mode=m))
    case("pad", [P3, [2, 1], mode, None], lambda m=mode: F.pad(P3, (2, 1), mode=m))
    case("pad", [CL3, [1, 1, 1, 0, 1, 1], mode, None], lambda m=mode: F.pad(CL3, (1, 1, 1, 0, 1, 1), mode=m))
NEG = torch.full((1, 1, 4, 4), float("-inf"))
for x in (CL, X6, CL.half(), NEG, P3):
    for k, s, p, d, c in (
        ([2], [], [0], [1], False),
        ([3], [2], [1], [1], False),
        ([2, 3], [1, 2], [1, 1], [1, 1], True),
        ([2], [1], [1], [2], False),
    ):
        kw = dict(
            kernel_size=k if len(k) > 1 else k[0],
            stride=(s if len(s) > 1 else s[0]) if s else None,
            padding=p if len(p) > 1 else p[0],
            ceil_mode=c,
        )
        dil = d if len(d) > 1 else d[0]
        case("max_pool2d", [x, k, s, p, d, c], lambda x=x, kw=kw, dil=dil: F.max_pool2d(x, dilation=dil, **kw))
        case(
            "max_pool2d_with_indices",
            [x, k, s, p, d, c],
            lambda x=x, kw=kw, dil=dil: F.max_pool2d(x, dilation=dil, return_indices=True, **kw),
        )
        if d == [1] or d == [1, 1]:
            for inc in (True, False):
                case(
                    "avg_pool2d",
                    [x, k, s, p, c, inc, None],
                    lambda x=x, kw=kw, inc=inc: F.avg_pool2d(x, count_include_pad=inc, **kw),
                )
for out in ([1], [2], [3], [4, 5]):
    o = out if len(out) > 1 else out[0]
    for x in (CL, X6, P3):
        case("adaptive_avg_pool2d", [x, out], lambda x=x, o=o: F.adaptive_avg_pool2d(x, o))
case("max_pool1d", [P3, [2], [], [0], [1], False], lambda: F.max_pool1d(P3, 2))
case("max_pool1d_with_indices", [P3, [2], [], [0], [1], False], lambda: F.max_pool1d(P3, 2, return_indices=True))
case("avg_pool1d", [P3, [2], [1], [1], False, True], lambda: F.avg_pool1d(P3, 2, 1, 1))
case("adaptive_avg_pool1d", [P3, [3]], lambda: F.adaptive_avg_pool1d(P3, 3))
case("adaptive_avg_pool1d", [P3, [1]], lambda: F.adaptive_avg_pool1d(P3, 1))
case("max_pool3d", [CL3, [2], [], [0], [1], False], lambda: F.max_pool3d(CL3, 2))
case("avg_pool3d", [CL3, [2], [], [1], False, True, None], lambda: F.avg_pool3d(CL3, 2, padding=1))
case("adaptive_avg_pool3d", [CL3, [2]], lambda: F.adaptive_avg_pool3d(CL3, 2))
case("adaptive_avg_pool3d", [CL3, [1]], lambda: F.adaptive_avg_pool3d(CL3, 1))
for size in ([12, 12], [9, 5], [3, 3]):
    case("upsample_nearest2d.vec", [CL, size, None], lambda s=size: F.interpolate(CL, s))
    for al in (True, False):
        case(
            "upsample_bilinear2d.vec",
            [CL, size, al, None],
            lambda s=size, a=al: F.interpolate(CL, s, mode="bilinear", align_corners=a),
        )
case("upsample_nearest2d.vec", [X6, None, [2.0, 1.5]], lambda: F.interpolate(X6, scale_factor=(2.0, 1.5)))
case(
    "upsample_bilinear2d.vec",
    [X6, None, False, [2.0, 1.5]],
    lambda: F.interpolate(X6, scale_factor=(2.0, 1.5), mode="bilinear"),
)
case("upsample_nearest1d.vec", [P3, [7], None], lambda: F.interpolate(P3, 7))
case("upsample_linear1d.vec", [P3, [7], False, None], lambda: F.interpolate(P3, 7, mode="linear"))
case("upsample_trilinear3d.vec", [CL3, [3, 4, 5], False, None], lambda: F.interpolate(CL3, (3, 4, 5), mode="trilinear"))
for x in (r(1, 8, 2, 3), r(1, 8, 2, 4).contiguous(memory_format=torch.channels_last)):
    case("pixel_shuffle", [x, 2], lambda x=x: F.pixel_shuffle(x, 2))
    case("channel_shuffle", [x, 4], lambda x=x: F.channel_shuffle(x, 4))
case("pixel_unshuffle", [CL, 2], lambda: F.pixel_unshuffle(CL, 2))
case("cosine_similarity", [X4, X4 + 1, 1, 1e-8], lambda: F.cosine_similarity(X4, X4 + 1))
case("pairwise_distance", [LX, LY, 2.0, 1e-6, False], lambda: F.pairwise_distance(LX, LY))

# -- products
M, N = r(4, 5), r(5, 3)
case("mm", [M, N], lambda: M @ N)
case("addmm", [W3, M, N, 2, 0.5], lambda: torch.addmm(W3, M, N, beta=2, alpha=0.5))
BM, BN = r(2, 4, 5), r(2, 5, 3)
case("baddbmm", [W3, BM, BN, 1, 1], lambda: torch.baddbmm(W3, BM, BN))
for a, b in (
    (M, N),
    (M, W5),
    (W5, N),
    (W5, W5),
    (BM, N),
    (BM, W5),
    (W5, BN),
    (BM, BN),
    (r(3, 1, 4, 5), BN),
    (M, BN),
    (BM.transpose(0, 1), N),
    (X4, r(5, 2)),
):
    case("matmul", [a, b], lambda a=a, b=b: torch.matmul(a, b))
LW, LB = r(3, 5), r(3)
for x in (M, BM, X4, W5, P3[:, :5].transpose(1, 2)):
    if x.shape[-1] == 5:
        case("linear", [x, LW, LB], lambda x=x: F.linear(x, LW, LB))
        case("linear", [x, LW, None], lambda x=x: F.linear(x, LW))
case("outer", [W5, W3], lambda: torch.outer(W5, W3))
TD = r(4, 5, 2)
case("tensordot", [X4, TD, [2, 3], [0, 1]], lambda: torch.tensordot(X4, TD, dims=([2, 3], [0, 1])))
Q, K = r(2, 3, 4, 5), r(2, 3, 6, 5)
EINSUM: list[tuple[str, list[torch.Tensor]]] = [
    ("bhqd,bhkd->bhqk", [Q, K]),
    ("ij,jk->ik", [M, N]),
    ("ij,jk", [M, N]),
    ("bij,bjk->bik", [BM, BN]),
    ("i,j->ij", [W5, W3]),
    ("...ij,...jk->...ik", [BM, BN]),
    ("bij,kj->bik", [BM, LW]),
    ("ij,ij->", [M, M]),
    ("bhqd,bhkd,kq->bd", [Q, K, r(6, 4)]),
    ("bij,bij->bji", [BM, BM]),
    ("bnd,bmd->bnm", [BM, r(2, 6, 5)]),
]
for eq, ops in EINSUM:
    case("einsum", [eq, ops, None], lambda e=eq, o=ops: torch.einsum(e, *o))


# -- host operators: types only
TYPES: list[Case] = []


def types(op: str, args: list[Any], eager: Callable[[], Any]) -> None:
    TYPES.append((op, args, eager))


for x in (CL, X6, CL.double(), CL.bfloat16(), X6[0]):
    for channels_last in (False, True):
        w = r(4, x.shape[-3], 3, 3).to(x.dtype)
        if channels_last:
            w = w.contiguous(memory_format=torch.channels_last)
        for stride, pad, dil in ((1, 0, 1), (2, 1, 1), (1, 2, 2)):
            types(
                "conv2d",
                [x, w, None, [stride, stride], [pad, pad], [dil, dil], 1],
                lambda x=x, w=w, s=stride, p=pad, d=dil: F.conv2d(x, w, None, s, p, d),
            )
        types(
            "conv2d.padding", [x, w, None, [1, 1], "same", [1, 1], 1], lambda x=x, w=w: F.conv2d(x, w, padding="same")
        )
        wt = r(x.shape[-3], 4, 3, 3).to(x.dtype)
        types(
            "conv_transpose2d",
            [x, wt, None, [2, 2], [1, 1], [1, 1], 1, [1, 1]],
            lambda x=x, w=wt: F.conv_transpose2d(x, w, None, 2, 1, 1),
        )
C1 = r(2, 5, 6)
types("conv1d", [C1, r(4, 5, 3), None, [1], [1], [1], 1], lambda: F.conv1d(C1, r(4, 5, 3), padding=1))
types("conv1d", [P3, r(4, 6, 3), None, [1], [1], [1], 1], lambda: F.conv1d(P3, r(4, 6, 3), padding=1))
types("conv3d", [CL3, r(4, 3, 2, 2, 2), None, [1] * 3, [0] * 3, [1] * 3, 1], lambda: F.conv3d(CL3, r(4, 3, 2, 2, 2)))
QKV = r(2, 6, 96)
HEADS = [t.view(2, 6, 4, 8).transpose(1, 2) for t in QKV.split(32, -1)]
Q4, K4, V4 = HEADS
for q, k, v in (
    (Q4, K4, V4),
    (Q4.contiguous(), K4, V4),
    (Q4[:, :, :1], K4, V4),
    (Q4[0], K4[0], V4[0]),
    (Q4.bfloat16(), K4.bfloat16(), V4.bfloat16()),
    (Q4.transpose(2, 3), K4.transpose(2, 3), V4.transpose(2, 3)),
    (Q4[:1].expand(2, -1, -1, -1), K4, V4),
    (Q4, K4, torch.cat([V4, V4], -1)),
):
    kv, qn = k.shape[-2], q.shape[-2]
    masks = [None, torch.zeros(qn, kv, dtype=q.dtype), torch.ones(qn, kv, dtype=torch.bool)]
    if q.dim() == 4:
        masks += [torch.zeros(2, 1, qn, kv, dtype=q.dtype), torch.zeros(4, qn, kv, dtype=q.dtype)]
    for mask in masks:
        types(
            "scaled_dot_product_attention",
            [q, k, v, mask, 0.0, False, None, False],
            lambda q=q, k=k, v=v, m=mask: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        )
types(
    "scaled_dot_product_attention",
    [Q4, K4[:, :2], V4[:, :2], None, 0.0, True, None, True],
    lambda: F.scaled_dot_product_attention(Q4, K4[:, :2], V4[:, :2], is_causal=True, enable_gqa=True),
)
for x in (X4, T, PERMUTED, CL, X4[..., ::2], r(3, 1).expand(3, 4)):
    types("sort", [x, 1, True], lambda x=x: torch.sort(x, 1, True))
    types("argsort", [x, 0], lambda x=x: torch.argsort(x, 0))
    types("topk", [x, 1, 1, True, True], lambda x=x: torch.topk(x, 1, 1))
    types("kthvalue", [x, 1, 1, True], lambda x=x: torch.kthvalue(x, 1, 1, True))
    types("median.dim", [x, 1, False], lambda x=x: torch.median(x, 1))
    types("mode", [x, 1, False], lambda x=x: torch.mode(x, 1))
    types("median", [x], lambda x=x: torch.median(x))
    types("bernoulli.p", [x, 0.5, None], lambda x=x: torch.bernoulli(x, 0.5))


@pytest.mark.parametrize("index", range(len(TYPES)), ids=lambda i: f"{i}-{TYPES[i][0]}")
def test_types(index: int) -> None:
    op, args, eager = TYPES[index]
    expected = eager()
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    got = REF(op, *args, types_only=True)
    assert [(g.dtype, g.sizes, g.strides) for g in got] == [(w.dtype, tuple(w.shape), w.stride()) for w in wanted]


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i][0]}")
def test_definition(index: int) -> None:
    op, args, eager = CASES[index]
    expected = eager()
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    got = REF(op, *args)
    assert len(got) == len(wanted)
    for have, want in zip(got, wanted, strict=True):
        assert have.dtype == want.dtype
        assert have.sizes == tuple(want.shape)
        assert have.strides == want.stride(), f"strides {have.strides}, eager {want.stride()}"
        if want.dtype in TOLERANCE:
            tol = TOLERANCE[want.dtype]
            torch.testing.assert_close(
                have.values, want.detach(), rtol=tol, atol=tol, equal_nan=True, check_stride=False
            )
        else:
            assert torch.equal(have.values, want)
