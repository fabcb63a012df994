"""Inputs that compiled code does not take: the function runs in eager, and the report says why, once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402


class Subclass(torch.Tensor):
    pass


_COMPLEX = torch.complex(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, -6.0]))
_KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str]] = {
    "subclass": (lambda: torch.ones(3).as_subclass(Subclass), lambda a: a * 2, "tensor subclass (Subclass)"),
    "meta": (lambda: torch.ones(3, device="meta"), lambda a: (a * 2).shape, "meta device"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]),
        lambda a: (a * 2).to_padded_tensor(0.0),
        "nested tensor",
    ),
    "mkldnn": (lambda: torch.ones(3).to_mkldnn(), lambda a: (a + a).to_dense(), "another layout (torch._mkldnn)"),
    "conjugate": (lambda: _COMPLEX.conj(), lambda a: a * 2, "conjugate view"),
    "negative": (lambda: _COMPLEX.conj().imag, lambda a: a * 2, "negative view"),
    "zeros": (lambda: torch._efficientzerotensor((3,)), lambda a: a + 2, "zeros without memory"),
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", [kind for kind in _KINDS if kind != "conjugate"])  # that one is taken
@pytest.mark.parametrize("place", ["argument", "list", "attribute"])
def test_reason(kind: str, place: str) -> None:
    make, f, reason = _KINDS[kind]

    class Holder:
        pass

    def wrap(value: Any) -> Any:
        if place == "argument":
            return value
        if place == "list":
            return [value]
        holder: Any = Holder()
        holder.value = value
        return holder

    def g(box: Any) -> Any:
        return f(box if place == "argument" else box[0] if place == "list" else box.value)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = tatara.compile(g)
        for _ in range(3):
            torch.testing.assert_close(compiled(wrap(make())), f(make()))
    breaks = [b["reason"] for b in compiled._report()["breaks"]]
    assert len(breaks) == 1 and reason in breaks[0], breaks
    assert reason in str(tatara.explain(g)(wrap(make())))


@pytest.mark.parametrize("kind", ["subclass", "conjugate", "negative", "zeros"])
def test_after_plain_tensors(kind: str) -> None:
    """Compiled code for a plain tensor of the same layout is not run on these."""
    make, _, _ = _KINDS[kind]
    compiled = tatara.compile(lambda a: a + a)
    like = make()
    dense = (like.to_dense() if like.layout != torch.strided else like).resolve_conj().resolve_neg().clone()
    for value in (dense, like, dense, like):
        torch.testing.assert_close(compiled(value), value + value)


def test_closure() -> None:
    zeros, negative = torch._efficientzerotensor((3, 3)), _COMPLEX.conj().imag
    compiled = tatara.compile(lambda a: a + zeros)
    other = tatara.compile(lambda a: a * 3 + negative)
    for _ in range(3):
        x = torch.randn(3, 3)
        torch.testing.assert_close(compiled(x), x + zeros)
        torch.testing.assert_close(other(x), x * 3 + negative)
    assert "zeros without memory" in compiled._report()["breaks"][0]["reason"]
    assert "negative view" in other._report()["breaks"][0]["reason"]


def test_parameter_becomes_a_negative_view() -> None:
    weight = torch.ones(3)
    compiled = tatara.compile(lambda a: a * weight)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x)
    weight.data = torch._neg_view(torch.full((3,), 5.0))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x * -5)


class Counting(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_function_modes() -> None:
    compiled = tatara.compile(lambda a: a @ a)
    x = torch.randn(4, 4)
    with Counting():
        torch.testing.assert_close(compiled(x), x @ x)
    assert "a torch function mode is on" in compiled._report()["breaks"][0]["reason"]
    torch.testing.assert_close(compiled(x), x @ x)
    assert tatara.explain(lambda a: a @ a)(x).breaks == []
