"""Forms in which programs use a float `c` that is another one in each call, with a tensor `x` of 4 rows and 6 columns.

A form is (program, whether gradients are compared, compiles that it may take). Random numbers are drawn from the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F


class Form(NamedTuple):
    program: Callable[[Any, Any], Any]
    gradients: bool = True
    compiles: int = 2
    reason: str = ""  # why more: what of the value is structural


def _batch_norm(x: Any, c: Any) -> Any:
    return F.batch_norm(x, None, None, None, None, True, 0.1, c)


def _momentum(x: Any, c: Any) -> Any:
    mean, var = torch.zeros(6), torch.ones(6)
    return F.batch_norm(x, mean, var, None, None, True, c) + mean + var


def _attention(x: Any, c: Any) -> Any:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], scale=c)


def _optimiser(x: Any, c: Any) -> Any:
    m, v = x * 0.5, x * x
    m = m.mul(c).add_(x, alpha=1 - c)
    v = v.mul(c).addcmul_(x, x, value=1 - c)
    return m / (v.sqrt() + 1e-3)


def _adam(x: Any, c: Any) -> Any:
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    p = x.clone()
    for step in (1, 2):
        m.lerp_(x, 1 - c)
        v.mul_(c).addcmul_(x, x, value=1 - c)
        p.addcdiv_(m, v.sqrt().add_(1e-3), value=-c / (1 - 0.5**step))
    return p


def _new_full(x: Any, c: Any) -> Any:
    return x + x.new_full((6,), c)


def _fill_(x: Any, c: Any) -> Any:
    y = x * 2
    y[1].fill_(c)
    return y


def _setitem(x: Any, c: Any) -> Any:
    y = x * 2
    y[1] = c
    y[:, 2] = c
    return y


def _mask_setitem(x: Any, c: Any) -> Any:
    y = x * 2
    y[x > 0] = c
    return y


def _branch(x: Any, c: Any) -> Any:
    return x * c if c > 1.0 else x - c


def _mix(x: Any, c: Any) -> Any:
    return c * x + (1.0 - c) * x.flip(0)


HOST = "the host says the types of the results, or runs the call between compiled parts"
ORDER = "the order of a norm chooses its formula"
RANGE = "what is an error depends on the value"

FORMS: dict[str, Form] = {
    # lists of torch.tensor
    "list": Form(lambda x, c: x[..., :2] * torch.tensor([c, 2.0], dtype=x.dtype)),
    "list_told": Form(lambda x, c: torch.tensor([c, 1, True], dtype=torch.float64, device="cpu") * x[:, :3]),
    "lists": Form(lambda x, c: torch.tensor([[c, 1.0], [0.5, -c]]) * x[:2, :2]),
    "as_lists": Form(lambda x, c: torch.as_tensor([[[c]], [[c * 2]]], dtype=torch.float64) + x),
    "number_told": Form(lambda x, c: torch.tensor(c, dtype=torch.float64) * x[0]),
    # operands
    "add": Form(lambda x, c: x + c),
    "rsub": Form(lambda x, c: c - x),
    "mul": Form(lambda x, c: x * c),
    "temperature": Form(lambda x, c: (x / c).softmax(-1)),
    "rdiv": Form(lambda x, c: c / (x.abs() + 1)),
    "mix": Form(_mix),
    "floordiv": Form(lambda x, c: x // c, False),
    "remainder": Form(lambda x, c: x % c, False),
    "fmod": Form(lambda x, c: torch.fmod(x, c), False),
    "floor_divide": Form(lambda x, c: torch.floor_divide(x, c), False),
    "div_mode": Form(lambda x, c: torch.div(x, c, rounding_mode="floor"), False),
    "pow": Form(lambda x, c: x.abs().pow(c)),
    "pow_op": Form(lambda x, c: (x.abs() + 1) ** c),
    "rpow": Form(lambda x, c: c**x),
    "torch_pow": Form(lambda x, c: torch.pow(c, x)),
    "compare": Form(lambda x, c: x * (x > c)),
    "eq": Form(lambda x, c: x == c, False),
    "maximum": Form(lambda x, c: torch.maximum(x, torch.tensor(c))),
    "atan2": Form(lambda x, c: torch.atan2(x, torch.full_like(x, c))),
    "xlogy": Form(lambda x, c: torch.xlogy(x.abs(), c)),
    "xlogy_self": Form(lambda x, c: torch.xlogy(c, x.abs() + 1)),
    "copysign": Form(lambda x, c: torch.copysign(x, c)),
    "heaviside": Form(lambda x, c: torch.heaviside(x, torch.tensor(c)), False),
    "integers": Form(lambda x, c: (x * 4).long() * c, False),
    "integers_add": Form(lambda x, c: (x * 4).int() + c, False),
    "half": Form(lambda x, c: x.half() * c),
    "bfloat16": Form(lambda x, c: x.bfloat16() * c),
    "zero_dim": Form(lambda x, c: x.sum() * c),
    "zero_dim_int": Form(lambda x, c: (x.sum() * 3).long() * c, False),
    "double": Form(lambda x, c: x.double() * c),
    # bounds
    "clamp": Form(lambda x, c: x.clamp(-c, c)),
    "clamp_min": Form(lambda x, c: x.clamp(min=c)),
    "clamp_max": Form(lambda x, c: torch.clamp_max(x, c)),
    "clamp_": Form(lambda x, c: (x * 2).clamp_(-c, 1.0)),
    "clip": Form(lambda x, c: torch.clip(x, max=c)),
    "hardtanh": Form(lambda x, c: F.hardtanh(x, -abs(c) - 1e-3, abs(c))),
    "nan_to_num": Form(lambda x, c: torch.nan_to_num(x / (x > 0), nan=c, posinf=c, neginf=-c)),
    # conditions and filling
    "where": Form(lambda x, c: torch.where(x > 0, x, c)),
    "where_left": Form(lambda x, c: torch.where(x > 0, c, x)),
    "where_both": Form(lambda x, c: torch.where(x > 0, c, 0.0), False),
    "where_method": Form(lambda x, c: x.where(x > 0, c)),
    "masked_fill": Form(lambda x, c: x.masked_fill(x > 0, c)),
    "masked_fill_": Form(lambda x, c: (x * 2).masked_fill_(x > 0, c)),
    "setitem": Form(_setitem),
    "mask_setitem": Form(_mask_setitem),
    "full": Form(lambda x, c: x + torch.full((6,), c)),
    "full_like": Form(lambda x, c: x + torch.full_like(x, c)),
    "new_full": Form(_new_full),
    "new_tensor": Form(lambda x, c: x + x.new_tensor(c)),
    "fill_": Form(_fill_),
    "tensor": Form(lambda x, c: x * torch.tensor(c)),
    "tensor_list": Form(lambda x, c: x[:, :2] * torch.tensor([c, 1.0])),
    "as_tensor": Form(lambda x, c: x * torch.as_tensor(c)),
    "scalar_tensor": Form(lambda x, c: x * torch.scalar_tensor(c)),
    "index_fill": Form(lambda x, c: x.index_fill(0, torch.tensor([0, 2]), c)),
    "scatter_value": Form(lambda x, c: x.scatter(1, torch.tensor([[0], [1], [2], [3]]), c)),
    "pad": Form(lambda x, c: F.pad(x, (1, 2), value=c)),
    "fill_diagonal": Form(lambda x, c: (x * 2).fill_diagonal_(c), compiles=9, reason=HOST),
    # factors of sums
    "add_alpha": Form(lambda x, c: torch.add(x, x.flip(0), alpha=c)),
    "sub_alpha": Form(lambda x, c: torch.sub(x, x.flip(0), alpha=c)),
    "add_alpha_": Form(lambda x, c: (x * 2).add_(x, alpha=c)),
    "rsub_alpha": Form(lambda x, c: torch.rsub(x, x.flip(0), alpha=c)),
    "addcmul": Form(lambda x, c: torch.addcmul(x, x, x.flip(0), value=c)),
    "addcdiv": Form(lambda x, c: torch.addcdiv(x, x, x.abs() + 1, value=c)),
    "lerp": Form(lambda x, c: torch.lerp(x, x.flip(0), c)),
    "lerp_": Form(lambda x, c: (x * 2).lerp_(x, c)),
    "addmm": Form(lambda x, c: torch.addmm(x, x[:, :4], x, beta=c, alpha=c)),
    "addmm_alpha": Form(lambda x, c: torch.addmm(x, x[:, :4], x, alpha=c)),
    "baddbmm": Form(lambda x, c: torch.baddbmm(x[None], x[None, :, :4], x[None], beta=0.5, alpha=c)),
    "addmv": Form(lambda x, c: torch.addmv(x[:, 0], x, x[0], alpha=c)),
    "addr": Form(lambda x, c: torch.addr(x, x[:, 0], x[0], alpha=c)),
    "index_add": Form(lambda x, c: torch.index_add(x, 0, torch.tensor([0, 2]), x[:2], alpha=c)),
    # activations
    "leaky_relu": Form(lambda x, c: F.leaky_relu(x, c)),
    "elu": Form(lambda x, c: F.elu(x, c)),
    "celu": Form(lambda x, c: F.celu(x, c)),
    "softplus": Form(lambda x, c: F.softplus(x, c)),
    "softplus_threshold": Form(lambda x, c: F.softplus(x, 1.0, c)),
    "softshrink": Form(lambda x, c: F.softshrink(x, abs(c))),
    "hardshrink": Form(lambda x, c: F.hardshrink(x, c)),
    "threshold": Form(lambda x, c: F.threshold(x, c, 0.5)),
    "threshold_value": Form(lambda x, c: F.threshold(x, 0.1, c)),
    "rrelu": Form(lambda x, c: F.rrelu(x, 0.1, c), compiles=9, reason=RANGE),
    "logit": Form(lambda x, c: torch.logit(x.sigmoid(), eps=c / 100)),
    "prelu": Form(lambda x, c: F.prelu(x, torch.tensor([c]))),
    # norms
    "layer_norm": Form(lambda x, c: F.layer_norm(x, (6,), eps=c)),
    "rms_norm": Form(lambda x, c: F.rms_norm(x, (6,), eps=c)),
    "group_norm": Form(lambda x, c: F.group_norm(x, 2, eps=c)),
    "batch_norm": Form(_batch_norm),
    "momentum": Form(_momentum),
    "instance_norm": Form(lambda x, c: F.instance_norm(x[None], eps=c)),
    "normalize": Form(lambda x, c: F.normalize(x, eps=c)),
    "normalize_p": Form(lambda x, c: F.normalize(x, p=abs(c) + 1.5), compiles=9, reason=ORDER),
    "norm": Form(lambda x, c: x.norm(abs(c) + 1.5, dim=1), compiles=9, reason=ORDER),
    "vector_norm": Form(lambda x, c: torch.linalg.vector_norm(x, abs(c) + 1.5, dim=1), compiles=9, reason=ORDER),
    "renorm": Form(lambda x, c: torch.renorm(x, 2, 0, abs(c)), False, compiles=9, reason=RANGE),
    "local_response_norm": Form(lambda x, c: F.local_response_norm(x[None], 3, alpha=c)),
    "own_norm": Form(lambda x, c: x * (x.square().mean(-1, keepdim=True) + c).rsqrt()),
    # attention and losses
    "attention": Form(_attention),
    "smooth_l1": Form(lambda x, c: F.smooth_l1_loss(x, x.flip(0), beta=c)),
    "huber": Form(lambda x, c: F.huber_loss(x, x.flip(0), delta=c)),
    "smoothing": Form(lambda x, c: F.cross_entropy(x, torch.tensor([0, 1, 2, 3]), label_smoothing=abs(c) / 10)),
    "margin_ranking": Form(lambda x, c: F.margin_ranking_loss(x[0], x[1], torch.ones(6), margin=c)),
    "triplet": Form(lambda x, c: F.triplet_margin_loss(x, x.flip(0), x * 2, margin=c)),
    "cosine": Form(lambda x, c: F.cosine_similarity(x, x.flip(0), eps=abs(c) + 1e-6)),
    "cosine_loss": Form(lambda x, c: F.cosine_embedding_loss(x, x.flip(0), torch.ones(4), margin=c)),
    "gaussian_nll": Form(lambda x, c: F.gaussian_nll_loss(x, x.flip(0), x.abs(), eps=abs(c) + 1e-6)),
    "poisson_nll": Form(lambda x, c: F.poisson_nll_loss(x, x.abs(), log_input=False, eps=c)),
    "hinge": Form(lambda x, c: F.hinge_embedding_loss(x, torch.ones(4, 6), margin=c)),
    "multi_margin": Form(lambda x, c: F.multi_margin_loss(x, torch.tensor([0, 1, 2, 3]), margin=c)),
    "pairwise": Form(lambda x, c: F.pairwise_distance(x, x.flip(0), eps=c)),
    "cdist": Form(lambda x, c: torch.cdist(x, x.flip(0), p=abs(c) + 1.5), compiles=9, reason=ORDER),
    "dist": Form(lambda x, c: torch.dist(x, x.flip(0), abs(c) + 1.5), compiles=9, reason=ORDER),
    # random numbers
    "dropout": Form(lambda x, c: F.dropout(x, abs(c) / 10)),
    "dropout_": Form(lambda x, c: F.dropout(x * 2, abs(c) / 10, inplace=True)),
    "dropout_eval": Form(lambda x, c: F.dropout(x, abs(c) / 10, False)),
    "dropout1d": Form(lambda x, c: F.dropout1d(x, abs(c) / 10), compiles=9, reason=HOST),
    "alpha_dropout": Form(lambda x, c: F.alpha_dropout(x, abs(c) / 10, True), compiles=9, reason=HOST),
    "normal_": Form(lambda x, c: x + torch.empty(4, 6).normal_(c, 2.0)),
    "normal_std": Form(lambda x, c: x + torch.empty(4, 6).normal_(0.0, abs(c))),
    "torch_normal": Form(lambda x, c: x + torch.normal(c, 1.0, (4, 6))),
    "uniform_": Form(lambda x, c: x + torch.empty(4, 6).uniform_(0.0, abs(c))),
    "bernoulli": Form(lambda x, c: x + torch.bernoulli(torch.full((4, 6), abs(c) / 10))),
    "bernoulli_": Form(lambda x, c: x + torch.empty(4, 6).bernoulli_(abs(c) / 10)),
    "exponential_": Form(lambda x, c: x + torch.empty(4, 6).exponential_(abs(c) + 0.1)),
    "noise": Form(lambda x, c: x + torch.randn(4, 6) * c),
    "gumbel": Form(lambda x, c: F.gumbel_softmax(x, abs(c) + 0.1)),
    # arithmetic
    "math": Form(lambda x, c: x * (0.5 * (1 + math.cos(c * 0.1)))),
    "exp": Form(lambda x, c: x * math.exp(-abs(c))),
    "sqrt": Form(lambda x, c: x / math.sqrt(abs(c) + 1)),
    "log": Form(lambda x, c: x + math.log(abs(c) + 1)),
    "power": Form(lambda x, c: x * 0.9**c),
    "square": Form(lambda x, c: x * c**2),
    "absolute": Form(lambda x, c: x * abs(c)),
    "negative": Form(lambda x, c: x * -c),
    "smallest": Form(lambda x, c: x * min(c, 100.0)),
    "largest": Form(lambda x, c: x * max(0.01, c)),
    "both": Form(lambda x, c: x * min(max(c, -100.0), 100.0)),
    "optimiser": Form(_optimiser),
    "adam": Form(_adam),
    "float": Form(lambda x, c: x * float(c)),
    "integral": Form(lambda x, c: x * (c // 0.5)),
    "modulo": Form(lambda x, c: x * (c % 0.75)),
    "returned": Form(lambda x, c: (x * c, c + 1.0)),
    # others
    "branch": Form(_branch, compiles=3, reason="a branch on the value"),
    "interpolate": Form(
        lambda x, c: F.interpolate(x[None], scale_factor=abs(c) + 1.0), compiles=9, reason="the value decides a size"
    ),
    "quantile": Form(lambda x, c: torch.quantile(x, min(abs(c), 9.0) / 10, dim=1), compiles=9, reason=HOST),
    "linspace": Form(lambda x, c: x + torch.linspace(0.0, c, 6)),
    "arange": Form(lambda x, c: x + torch.arange(6) * c),
    "arange_end": Form(
        lambda x, c: torch.arange(0.0, abs(c) + 1, 0.5), False, compiles=9, reason="the value decides a size"
    ),
    "histc": Form(lambda x, c: torch.histc(x, 5, -abs(c) - 1, abs(c) + 1), False),
    "cumsum": Form(lambda x, c: (x * c).cumsum(1)),
    "logsumexp": Form(lambda x, c: torch.logsumexp(x * c, 1) / c),
    "isclose": Form(lambda x, c: torch.isclose(x, x.flip(0), atol=abs(c)), False),
    "polar": Form(lambda x, c: torch.polar(x.abs(), x * c).real),
    "complex": Form(lambda x, c: (torch.complex(x, x) * c).abs()),
    "stack": Form(lambda x, c: torch.stack([x * c, x + c])),
    "foreach": Form(lambda x, c: torch._foreach_mul([x, x.flip(0)], c)),
    "foreach_add": Form(lambda x, c: torch._foreach_add([x, x.flip(0)], [x, x], alpha=c)),
}
