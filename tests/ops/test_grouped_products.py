"""Products of groups of rows with a matrix each: torch's operator in every form, with its errors, and that of the library transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tatara
from results import same


def ends(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def grouped(a: Tensor, b: Tensor, offs: Tensor | None = None, **options: Any) -> Tensor:
    return torch._grouped_mm(a, b, offs=offs, **options)


def third(f: Callable[..., Any], *args: Any) -> Any:
    compiled = tatara.compile(f, fullgraph=True)
    for _ in range(2):
        compiled(*args)
    return compiled(*args)


FORMS: dict[str, tuple[Tensor, ...]] = {
    "rows": (random(10, 16), random(3, 16, 8), ends(3, 3, 10)),
    "rows, columns first, padded": (random(10, 16), random(3, 9, 16).mT, ends(3, 3, 10)),
    "inner": (random(16, 16).T, random(16, 24), ends(3, 3, 16)),
    "columns": (random(3, 16, 16), random(16, 24), ends(3, 3, 24)),
    "batches": (random(3, 5, 16), random(3, 16, 8)),
    "batches, padded": (random(3, 5, 16), random(3, 9, 16).mT),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_form(form: str, dtype: torch.dtype) -> None:
    a, b, *offs = FORMS[form]
    a, b = a.to(dtype), b.to(dtype)
    same(third(lambda *args: grouped(*args) * 2, a, b, *offs), grouped(a, b, *offs) * 2)


@pytest.mark.parametrize("form", ["rows", "inner", "columns", "batches"])  # eager has none of padded rows
def test_gradients(form: str) -> None:
    a, b, *offs = FORMS[form]
    g = random(*grouped(a, b, *offs).shape).contiguous()

    def gradients(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        return torch.autograd.grad(torch.tanh(grouped(a, b, *offs)), [a, b], g)

    eager, ours = gradients(a, b), third(gradients, a, b)
    for x, y in zip(ours, eager, strict=True):
        torch.testing.assert_close(x, y)
        assert x.shape == y.shape


def test_second_derivatives() -> None:
    a, b, offs = FORMS["rows"]

    def f(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        (first,) = torch.autograd.grad(grouped(a, b, offs).sin().square().sum(), a, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [a, b])

    for x, y in zip(third(f, a, b), f(a, b), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "args",
    [
        (random(10, 16), random(3, 18, 8), ends(3, 3, 10)),
        (random(10, 16), random(3, 16, 8), ends(3, 3, 10).long()),
        (random(10, 16), random(3, 16, 8)),
        (random(10, 16), random(3, 16, 8).double(), ends(3, 3, 10)),
    ],
    ids=["inner", "long", "without ends", "dtypes"],
)
def test_bad_input_is_eagers_error(args: tuple[Tensor, ...]) -> None:
    compiled = tatara.compile(grouped)
    for _ in range(3):
        with pytest.raises(Exception) as eager:  # noqa: PT011
            grouped(*args)
        with pytest.raises(type(eager.value)) as ours:
            compiled(*args)
        assert str(ours.value) == str(eager.value)


def test_the_form_of_the_transformers_library() -> None:
    """An operator of the graph, with the library's own derivative."""
    pytest.importorskip("transformers.integrations.moe")
    operator = torch.ops.transformers.grouped_mm_fallback
    a, b = random(10, 16), random(3, 16, 8)

    def f(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
        return torch.relu(operator(a, b, offs))

    same(third(f, a, b, ends(3, 3, 8)), f(a, b, ends(3, 3, 8)))
    a.requires_grad_()
    b.requires_grad_()
    compiled = tatara.compile(f)
    found = []
    for way in (compiled, compiled, compiled, f):
        a.grad = b.grad = None
        before = tatara.stats()["fallbacks"]
        way(a, b, ends(3, 3, 8)).sum().backward()
        assert tatara.stats()["fallbacks"] == before
        found.append((a.grad, b.grad))
    for ours, eager in zip(found[2], found[3], strict=True):
        assert torch.equal(ours, eager)
        assert ours.stride() == eager.stride()
