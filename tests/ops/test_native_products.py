"""Products of matrices by our own kernels (option matmul), against eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tatara
from results import same

Tensors = tuple[torch.Tensor, ...]


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    with tatara.config.patch(matmul="native", disable="cpu_products"):
        yield


def _products() -> int:
    return int(tatara.stats()["native_products"])


def _made(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[torch.dtype], Tensors]]] = {
    "mm": (lambda a, b: a @ b, lambda t: (_made(70, 130, dtype=t), _made(130, 96, dtype=t))),
    "turned_left": (lambda a, b: a.t() @ b, lambda t: (_made(500, 70, dtype=t), _made(500, 96, dtype=t))),
    "turned_right": (lambda a, b: a @ b.t(), lambda t: (_made(70, 500, dtype=t), _made(96, 500, dtype=t))),
    "turned_result": (lambda a, b: (a.t() @ b).t(), lambda t: (_made(500, 96, dtype=t), _made(500, 96, dtype=t))),
    "slices": (lambda a, b: a[:, ::3] @ b[::2], lambda t: (_made(64, 300, dtype=t), _made(200, 96, dtype=t))),
    "linear": (
        torch.nn.functional.linear,
        lambda t: (_made(4, 16, 200, dtype=t), _made(96, 200, dtype=t), _made(96, dtype=t)),
    ),
    "addmm": (
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2),
        lambda t: (_made(70, 96, dtype=t), _made(70, 130, dtype=t), _made(130, 96, dtype=t)),
    ),
    "addmm_column": (torch.addmm, lambda t: (_made(70, 1, dtype=t), _made(70, 130, dtype=t), _made(130, 96, dtype=t))),
    "addmm_number": (torch.addmm, lambda t: (_made(1, dtype=t), _made(70, 130, dtype=t), _made(130, 96, dtype=t))),
    "addmm_turned": (
        lambda c, a, b: torch.addmm(c.t(), a, b),
        lambda t: (_made(96, 70, dtype=t), _made(70, 130, dtype=t), _made(130, 96, dtype=t)),
    ),
    "beta_zero": (
        lambda c, a, b: torch.addmm(c / 0, a, b, beta=0),
        lambda t: (_made(70, 96, dtype=t), _made(70, 130, dtype=t), _made(130, 96, dtype=t)),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_eagers(name: str, dtype: torch.dtype) -> None:
    function, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    arguments = inputs(dtype)
    expected = function(*arguments)
    compiled = tatara.compile(function, fullgraph=True)
    compiled(*arguments)
    before = _products()
    got = compiled(*arguments)
    assert _products() == before + 1
    # Sums of 500 products of the size of one.
    atol, rtol = (1e-4, 1e-5) if dtype == torch.float32 else (1e-12, 1e-12)
    same(got, expected, atol=atol, rtol=rtol)


ADDED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "addmm": (torch.addmm, ((64, 96), (64, 80), (80, 96))),
    "addmv": (torch.addmv, ((64,), (64, 80), (80,))),
    "addr": (torch.addr, ((64, 96), (64,), (96,))),
    "baddbmm": (torch.baddbmm, ((2, 64, 96), (2, 64, 80), (2, 80, 96))),
    "addbmm": (torch.addbmm, ((64, 96), (2, 64, 80), (2, 80, 96))),
}


@pytest.mark.parametrize("matmul", ["host", "native"])
@pytest.mark.parametrize("name", ADDED)
def test_factors_of_zero(name: str, matmul: str) -> None:
    """What is left out, infinite or not a number, is what eager leaves out."""
    function, sizes = ADDED[name]
    torch.manual_seed(0)
    added, left, right = (_made(*size) for size in sizes)
    infinite, unknown = torch.full_like(left, torch.inf), torch.full_like(added, torch.nan)
    for alpha, beta in [(0, 1), (0, 2), (0, 0), (1, 0), (0.0, 1.0)]:

        def call(
            c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, factors: tuple[float, float] = (alpha, beta)
        ) -> Any:
            return function(c, a, b, alpha=factors[0], beta=factors[1])

        with tatara.config.patch(matmul=matmul):
            compiled = tatara.compile(call)
            for c, a in [(added, left), (added, infinite), (unknown, left)]:
                expected = call(c, a, right)
                for _ in range(2):
                    torch.testing.assert_close(compiled(c, a, right), expected, equal_nan=True, atol=1e-4, rtol=1e-4)


def test_alpha_zero_is_the_librarys() -> None:
    def function(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.addmm(c, a, b, alpha=0)

    a = _made(64, 64).fill_(torch.inf)
    arguments = (_made(64, 96), a, _made(64, 96))
    compiled = tatara.compile(function)
    before = _products()
    for _ in range(2):
        torch.testing.assert_close(compiled(*arguments), function(*arguments), equal_nan=True)
    assert _products() == before


def test_training_steps_multiply_by_our_kernels() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(144, 96), torch.nn.GELU(), torch.nn.Linear(96, 80))
    x = _made(64, 144)

    def loss(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x).square().mean()
        return result

    def gradients(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        value = function(x)
        return [value.detach(), *torch.autograd.grad(value, list(model.parameters()))]

    expected = gradients(loss)
    compiled = tatara.compile(loss, fullgraph=True)
    gradients(compiled)
    before = _products()
    got = gradients(compiled)
    # Two forward, two by weights, one by the activation.
    assert _products() == before + 5
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_small_and_other_products_are_the_librarys() -> None:
    function = tatara.compile(lambda a, b: a @ b)
    before = _products()
    for a, b in [
        (_made(2, 3), _made(3, 4)),
        (_made(4, 4096), _made(4096, 400)),
        (_made(64, 64).to(torch.bfloat16), _made(64, 96).to(torch.bfloat16)),
        (_made(64, 64).to(torch.complex64), _made(64, 96).to(torch.complex64)),
        (_made(64, 0), _made(0, 96)),
    ]:
        function(a, b)
        torch.testing.assert_close(function(a, b), a @ b)
    assert _products() == before


def test_the_option_leaves_them_to_the_library() -> None:
    a, b = _made(64, 64), _made(64, 96)
    function = tatara.compile(lambda a, b: a @ b)
    before = _products()
    with tatara.config.patch(matmul="host"):
        for _ in range(2):
            assert torch.equal(function(a, b), a @ b)
    assert _products() == before


def test_unknown_choice() -> None:
    with pytest.raises(tatara.Error, match="one of auto, native, host, not 'fastest'"):
        tatara.config.matmul = "fastest"


NARROW: dict[str, Callable[..., Any]] = {
    "int8": lambda x, w, s: torch.nn.functional.linear(x, w.to(x.dtype)) * s,
    "int8 across": lambda x, w, s: (x @ w.t().contiguous().to(x.dtype)) * s,
    "int8 and a bias": lambda x, w, s: torch.addmm(s, x, w.t().to(x.dtype), beta=0.5, alpha=2),
    "bfloat16": lambda x, w, s: torch.nn.functional.linear(x, (w * s[:, None]).bfloat16().to(x.dtype)),
}


def _check_wide(function: Callable[..., Any], args: Tensors) -> None:
    """One of our products, in a plan that has loops for smaller ones; its error is at most twice eager's."""
    with tatara.config.patch(matmul="native", disable=""):
        compiled = tatara.compile(function)
        before = _products()
        for _ in range(3):
            ours = compiled(*args)
    assert _products() > before
    eager, exact = function(*args), function(*(a.double() if a.is_floating_point() else a for a in args))
    assert (ours.dtype, ours.shape, ours.stride()) == (eager.dtype, eager.shape, eager.stride())
    error, known = (float((y.double() - exact).abs().max() / exact.abs().max()) for y in (ours, eager))
    assert error <= max(2 * known, 1e-6 if ours.dtype == torch.float32 else 4e-3), (error, known)


_SLOW_HALVES = not torch.cpu._is_avx512_bf16_supported()


@pytest.mark.parametrize("dtype", [torch.float32, *([torch.bfloat16] if _SLOW_HALVES else [])], ids=str)
@pytest.mark.parametrize("rows", [37, 65])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_weights(name: str, rows: int, dtype: torch.dtype) -> None:
    """Widened where they are packed."""
    torch.manual_seed(5)
    w = torch.randint(-127, 128, (1010, 1100), dtype=torch.int8)
    _check_wide(NARROW[name], (torch.randn(rows, 1100, dtype=dtype), w, torch.rand(1010).to(dtype)))


HALVES: dict[str, Callable[..., Any]] = {
    "mm": lambda x, w, s: x @ w.t(),
    "turned": lambda x, w, s: (w @ x.t()).t(),
    "slices": lambda x, w, s: x[::2, 1:] @ w.t()[1:],
    "linear": lambda x, w, s: torch.nn.functional.linear(x[None], w, s).relu(),
    "addmm": lambda x, w, s: torch.addmm(s, x, w.t(), beta=0.5, alpha=-2),
}


@pytest.mark.skipif(not _SLOW_HALVES, reason="the host has instructions for it")
@pytest.mark.parametrize("name", HALVES)
def test_products_of_bfloat16(name: str) -> None:
    torch.manual_seed(6)
    _check_wide(
        HALVES[name], tuple(_made(*sizes, dtype=torch.bfloat16) for sizes in ((40, 1100), (1010, 1100), (1010,)))
    )
