"""Each rule's gradient against eager's, and its own derivative by finite differences."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def rand(*sizes: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    return torch.rand(*sizes, dtype=torch.float64) * (high - low) + low


def pos(*sizes: int) -> torch.Tensor:
    return rand(*sizes, low=0.3, high=2.0)


def unit(*sizes: int) -> torch.Tensor:
    return rand(*sizes, low=-0.9, high=0.9)


UNARY: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = {
    **{
        name: (getattr(torch, name), rand)
        for name in (
            "neg square exp exp2 expm1 sin cos sinh cosh tanh asinh erf erfc sigmoid atan i0 frac abs sinc deg2rad rad2deg "
            "floor sign"
        ).split()
    },
    **{name: (getattr(torch, name), pos) for name in "sqrt rsqrt reciprocal log log2 log10 log1p lgamma".split()},
    **{name: (getattr(torch, name), unit) for name in "tan asin acos atanh erfinv".split()},
    "acosh": (torch.acosh, lambda *s: rand(*s, low=1.2, high=3)),
    "logit": (torch.logit, lambda *s: rand(*s, low=0.1, high=0.9)),
    "logit_eps": (lambda x: torch.logit(x, 0.2), lambda *s: rand(*s, low=0.01, high=0.99)),
    "ndtr": (torch.special.ndtr, rand),
    "ndtri": (torch.special.ndtri, lambda *s: rand(*s, low=0.1, high=0.9)),
    "log_ndtr": (torch.special.log_ndtr, rand),
    "entr": (torch.special.entr, pos),
    "i0e": (torch.special.i0e, rand),
    "i1": (torch.special.i1, rand),
    "i1e": (torch.special.i1e, rand),
    "nan_to_num": (torch.nan_to_num, rand),
    **{
        name: (getattr(F, name), rand)
        for name in (
            "relu relu6 hardtanh hardsigmoid hardswish silu mish elu selu celu leaky_relu softplus logsigmoid softshrink "
            "hardshrink gelu tanhshrink softsign"
        ).split()
    },
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), rand),
    "threshold": (lambda x: F.threshold(x, 0.1, 20.0), rand),
    "softplus_args": (lambda x: F.softplus(x, 2.0, 1.0), rand),
    "elu_alpha": (lambda x: F.elu(x, 0.7), rand),
    "clamp": (lambda x: x.clamp(-0.5, 0.7), rand),
    "clamp_min": (lambda x: x.clamp_min(0.1), rand),
    "clamp_max": (lambda x: x.clamp(max=0.1), rand),
    "to_float": (lambda x: x.float().double() * 1.0, rand),
    "rsub": (lambda x: 1.5 - x, rand),
    "rdiv": (lambda x: 1.5 / x, pos),
    "rpow": (lambda x: 1.5**x, rand),
    "pow2": (lambda x: x**2, rand),
    "pow3": (lambda x: x**3, rand),
    "pow_half": (lambda x: x**0.5, pos),
    "pow0": (lambda x: x**0 + x, rand),
    "where_number": (lambda x: torch.where(x > 0, x, 1.0), rand),
    "masked_fill": (lambda x: x.masked_fill(x > 0.5, -1.0), rand),
    "tril": (torch.tril, rand),
    "triu": (lambda x: torch.triu(x, 1), rand),
    "flip": (lambda x: x.flip(0, 1) * 2, rand),
    "cumsum": (lambda x: x.cumsum(1), rand),
    "cummax": (lambda x: x.cummax(1).values, rand),
    "softmax": (lambda x: x.softmax(-1), rand),
    "softmax0": (lambda x: x.softmax(0), rand),
    "log_softmax": (lambda x: x.log_softmax(-1), rand),
    "logsumexp": (lambda x: x.logsumexp(1), rand),
    "sum": (lambda x: x.sum(), rand),
    "sum1": (lambda x: x.sum(1), rand),
    "sum_keep": (lambda x: x.sum(0, keepdim=True) * x, rand),
    "mean": (lambda x: x.mean(), rand),
    "mean1": (lambda x: x.mean(1), rand),
    "prod": (lambda x: x.prod(), rand),
    "prod1": (lambda x: x.prod(1), rand),
    "amax": (lambda x: x.amax(1), rand),
    "amin": (lambda x: x.amin(), rand),
    "max": (lambda x: x.max(), rand),
    "max1": (lambda x: x.max(1).values, rand),
    "min1_keep": (lambda x: x.min(1, keepdim=True).values * x, rand),
    "aminmax": (lambda x: torch.aminmax(x)[0] * torch.aminmax(x)[1], rand),
    "var": (lambda x: x.var(), rand),
    "var1": (lambda x: x.var(1, correction=0), rand),
    "std1": (lambda x: x.std(1), rand),
    "var_mean": (lambda x: sum(torch.var_mean(x, 1)), rand),
    "std_mean": (lambda x: sum(torch.std_mean(x, 1)), rand),
    "norm": (lambda x: x.norm(), rand),
    "norm1": (lambda x: x.norm(1, dim=1), rand),
    "norm3": (lambda x: torch.linalg.vector_norm(x, 3, dim=1), rand),
    "norm_inf": (lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), rand),
    "nansum": (lambda x: x.nansum(1), rand),
    "view": (lambda x: x.view(-1) * 2, rand),
    "reshape": (lambda x: x.t().reshape(-1) * 2, rand),
    "permute": (lambda x: x.permute(1, 0) * 2, rand),
    "expand": (lambda x: x[:, None].expand(-1, 2, -1) * 2, rand),
    "slice": (lambda x: x[1:, ::2] * 2, rand),
    "select": (lambda x: x[1] * x[:, 0].sum(), rand),
    "diagonal": (lambda x: x.diagonal() * 2, rand),
    "diag_embed": (lambda x: torch.diag_embed(x) * 2, rand),
    "squeeze": (lambda x: x.unsqueeze(0).squeeze() * 2, rand),
    "repeat": (lambda x: x.repeat(2, 1, 2) * 2, rand),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1)) * 2, rand),
    "pad_negative": (lambda x: F.pad(x, (-1, 2)) * 2, rand),
    "cat": (lambda x: torch.cat([x, x * 2], 1) * 3, rand),
    "stack": (lambda x: torch.stack([x, x * 2], 1) * 3, rand),
    "chunk": (lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1][:, :2], rand),
    "unbind": (lambda x: x.unbind(0)[0] * x.unbind(0)[1], rand),
    "index": (lambda x: x[torch.tensor([0, 1, 1])] * 2, rand),
    "gather": (lambda x: x.gather(1, torch.tensor([[0, 1, 1], [2, 0, 0]])) * 2, rand),
    "index_select": (lambda x: x.index_select(1, torch.tensor([0, 1, 1])) * 2, rand),
    "take": (lambda x: x.take(torch.tensor([0, 3, 3])) * 2, rand),
    "roll": (lambda x: x.roll(1, 1) * x, rand),
    "write_slice": (lambda x: _written(x), rand),
    "write_add": (lambda x: (x * 1).add_(x).mul_(2), rand),
    "write_view": (lambda x: _written_view(x), rand),
    "detach": (lambda x: x * x.detach(), rand),
    "no_grad": (lambda x: _no_grad_part(x), rand),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), rand),
    "rms_norm": (lambda x: F.rms_norm(x, (4,)), rand),
    "group_norm": (lambda x: F.group_norm(x.reshape(1, 4, 3), 2), rand),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), rand),
    "instance_norm": (lambda x: F.instance_norm(x[None]), rand),
    "glu": (lambda x: F.glu(x), rand),
    "normalize": (lambda x: F.normalize(x), rand),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x, x), rand),
}


def _written(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, :-1]
    y[0] *= 3
    return y * x


def _written_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    row = y[0]
    row.add_(x[1])
    return y * row


def _no_grad_part(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.exp()
    return x * scale


BINARY: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add": (lambda a, b: torch.add(a, b, alpha=3), (rand(3, 4), rand(4))),
    "sub": (lambda a, b: torch.sub(a, b, alpha=3), (rand(3, 1), rand(4))),
    "mul": (torch.mul, (rand(3, 4), rand(3, 1))),
    "div": (torch.div, (rand(3, 4), pos(4))),
    "pow": (torch.pow, (pos(3, 4), rand(4))),
    "maximum": (torch.maximum, (rand(3, 4), rand(3, 4))),
    "minimum": (torch.minimum, (rand(3, 4), rand(3, 4))),
    "fmax": (torch.fmax, (rand(3, 4), rand(3, 4))),
    "fmin": (torch.fmin, (rand(3, 4), rand(3, 4))),
    "atan2": (torch.atan2, (pos(3, 4), pos(3, 4))),
    "hypot": (torch.hypot, (pos(3, 4), pos(3, 4))),
    "copysign": (lambda a, b: torch.copysign(a, b) + b, (pos(3, 4), rand(3, 4))),
    "xlogy": (torch.xlogy, (pos(3, 4), pos(3, 4))),
    "xlog1py": (torch.special.xlog1py, (pos(3, 4), pos(3, 4))),
    "logaddexp": (torch.logaddexp, (rand(3, 4), rand(3, 4))),
    "logaddexp2": (torch.logaddexp2, (rand(3, 4), rand(3, 4))),
    "lerp": (torch.lerp, (rand(3, 4), rand(3, 4), rand(3, 4))),
    "lerp_number": (lambda a, b: torch.lerp(a, b, 0.3), (rand(3, 4), rand(3, 4))),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=2), (rand(3, 4), rand(4), rand(3, 1))),
    "addcdiv": (lambda a, b, c: torch.addcdiv(a, b, c, value=2), (rand(3, 4), rand(4), pos(3, 1))),
    "where": (lambda a, b: torch.where(a > b, a, b), (rand(3, 4), rand(3, 1))),
    "clamp_tensors": (lambda a, b, c: a.clamp(b, c), (rand(3, 4), rand(4) - 2, rand(4) + 2)),
    "remainder": (lambda a, b: torch.remainder(a, b), (rand(3, 4), pos(3, 4))),
    "fmod": (lambda a, b: torch.fmod(a, b), (rand(3, 4), pos(3, 4))),
    "mm": (torch.mm, (rand(3, 4), rand(4, 5))),
    "bmm": (torch.bmm, (rand(2, 3, 4), rand(2, 4, 5))),
    "mv": (torch.mv, (rand(3, 4), rand(4))),
    "dot": (torch.dot, (rand(4), rand(4))),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c, beta=2, alpha=3), (rand(5), rand(3, 4), rand(4, 5))),
    "baddbmm": (torch.baddbmm, (rand(2, 3, 5), rand(2, 3, 4), rand(2, 4, 5))),
    "matmul": (torch.matmul, (rand(2, 3, 4), rand(4, 5))),
    "matmul_vector": (torch.matmul, (rand(2, 3, 4), rand(4))),
    "linear": (F.linear, (rand(2, 3, 4), rand(5, 4), rand(5))),
    "linear_no_bias": (F.linear, (rand(3, 4), rand(5, 4))),
    "outer": (torch.outer, (rand(3), rand(4))),
    "scatter": (lambda a, b: a.scatter(1, torch.tensor([[0, 2], [1, 3]]), b), (rand(2, 4), rand(2, 2))),
    "scatter_add": (lambda a, b: a.scatter_add(1, torch.tensor([[0, 0], [1, 3]]), b), (rand(2, 4), rand(2, 2))),
    "index_add": (lambda a, b: a.index_add(0, torch.tensor([0, 0, 1]), b, alpha=2), (rand(2, 4), rand(3, 4))),
    "index_copy": (lambda a, b: a.index_copy(0, torch.tensor([1]), b), (rand(2, 4), rand(1, 4))),
    "index_put": (
        lambda a, b: a.index_put((torch.tensor([0, 0]),), b, accumulate=True) * 2,
        (rand(2, 4), rand(2, 4)),
    ),
    "masked_fill_tensor": (lambda a, b: a.masked_fill(a > 0, b), (rand(3, 4), rand(1).squeeze())),
    "prelu": (F.prelu, (rand(3, 4), rand(4))),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (4,), w, b), (rand(3, 4), rand(4), rand(4))),
    "rms_norm": (lambda a, w: F.rms_norm(a, (4,), w), (rand(3, 4), rand(4))),
    "batch_norm": (lambda a, w, b: F.batch_norm(a, None, None, w, b, True), (rand(5, 4), rand(4), rand(4))),
    "embedding": (lambda w: F.embedding(torch.tensor([[0, 2], [2, 1]]), w), (rand(3, 4),)),
    "embedding_padding": (lambda w: F.embedding(torch.tensor([[0, 2], [2, 1]]), w, 2), (rand(3, 4),)),
    "attention": (F.scaled_dot_product_attention, (rand(1, 2, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4))),
    "attention_causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (rand(1, 2, 3, 4), rand(1, 2, 3, 4), rand(1, 2, 3, 4)),
    ),
    "attention_mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3),
        (rand(1, 2, 3, 4), rand(1, 2, 3, 4), rand(1, 2, 3, 4), rand(3, 3)),
    ),
    "cross_entropy": (lambda a: F.cross_entropy(a, torch.tensor([0, 3, -100])), (rand(3, 4),)),
    "cross_entropy_smooth": (
        lambda a: F.cross_entropy(a, torch.tensor([0, 3, 1]), label_smoothing=0.1),
        (rand(3, 4),),
    ),
    "cross_entropy_weight": (
        lambda a, w: F.cross_entropy(a, torch.tensor([0, 3, 1]), weight=w.detach().abs()) + w.sum(),
        (rand(3, 4), rand(4)),
    ),
    "nll": (lambda a: F.nll_loss(a, torch.tensor([0, 3, 1]), reduction="sum"), (rand(3, 4),)),
    "mse": (F.mse_loss, (rand(3, 4), rand(3, 4))),
    "l1": (F.l1_loss, (rand(3, 4), rand(3, 4))),
    "smooth_l1": (F.smooth_l1_loss, (rand(3, 4), rand(3, 4))),
    "huber": (F.huber_loss, (rand(3, 4), rand(3, 4))),
    "bce_logits": (F.binary_cross_entropy_with_logits, (rand(3, 4), pos(3, 4) / 2.5)),
    "kl_div": (lambda a, b: F.kl_div(a, b.softmax(-1), reduction="batchmean"), (rand(3, 4), rand(3, 4))),
    "cosine": (F.cosine_similarity, (rand(3, 4), rand(3, 4))),
}


def check(name: str, function: Callable[..., Any], operands: tuple[torch.Tensor, ...]) -> None:
    tatara.reset()
    compiled = tatara.compile(function, fullgraph=True)
    ours = [t.clone().requires_grad_() for t in operands]
    theirs = [t.clone().requires_grad_() for t in operands]
    compiled(*ours)  # traces; the first call is eager's
    got, expected = compiled(*ours), function(*theirs)
    assert tatara.stats()["fallbacks"] == 0
    torch.testing.assert_close(got, expected)
    assert got.requires_grad == expected.requires_grad
    weight = torch.linspace(-1, 1, max(1, expected.numel()), dtype=torch.float64).reshape(expected.shape)
    wanted = torch.autograd.grad((expected * weight).sum(), theirs, create_graph=True, allow_unused=True)
    found = torch.autograd.grad((got * weight).sum(), ours, create_graph=True, allow_unused=True)
    for f, w in zip(found, wanted, strict=True):
        assert (f is None) == (w is None)
        if f is not None and w is not None:
            assert f.requires_grad or not w.requires_grad or name in FUSED_IN_EAGER
            torch.testing.assert_close(f, w)
    assert "Compiled" in type(got.grad_fn).__name__
    if name not in FIRST_ONLY:
        assert torch.autograd.gradcheck(compiled, [t.clone().requires_grad_() for t in operands])
        pairs = [(f, w) for f, w in zip(found, wanted, strict=True) if f is not None and f.requires_grad]
        if pairs and all(w.requires_grad for _, w in pairs):
            mine, total = ([t.square().sum() for t in side] for side in zip(*pairs, strict=True))
            wanted2 = torch.autograd.grad(sum(total), theirs, allow_unused=True)
            found2 = torch.autograd.grad(sum(mine), ours, allow_unused=True)
            for f, w in zip(found2, wanted2, strict=True):
                if w is not None:
                    torch.testing.assert_close(torch.zeros_like(w) if f is None else f, w)


# No derivative for finite differences to find, or none of eager's that could be differentiated again.
FIRST_ONLY = {
    *("floor", "sign", "to_float", "no_grad", "detach", "embedding_padding", "cross_entropy_weight", "hardsigmoid"),
    *("attention", "attention_causal", "attention_mask"),
}
# Eager marks all gradients of a fused operator as depending on all of its operands.
FUSED_IN_EAGER = {"layer_norm", "batch_norm", "nll"}


def seeded(name: str) -> None:
    torch.manual_seed(zlib.crc32(name.encode()) % 1000)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    seeded(name)
    function, sample = UNARY[name]
    check(name, function, (sample(3, 4),))


@pytest.mark.parametrize("name", BINARY)
def test_several_operands(name: str) -> None:
    seeded(name)
    function, operands = BINARY[name]
    check(name, function, operands)


AT_NAN = {
    "relu": F.relu,
    "relu of its negative": lambda x: F.relu(-x),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 2.0),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "clamp": lambda x: x.clamp(-1, 1),
    "abs": torch.abs,
    "lp_pool1d": lambda x: F.lp_pool1d(x[None], 1.5, 2),
}


@pytest.mark.parametrize("name", AT_NAN)
def test_gradients_at_nan_and_kinks(name: str) -> None:
    # A whole number of vectors: the host's last elements, and those alone, may go another way.
    points = torch.tensor(
        [float("nan"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 6.0, -6.0, 3.0, -3.0, 1e3, -1e3, 20.0, 7.0, -7.0]
    )
    ours, theirs = points.repeat(2).requires_grad_(), points.repeat(2).requires_grad_()
    function = AT_NAN[name]
    compiled = tatara.compile(function)
    for f, x in ((compiled, ours), (function, theirs)):
        result = f(x)
        result.backward(torch.linspace(1, 2, result.numel()).reshape(result.shape))
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)


@pytest.mark.parametrize("name", AT_NAN)
def test_gradients_that_are_not_finite(name: str) -> None:
    """Where a slope is zero because of a choice, eager chooses: it multiplies no infinity by zero."""
    points = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.25, -0.25, 6.5, -6.5, 3.0, -3.0, 1e3, -1e3, 20.0, 7.0, -7.0, 0.05])
    given = torch.tensor([float("inf"), float("-inf"), float("nan"), 1.0])
    ours, theirs = (points.repeat(8).requires_grad_() for _ in range(2))
    function = AT_NAN[name]
    compiled = tatara.compile(lambda x: function(x * 1.0))
    for f, x in ((compiled, ours), (function, theirs)):
        result = f(x)
        result.backward(given.repeat_interleave(16).repeat(2)[: result.numel()].reshape(result.shape))
    torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)
