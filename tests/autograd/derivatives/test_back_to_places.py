"""Derivatives of sort, topk, median and mode, which are steps of the plan: first and second ones, forward ones, in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, jvp, vmap

import tatara
from results import same

FORMS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: x.sort(-1)[0],
    "sort down": lambda x: torch.sort(x, 0, descending=True)[0],
    "stable": lambda x: torch.sort(x, stable=True, dim=0)[0],
    "topk": lambda x: x.topk(2, -1)[0],
    "least": lambda x: x.topk(1, 0, largest=False)[0],
    "median": lambda x: x.median(-1)[0],
    "nanmedian": lambda x: x.nanmedian(0, keepdim=True)[0],
    "mode": lambda x: x.mode(-1)[0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FORMS)
def test_gradients(name: str, dtype: Any) -> None:
    form = FORMS[name]

    def program(x: Any) -> Any:
        picked = form(x * 2)
        return (picked.float() ** 2 * torch.arange(picked.numel()).view(picked.shape)).sum()

    for shape in ((4, 5), (3, 4, 5), (33, 70)):
        compiled = tatara.compile(program)
        for ties in (False, True):
            x = (torch.randint(-9, 9, shape) if ties else torch.randn(shape)).to(dtype)
            x = x.transpose(0, -1) if ties else x
            for _ in range(2):
                mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
                compiled(mine).backward()
                program(theirs).backward()
                same(mine.grad, theirs.grad, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("name", FORMS)
def test_beyond_first_derivatives(name: str) -> None:
    form = FORMS[name]

    def second(x: Any) -> Any:
        first = grad(lambda y: form(y.tanh()).pow(3).sum())
        return grad(lambda y: first(y).sin().sum())(x)

    def forward(x: Any) -> Any:
        return list(jvp(form, (x,), (x * 3,)))

    def batched(x: Any) -> Any:
        return vmap(grad(lambda y: form(y).pow(2).sum()))(torch.stack([x, x + 1, -x]))

    for program in (second, forward, batched):
        compiled = tatara.compile(program)
        for _ in range(2):
            x = torch.randn(4, 5, dtype=torch.float64)
            same(compiled(x), program(x))


def test_single_numbers() -> None:
    for form in (lambda x: x.sort()[0], lambda x: x.topk(1)[0], lambda x: x.median(0)[0], lambda x: x.mode(0)[0]):
        mine, theirs = (torch.tensor(3.0, requires_grad=True) for _ in range(2))
        tatara.compile(lambda x, form=form: form(x).sum() * 2)(mine).backward()
        (form(theirs).sum() * 2).backward()
        same(mine.grad, theirs.grad)
