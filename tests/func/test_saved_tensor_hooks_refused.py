"""torch.func refuses hooks on saved tensors while a transform runs: so it is in compiled code, on both sides of a break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara

refused = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda g: torch.func.grad(g),
    "vjp": lambda g: lambda x: torch.func.vjp(g, x)[1](torch.ones(())),
    "hessian": lambda g: torch.func.hessian(g),
    "jacrev": lambda g: torch.func.jacrev(g),
    "grad of vmap": lambda g: torch.func.grad(lambda x: torch.vmap(g)(x[None]).sum()),
}


@pytest.mark.parametrize("breaks", ["", "before", "after", "both"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_asked_inside_and_after(name: str, breaks: str) -> None:
    seen: list[Any] = []

    def inner(v: torch.Tensor) -> torch.Tensor:
        w = v * v
        if breaks in ("before", "both"):
            print(end="")
        seen.append(refused())
        w = w * v
        if breaks in ("after", "both"):
            print(end="")
        return w.sum()

    def f(x: torch.Tensor) -> Any:
        result = TRANSFORMS[name](inner)(x)
        seen.append(refused())
        return result

    x = torch.arange(4.0)
    expected = f(x)
    asked = list(seen)
    compiled = tatara.compile(f)
    for _ in range(3):
        seen.clear()
        torch.testing.assert_close(compiled(x), expected)
        assert seen == asked
        assert refused() is None


def test_the_program_itself_refuses() -> None:
    def f(x: torch.Tensor) -> Any:
        with torch.autograd.graph.disable_saved_tensors_hooks("not now"):
            y = x * 2
            print(end="")
            inside = refused()
        torch._C._autograd._saved_tensors_hooks_disable("from here on")
        return y, inside

    compiled = tatara.compile(f)
    for _ in range(3):
        for g in (f, compiled):
            y, inside = g(torch.ones(2))
            assert (inside, refused()) == ("not now", "from here on")
            assert torch.equal(y, torch.full((2,), 2.0))
            torch._C._autograd._saved_tensors_hooks_enable()
