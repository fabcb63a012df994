"""Host operators whose results are lazily conjugated: the rest of their graph is compiled, and they come out as eager's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

CALLS: dict[str, Callable[[Any], Any]] = {
    "ifft": torch.fft.ifft,
    "ifft2": torch.fft.ifft2,
    "ifftn": torch.fft.ifftn,
    "ihfft": torch.fft.ihfft,
    "ihfft2": torch.fft.ihfft2,
    "ihfftn": torch.fft.ihfftn,
    "a view": lambda x: torch.fft.ihfft(x)[1:],
    "turned": lambda x: torch.fft.ihfft(x).t(),
}
VIEWS = ("a view", "turned")  # of a result that kernels read, too: not lazy


@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 0, 3), (0, 2, 3), (3, 0), (0, 3), (1, 1)], ids=str)
def test_strides_that_nobody_sees(shape: tuple[int, ...]) -> None:
    """What leads over dimensions of one element or none may be another number than was inferred."""
    x = torch.randn(shape, dtype=torch.complex64)
    compiled = tatara.compile(torch.svd)
    theirs = torch.svd(x)
    for _ in range(3):
        ours = compiled(x)
        assert [t.is_conj() for t in ours] == [t.is_conj() for t in theirs]
        same(list(ours), list(theirs))
    assert tatara.stats()["fallbacks"] == 0


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_beside_kernels(name: str, dtype: Any, grad: bool) -> None:
    call = CALLS[name]

    def f(x: Any) -> Any:
        return torch.tanh(x) * 2 + 1, call(x), call(x * 3) * 2

    x = torch.randn(4, 6, dtype=dtype, requires_grad=grad)
    compiled = tatara.compile(f)
    theirs = f(x)
    for turn in range(3):
        with counts() as grown:
            ours = compiled(x)
        same(ours, theirs)
        if name not in VIEWS:
            assert [t.is_conj() for t in ours] == [t.is_conj() for t in theirs]
        assert [grown[k] for k in ("graphs", "breaks", "fallbacks")] == [turn == 0, 0, 0]
        assert turn == 0 or grown["kernels_launched"] > 0  # the first call runs as it is traced
    if grad:
        for tree in (ours, theirs):
            sum(t.abs().sum() for t in tree).backward()
            same(x.grad, torch.autograd.grad(sum(t.abs().sum() for t in f(x)), x)[0])
            x.grad = None


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "jvp": lambda call, x: torch.func.jvp(call, (x,), (x * 2,)),
    "vjp": lambda call, x: torch.func.vjp(call, x)[0],
    "vmap": lambda call, x: torch.vmap(call)(x),
    "vmap of columns": lambda call, x: torch.vmap(call, in_dims=1, out_dims=1)(x),
}


@pytest.mark.parametrize("call", [torch.fft.ifft, torch.fft.ihfft], ids=["ifft", "ihfft"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_under_transforms(name: str, call: Callable[[Any], Any]) -> None:
    x = torch.randn(4, 6, dtype=torch.float64)

    def f(x: Any) -> Any:
        return TRANSFORMS[name](call, x)

    compiled = tatara.compile(f)
    theirs = torch.utils._pytree.tree_leaves(f(x))
    for _ in range(3):
        ours = torch.utils._pytree.tree_leaves(compiled(x))
        same(ours, theirs)
        assert [t.is_conj() for t in ours] == [t.is_conj() for t in theirs]
