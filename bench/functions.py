"""The functions of `make bench-kernels`: each a plain PyTorch function and its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the ecosystem's name

Tensor = torch.Tensor


@dataclass(frozen=True)
class Function:
    """A function to measure; `inputs(scale)` makes its arguments, `scale` multiplies the leading size."""

    name: str
    call: Callable[..., Any]
    inputs: Callable[[int], tuple[Any, ...]]


def _rows(columns: int, rows: int = 4096) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda scale: (torch.randn(rows * scale, columns),)


def gelu_bias(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


def layer_norm_residual(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x + residual, (x.shape[-1],), weight, bias)


def rms_norm_residual(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x + residual
    return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6) * weight, hidden


def batch_norm(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var, weight, bias))


def rotary(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    def rotate(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

    return query * cos + rotate(query) * sin, key * cos + rotate(key) * sin


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def adamw(params: list[Tensor], grads: list[Tensor], first: list[Tensor], second: list[Tensor]) -> None:
    for p, g, m, v in zip(params, grads, first, second):
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.mul_(1 - 1e-5).addcdiv_(m / (1 - 0.9), (v / (1 - 0.999)).sqrt().add_(1e-8), value=-1e-3)


def nbody(position: Tensor, mass: Tensor) -> Tensor:
    delta = position[None, :, :] - position[:, None, :]
    inverse = (delta.square().sum(-1) + 1e-3).rsqrt()
    return (delta * (inverse.pow(3) * mass[None, :])[..., None]).sum(1)


def mandelbrot(c: Tensor) -> Tensor:
    z = torch.zeros_like(c)
    count = torch.zeros(c.shape, dtype=torch.int32, device=c.device)
    for _ in range(20):
        z = z * z + c
        count = count + (z.abs() < 2.0).to(torch.int32)
    return count


def stencil(x: Tensor) -> Tensor:
    return 0.2 * (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def softmax_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target)


def _adamw_inputs(scale: int) -> tuple[list[Tensor], ...]:
    sizes = [(256, 256 * scale)] * 64
    return tuple([torch.rand(*s) for s in sizes] for _ in range(4))


def _norm_over(dim: int) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.linalg.vector_norm(x, dim=dim)


FUNCTIONS = [
    Function("gelu_bias", gelu_bias, lambda s: (torch.randn(2048 * s, 3072), torch.randn(3072))),
    Function("softmax_1k", lambda x: torch.softmax(x, -1), _rows(1024)),
    Function("softmax_32k", lambda x: torch.softmax(x, -1), _rows(32768, 128)),
    Function(
        "layer_norm_residual",
        layer_norm_residual,
        lambda s: (torch.randn(4096 * s, 768), torch.randn(4096 * s, 768), torch.randn(768), torch.randn(768)),
    ),
    Function(
        "rms_norm_residual",
        rms_norm_residual,
        lambda s: (torch.randn(4096 * s, 1024), torch.randn(4096 * s, 1024), torch.randn(1024)),
    ),
    Function(
        "batch_norm",
        batch_norm,
        lambda s: (torch.randn(16 * s, 64, 56, 56), torch.randn(64), torch.rand(64), torch.randn(64), torch.randn(64)),
    ),
    Function("var_mean_all", lambda x: torch.var_mean(x), _rows(1024)),
    Function(
        "cross_entropy",
        softmax_cross_entropy,
        lambda s: (torch.randn(512 * s, 32000), torch.randint(0, 32000, (512 * s,))),
    ),
    Function(
        "rotary",
        rotary,
        lambda s: (
            torch.randn(4 * s, 12, 512, 64),
            torch.randn(4 * s, 12, 512, 64),
            torch.randn(512, 64),
            torch.randn(512, 64),
        ),
    ),
    Function("swiglu", swiglu, lambda s: (torch.randn(2048 * s, 3072), torch.randn(2048 * s, 3072))),
    Function("transposed_unary", lambda x: torch.exp(x.t()).contiguous(), _rows(2048, 2048)),
    Function("flip", lambda x: torch.flip(x, (0, 1)), _rows(1024)),
    Function("norm_dim0", _norm_over(0), _rows(2048, 2048)),
    Function("norm_dim1", _norm_over(1), _rows(2048, 2048)),
    Function("norm_middle", _norm_over(1), lambda s: (torch.randn(64 * s, 256, 256),)),
    Function("to_bfloat16", lambda x: x.to(torch.bfloat16), _rows(1024)),
    Function(
        "half_to_float_scale", lambda x: x.to(torch.float32) * 0.5, lambda s: (torch.randn(4096 * s, 1024).half(),)
    ),
    Function(
        "int_to_float",
        lambda x: x.to(torch.float32) / 255.0,
        lambda s: (torch.randint(0, 255, (4096 * s, 1024), dtype=torch.uint8),),
    ),
    Function("strided_unary", lambda x: torch.tanh(x[:, ::2]), _rows(2048)),
    Function("cumsum", lambda x: torch.cumsum(x, -1), _rows(1024)),
    Function("sort", lambda x: torch.sort(x, -1), _rows(256)),
    Function("topk", lambda x: torch.topk(x, 8, -1), _rows(1024, 1024)),
    Function("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), lambda s: (torch.randn(8 * s, 64, 112, 112),)),
    Function(
        "gather",
        lambda x, i: torch.gather(x, 1, i),
        lambda s: (torch.randn(2048 * s, 1024), torch.randint(0, 1024, (2048 * s, 1024))),
    ),
    Function(
        "index_add",
        lambda x, i, y: torch.index_add(x, 0, i, y),
        lambda s: (torch.randn(4096, 256), torch.randint(0, 4096, (8192 * s,)), torch.randn(8192 * s, 256)),
    ),
    Function(
        "embedding_sum",
        lambda i, w, p: F.embedding(i, w) + p,
        lambda s: (torch.randint(0, 30000, (16 * s, 512)), torch.randn(30000, 256), torch.randn(512, 256)),
    ),
    Function("adamw_64", adamw, _adamw_inputs),
    Function(
        "matmul_2d_3d",
        lambda a, b: torch.matmul(a, b) * 0.125,
        lambda s: (torch.randn(512, 512), torch.randn(8 * s, 512, 256)),
    ),
    Function(
        "complex_mul_abs",
        lambda a, b: torch.abs(a * b),
        lambda s: (
            torch.randn(1024 * s, 1024, dtype=torch.complex64),
            torch.randn(1024 * s, 1024, dtype=torch.complex64),
        ),
    ),
    Function("nbody", nbody, lambda s: (torch.randn(1024 * s, 3), torch.rand(1024 * s))),
    Function(
        "mandelbrot",
        mandelbrot,
        lambda s: (
            torch.complex(
                torch.linspace(-2, 1, 512)[None, :].repeat(512 * s, 1),
                torch.linspace(-1, 1, 512 * s)[:, None].repeat(1, 512),
            ),
        ),
    ),
    Function("stencil", stencil, _rows(2048, 2048)),
    Function("log_softmax_nll", lambda x: -F.log_softmax(x, -1)[:, 0].mean(), _rows(8192, 512)),
    Function(
        "masked_attention_scores",
        lambda x, m: torch.softmax((x / math.sqrt(64)).masked_fill(m, -1e9), -1),
        lambda s: (torch.randn(4 * s, 12, 256, 256), torch.rand(256, 256) > 0.5),
    ),
]

BY_NAME = {function.name: function for function in FUNCTIONS}
