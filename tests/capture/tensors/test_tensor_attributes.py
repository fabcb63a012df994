"""Every attribute that a tensor's type computes, read inside of compiled code: what eager has there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


def attributes() -> list[str]:
    found = []
    for name in dir(torch.Tensor):
        for owner in (torch.Tensor, torch._C.TensorBase):
            if type(vars(owner).get(name)).__name__ in ("getset_descriptor", "property"):
                found.append(name)
                break
    return found


def parameter() -> Any:
    p = torch.nn.Parameter(torch.randn(3, 4))
    p.register_hook(lambda g: g)
    p.register_post_accumulate_grad_hook(lambda p: None)
    p.grad = torch.ones(3, 4)
    p.mark = 3
    return p


def result() -> Any:
    y = torch.randn(3, 4, requires_grad=True) * 2
    y.register_hook(lambda g: g)
    y.retain_grad()
    return y


KINDS: dict[str, Callable[[], Any]] = {
    "plain": lambda: torch.randn(3, 4),
    "view": lambda: torch.randn(4, 3).t(),
    "complex": lambda: torch.randn(3, 4, dtype=torch.complex64),
    "integer": lambda: torch.arange(12).reshape(3, 4),
    "parameter": parameter,
    "result": result,
}


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        alike = (a.shape, a.dtype, a.stride(), a.requires_grad) == (b.shape, b.dtype, b.stride(), b.requires_grad)
        return alike and bool((a == b).all())
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or bool(a == b)


def outcome(call: Callable[..., Any], tensor: Any) -> Any:
    try:
        return call(tensor)
    except Exception as error:
        return type(error), str(error)


# Addresses, and objects that are made anew by each read.
ANEW = {"_cdata", "__weakref__", "__cuda_array_interface__"}
# A compiled graph is one node of the host's.
NODES = {"grad_fn", "_grad_fn"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", attributes())
def test_an_attribute(name: str, kind: str) -> None:
    scope: dict[str, Any] = {}
    value = "type(t.A).__name__" if name in ANEW else "len([t.A])" if name in NODES else "t.A"
    for source in (
        "def f(t):\n    return V, t.A is None, t + 1",
        "def made(t):\n    t = t * 2\n    return V, t.A is None, t + 1",
    ):
        exec(source.replace("V", value).replace("t.A", f"t.{name}"), scope)
    for function in (scope["f"], scope["made"]):
        torch.manual_seed(0)
        tensor = KINDS[kind]()
        tatara.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = outcome(function, tensor)
            compiled = tatara.compile(function)
            for _ in range(2):
                assert same(expected, outcome(compiled, tensor)), (expected, outcome(compiled, tensor))
