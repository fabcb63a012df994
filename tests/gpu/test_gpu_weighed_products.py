"""On a GPU: products of a few rows, or some more, with a weight that is computed from less: tensor cores multiply it as it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, silu

import tatara

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
    ),
]

Operands = list[Tensor]
Program = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(11)
    yield


def scales(outer: int, count: int, dtype: torch.dtype) -> Tensor:
    return (torch.rand(outer, count, device="cuda") * 0.02 + 0.01).to(dtype)


def int8(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
    w = torch.randint(-128, 128, (outer, inner), dtype=torch.int8, device="cuda")
    return lambda x, w, s: linear(x, w.to(x.dtype) * s), [w, scales(outer, 1, dtype)]


def groups(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
    def program(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        return linear(x, (w.reshape(outer, -1, 32).to(x.dtype) * s[:, :, None]).reshape(outer, -1))

    w = torch.randint(0, 256, (outer, inner), dtype=torch.uint8, device="cuda")
    return program, [w, scales(outer, inner // 32, dtype)]


def int4(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
    def program(x: Tensor, p: Tensor, s: Tensor, z: Tensor) -> Tensor:
        w = torch.stack([p & 15, p >> 4], -1).reshape(outer, -1, 32).to(x.dtype)
        return linear(x, ((w - z[:, :, None]) * s[:, :, None]).reshape(outer, -1))

    packed = torch.randint(0, 256, (outer, inner // 2), dtype=torch.uint8, device="cuda")
    count = inner // 32
    return program, [packed, scales(outer, count, dtype), torch.full((outer, count), 7.5, device="cuda", dtype=dtype)]


def halves(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
    def program(x: Tensor, p: Tensor, s: Tensor) -> Tensor:
        return linear(x, (torch.cat([p >> 4, p & 15], -1).to(x.dtype) - 8) * s)

    packed = torch.randint(0, 256, (outer, inner // 2), dtype=torch.uint8, device="cuda")
    return program, [packed, scales(outer, 1, dtype)]


def shifts(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
    """Two bits each."""

    def program(x: Tensor, p: Tensor, by: Tensor, s: Tensor) -> Tensor:
        return linear(x, ((p[:, :, None] >> by) & 3).reshape(outer, -1).to(x.dtype) * s)

    packed = torch.randint(0, 256, (outer, inner // 4), dtype=torch.uint8, device="cuda")
    return program, [packed, torch.arange(0, 8, 2, device="cuda", dtype=torch.uint8), scales(outer, 1, dtype)]


def gptq(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
    """Words of 32 bits along k, whose neighbours are of other results; zero points packed along results."""

    def program(x: Tensor, words: Tensor, zeros: Tensor, s: Tensor, by: Tensor) -> Tensor:
        w = (words.unsqueeze(1) >> by.unsqueeze(-1)) & 15
        z = ((zeros.unsqueeze(2) >> by) & 15).reshape(s.shape)
        w = w.reshape(s.shape[0], -1, outer) - z.unsqueeze(1)
        return x @ (w.to(x.dtype) * s.unsqueeze(1)).reshape(inner, outer)

    whole = torch.iinfo(torch.int32)
    words = torch.randint(whole.min, whole.max, (inner // 8, outer), dtype=torch.int32, device="cuda")
    zeros = torch.randint(whole.min, whole.max, (inner // 64, outer // 8), dtype=torch.int32, device="cuda")
    by = torch.arange(0, 32, 4, device="cuda", dtype=torch.int32)
    return program, [words, zeros, scales(inner // 64, outer, dtype), by]


def levels(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
    def program(x: Tensor, p: Tensor, table: Tensor, s: Tensor) -> Tensor:
        w = table[torch.stack([p >> 4, p & 15], -1).reshape(outer, -1).long()]
        return linear(x, (w.reshape(outer, -1, 64) * s[:, :, None]).reshape(outer, -1))

    packed = torch.randint(0, 256, (outer, inner // 2), dtype=torch.uint8, device="cuda")
    return program, [packed, torch.linspace(-1, 1, 16, device="cuda").to(dtype), scales(outer, inner // 64, dtype)]


def float8(kind: torch.dtype) -> Callable[[int, int, torch.dtype], tuple[Program, Operands]]:
    def made(outer: int, inner: int, dtype: torch.dtype) -> tuple[Program, Operands]:
        w = torch.randn(outer, inner, device="cuda").to(kind)
        return lambda x, w, s: linear(x, w.to(x.dtype) * s), [w, scales(outer, 1, dtype)]

    return made


KINDS: dict[str, Callable[[int, int, torch.dtype], tuple[Program, Operands]]] = {
    "int8": int8,
    "groups": groups,
    "int4": int4,
    "halves": halves,
    "shifts": shifts,
    "levels": levels,
    "gptq": gptq,
    "e4m3": float8(torch.float8_e4m3fn),
    "e5m2": float8(torch.float8_e5m2),
}


def check(f: Program, x: Tensor, weight: Operands, *, kernels: int | None = 1) -> None:
    """As near to the same in float64 as eager is, in so many kernels."""
    wide = [w.double() if w.is_floating_point() and w.element_size() > 1 else w for w in weight]
    exact, eager = f(x.double(), *wide), f(x, *weight)
    compiled = tatara.compile(f)
    compiled(x, *weight)
    compiled(x, *weight)
    with tatara.kernel_history() as history:
        found = compiled(x, *weight)
    names = [e.name for e in history.launches]
    assert any("weighed_product" in name for name in names) and not history.host_calls, names
    assert kernels is None or len(names) == kernels, names
    assert (found.dtype, found.shape, found.stride()) == (eager.dtype, eager.shape, eager.stride())
    wrong, known = (float((y.double() - exact).abs().max()) for y in (found, eager))
    assert wrong <= 1.5 * known + 1e-3 * float(exact.abs().max()), (wrong, known)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 17, 32, 50, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_as_exact_as_eager(kind: str, rows: int, dtype: torch.dtype) -> None:
    outer, inner = (200, 256) if rows % 2 else (256, 1024)
    program, weight = KINDS[kind](outer, inner, dtype)
    check(program, torch.randn(rows, inner, device="cuda", dtype=dtype), weight)


@pytest.mark.parametrize("kind", ["int4", "halves", "shifts", "levels", "gptq"])
@pytest.mark.parametrize("rows", [65, 100, 128])
def test_more_rows_of_packed_weights(kind: str, rows: int) -> None:
    program, weight = KINDS[kind](200, 512, torch.bfloat16)
    check(program, torch.randn(rows, 512, device="cuda", dtype=torch.bfloat16), weight)


@pytest.mark.parametrize("outer", [16, 40, 777, 4096])
@pytest.mark.parametrize("inner", [64, 192, 4096])
@pytest.mark.parametrize("rows", [2, 20])
def test_sizes(rows: int, inner: int, outer: int) -> None:
    for kind in ("int8", "int4", "halves"):
        if outer * inner < 4096 or outer < rows:
            continue
        program, weight = KINDS[kind](outer, inner, torch.bfloat16)
        check(program, torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16), weight)


def test_what_follows_is_part_of_it() -> None:
    program, weight = int8(512, 512, torch.bfloat16)
    weight.append(torch.randn(512, device="cuda", dtype=torch.bfloat16))
    x = torch.randn(24, 512, device="cuda", dtype=torch.bfloat16)
    check(lambda x, w, s, b: gelu(program(x, w, s)) * b + x, x, weight)
    check(lambda x, w, s, b: silu(linear(x, w.to(x.dtype) * s, b)) * x, x, weight)


def test_rows_that_lie_otherwise() -> None:
    program, weight = int8(256, 512, torch.bfloat16)
    check(program, torch.randn(24, 1024, device="cuda", dtype=torch.bfloat16)[:, 512:], weight)
    check(program, torch.randn(48, 512, device="cuda", dtype=torch.bfloat16)[::2], weight)
    check(program, torch.randn(24, 1024, device="cuda", dtype=torch.bfloat16)[:, ::2], weight, kernels=2)
    check(program, torch.randn(512, 24, device="cuda", dtype=torch.bfloat16).t(), weight, kernels=2)
    check(
        lambda x, w, s: program(torch.tanh(x), w, s), torch.randn(9, 512, device="cuda").bfloat16(), weight, kernels=2
    )


def test_rows_that_a_program_takes_apart() -> None:
    program, weight = int8(256, 512, torch.bfloat16)
    x = torch.randn(24, 1032, device="cuda", dtype=torch.bfloat16)
    check(lambda x, w, s: program(x[:, 8:520], w, s), x, weight)
    for first in (1, 4):
        check(lambda x, w, s, n=first: program(x[:, n : n + 512], w, s), x, weight, kernels=2)
    check(lambda x, w, s: program(x[3], w, s), x[:, 8:520], weight)
    check(lambda x, w, s: program(x.reshape(2, 12, 512), w, s), x[:, :512].contiguous(), weight)


def test_any_number_of_rows_has_one_plan() -> None:
    program, weight = int8(256, 512, torch.bfloat16)
    compiled = tatara.compile(program, dynamic=True)
    for rows in (20, 31, 64, 9, 50):
        x = torch.randn(rows, 512, device="cuda", dtype=torch.bfloat16)
        torch.testing.assert_close(compiled(x, *weight), program(x, *weight), rtol=0.02, atol=0.02)
    assert tatara.stats()["graphs"] <= 2


def test_the_same_bits_each_time() -> None:
    program, weight = int4(4096, 1024, torch.bfloat16)
    compiled: Any = tatara.compile(program)
    x = torch.randn(16, 1024, device="cuda", dtype=torch.bfloat16)
    first = [compiled(x, *weight) for _ in range(3)][-1]
    assert all(torch.equal(compiled(x, *weight), first) for _ in range(20))


def test_special_weights_and_rows() -> None:
    """Infinities and NaN stay where they are."""
    program, weight = int8(64, 256, torch.bfloat16)
    weight[1][3], weight[1][5] = float("inf"), float("nan")
    x = torch.randn(12, 256, device="cuda", dtype=torch.bfloat16)
    x[2, 7], x[4, 9] = float("inf"), float("nan")
    compiled = tatara.compile(program)
    for _ in range(3):
        found = compiled(x, *weight)
    torch.testing.assert_close(found, program(x, *weight), rtol=0.02, atol=0.05, equal_nan=True)
