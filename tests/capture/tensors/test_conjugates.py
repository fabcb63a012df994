"""Views that are conjugated when they are read: inside of a graph they are numbers, where the program sees them eager's views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor

INSIDE: dict[str, Callable[[Tensor], Any]] = {
    "squared absolute": lambda x: (x * x.conj()).real.sum(),
    "adjoint product": lambda x: x.mH @ x + 1,
    "adjoint": lambda x: torch.adjoint(x) * 2,
    "H": lambda x: x.H * 2,
    "imaginary part": lambda x: x.conj().imag * 2,
    "of a view": lambda x: x[1:, ::2].conj() * 2,
    "view of it": lambda x: x.conj().T[1:] + 1,
    "twice": lambda x: x.conj().conj() * 2,
    "of a result": lambda x: (x * 2).exp().conj() + 1,
    "autocorrelation": lambda x: torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(x).conj()).real * 2,
    "asked": lambda x: x.conj() * (2 if x.conj().is_conj() else 3),
    "resolved where there is nothing": lambda x: x.resolve_conj().resolve_neg() * 2,
    "expanded": lambda x: x[:1].expand(6, 5).conj() * 2,
}
SEEN: dict[str, Callable[[Tensor], Any]] = {
    "result": lambda x: x.conj(),
    "view is a result": lambda x: x.conj().T,
    "both": lambda x: (x.conj(), x.conj() * 2),
    "imaginary part is a result": lambda x: x.conj().imag,
    "adjoint is a result": lambda x: x.mH,
    "detached": lambda x: x.conj().detach(),
    "view of it detached": lambda x: x.conj().detach().T[1:],
    "resolved": lambda x: x.conj().resolve_conj(),
    "written after": lambda x: (lambda y, z: (y.conj(), y.mul_(2), (z + 1).sum())[2])(x, x.conj()),
    "written through": lambda x: (lambda z: (z.add_(1), x * 2)[1])(x.conj()),
    "a view is written": lambda x: (lambda z: (x[0].zero_(), z * 2)[1])(x.conj()),
    "a view of it is written": lambda x: (lambda z: (z.T[0].zero_(), x * 2)[1])(x.conj()),
    "an item is set": lambda x: (lambda z: (x.__setitem__(0, 1j), z * 2)[1])(x.conj()),
    "written as out": lambda x: (lambda z: (torch.mul(x, 2, out=x), z * 2)[1])(x.conj()),
    "copied": lambda x: x.conj().clone(),
}


def _check(function: Callable[[Tensor], Any], x: Tensor) -> None:
    compiled = tatara.compile(function)
    for _ in range(4):
        mine, own = x.clone(), x.clone()
        got, expected = compiled(mine), function(own)
        for one, other in zip(
            got if isinstance(got, tuple) else (got,),
            expected if isinstance(expected, tuple) else (expected,),
            strict=True,
        ):
            assert (one.dtype, one.stride(), one.is_conj(), one.is_neg()) == (
                other.dtype, other.stride(), other.is_conj(), other.is_neg(),
            )  # fmt: skip
            torch.testing.assert_close(one, other)
            assert (one.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()) == (
                other.untyped_storage().data_ptr() == own.untyped_storage().data_ptr()
            )
        torch.testing.assert_close(mine, own)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", INSIDE)
def test_inside_of_a_graph(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(6, 5, dtype=dtype)
    _check(INSIDE[name], x)
    compiled = tatara.compile(INSIDE[name])
    for _ in range(3):
        compiled(x)
    with tatara.kernel_history() as history:
        compiled(x)
    # What lies with gaps is eager's view.
    assert history.launches or name in ("expanded", "of a view")
    assert not history.launches or not [call for call in history.host_calls if "conj" in call.name]


@pytest.mark.parametrize("name", SEEN)
def test_seen_by_the_program(name: str) -> None:
    _check(SEEN[name], torch.randn(6, 5, dtype=torch.complex64))


def test_what_eager_refuses() -> None:
    compiled, x = tatara.compile(lambda x: torch.view_as_real(x.conj()) * 2), torch.randn(3, dtype=torch.complex64)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="view_as_real"):
            compiled(x)


@pytest.mark.parametrize("name", ["squared absolute", "adjoint product", "of a view", "autocorrelation", "twice"])
def test_gradients(name: str) -> None:
    x = torch.randn(6, 5, dtype=torch.complex128)
    compiled = tatara.compile(INSIDE[name])
    for _ in range(3):
        gradients = []
        for function in (INSIDE[name], compiled):
            leaf = x.clone().requires_grad_()
            torch.view_as_real(torch.as_tensor(function(leaf)) + 0j).square().sum().backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(*gradients)
        assert gradients[0].is_conj() == gradients[1].is_conj()


STEPS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "squared absolute": lambda x, p: ((w := x * p.exp()) * w.conj()).real.sum(),
    "adjoint product": lambda x, p: ((w := torch.polar(p.exp(), p)).mH @ w).real.square().sum(),
    "of an operand": lambda x, p: (torch.polar(p.exp(), p) * x.conj()).imag.abs().sum(),
    "of what was written before": lambda x, p: ((y := x * 2).imag.add_(1), (torch.polar(p, p) * y.conj()).real.sum())[
        1
    ],
    "resolved where there is nothing": lambda x, p: (torch.polar(p, p).resolve_conj() * x.conj()).real.sum(),
    "both ways": lambda x, p: (((w := torch.polar(p, p)) * x.conj()).real * (w.conj() * x).imag).sum(),
}
STEPS_THAT_SHOW: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "result": lambda x, p: ((w := torch.polar(p, p)).conj(), (w.conj() * x).real.sum()),
    "written after": lambda x, p: ((c := x.conj()), torch.polar(p, p).real.sum(), x.mul_(2), c * 1)[1::2],
    "detached": lambda x, p: ((w := torch.polar(p, p)).conj().detach(), (w.conj() * x).real.sum()),
    "resolved": lambda x, p: ((w := torch.polar(p, p)).conj().resolve_conj(), (w.conj() * x).real.sum()),
}


def _step(function: Callable[[Tensor, Tensor], Any], x: Tensor, p: Tensor) -> list[Any]:
    found = function(x, p)
    results = list(found) if isinstance(found, tuple) else [found]
    loss = next(each for each in results if not each.is_complex())
    return [torch.autograd.grad(loss, p)[0], *(each.detach() for each in results)]


@pytest.mark.parametrize("name", [*STEPS, *(n + " (shown)" for n in STEPS_THAT_SHOW)])
def test_passes_inside_of_a_step(name: str) -> None:
    function = STEPS[name] if name in STEPS else STEPS_THAT_SHOW[name.removesuffix(" (shown)")]
    compiled = tatara.compile(_step)
    before = tatara.stats()["breaks"]
    for call in range(4):
        torch.manual_seed(call)
        x, p = torch.randn(4, 4, dtype=torch.complex128), torch.rand(4, 4, dtype=torch.float64, requires_grad=True)
        mine, own = x.clone(), x.clone()
        for one, other in zip(compiled(function, mine, p), _step(function, own, p), strict=True):
            assert (one.dtype, one.stride(), one.is_conj()) == (other.dtype, other.stride(), other.is_conj())
            torch.testing.assert_close(one, other)
        torch.testing.assert_close(mine, own)
    if name in STEPS:
        assert tatara.stats()["breaks"] == before
