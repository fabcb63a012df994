"""Lazily conjugated views among the arguments: the graph's input is what lies beneath, and the view is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

Tensor = torch.Tensor


def _matrix(seed: int = 0) -> Tensor:
    return torch.randn(5, 5, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "conj": lambda z: z.conj(),
    "mH": lambda z: z.mH,
    "part": lambda z: z[1:, ::2].conj(),
}
FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "number": lambda x: x * 2 + 1,
    "product": lambda x: x @ x.mT,
    "dot": lambda x: torch.vdot(x[0], x[1]) + 1,
    "conj": lambda x: x.conj() * 2,
    "adjoint": lambda x: x.mH @ x,
    "view inside": lambda x: x.T[1:] + 1,
    "asked": lambda x: x * (2 if x.is_conj() else 3),
    "absolute": lambda x: (x * x.conj()).real.sum(),
}
SEEN: dict[str, Callable[[Tensor], Any]] = {
    "itself": lambda x: (x, x * 2),
    "view": lambda x: (x.T, x * 2),
    "plain again": lambda x: (x.conj(), x * 2),
    "resolved": lambda x: (x.resolve_conj(), x * 2),
    "imag": lambda x: (x.imag, x * 2),
    "dot": lambda x: (torch.dot(x[0], x[1]), x * 2),
    "vdot": lambda x: (torch.vdot(torch.ones(x.shape[1], dtype=x.dtype), x[1]), x * 2),
    "rows": lambda x: (x[0] @ x[1], x * 2),
    "inner": lambda x: (torch.inner(x[0], x[1]), x * 2),
    "clone": lambda x: (x.clone(), x * 2),
    "written": lambda x: (x.mul_(1 + 2j), x * 2)[1],
    "written part": lambda x: (x[0].zero_(), x + 1)[1],
}


def _pair(function: Any, compiled: Any, view: Any, seed: int) -> None:
    mine, own = _matrix(seed), _matrix(seed)
    given, wanted = view(mine), view(own)
    got, want = compiled(given), function(wanted)
    got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
    assert [r.is_conj() for r in got] == [r.is_conj() for r in want]
    assert [r is given for r in got] == [r is wanted for r in want]
    assert [r.stride() for r in got] == [r.stride() for r in want]
    memory = [r.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr() for r in got]
    assert memory == [r.untyped_storage().data_ptr() == own.untyped_storage().data_ptr() for r in want]
    same([*got, mine], [*want, own])


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_one_graph(name: str, view: str) -> None:
    function = FUNCTIONS[name]
    compiled = tatara.compile(function)
    for seed in range(3):
        _pair(function, compiled, VIEWS[view], seed)
    assert compiled._report()["breaks"] == []
    assert tatara.stats()["fallbacks"] == 0
    assert tatara.stats()["recompiles"] == 0


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("name", list(SEEN))
def test_seen_by_the_program(name: str, view: str) -> None:
    function = SEEN[name]
    compiled = tatara.compile(function)
    for seed in range(3):
        _pair(function, compiled, VIEWS[view], seed)


def test_plain_and_conjugate_in_turn() -> None:
    compiled = tatara.compile(lambda x: x * 2 + x.sum())
    z = _matrix()
    for value in (z, z.conj(), z.clone(), z.conj(), torch.conj_physical(z)):
        same([compiled(value)], [value * 2 + value.sum()])


def test_two_views_of_one_tensor() -> None:
    def function(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x * 2 + y.mH - z

    compiled = tatara.compile(function)
    for seed in range(3):
        z = _matrix(seed)
        same([compiled(z.conj(), z.conj(), z)], [function(z.conj(), z.conj(), z)])


def test_sizes_that_vary() -> None:
    compiled = tatara.compile(lambda x: (x * x.mH).sum(0))
    for n in (3, 4, 5, 6):
        x = torch.randn(n, n, dtype=torch.complex128).conj()
        same([compiled(x)], [(x * x.mH).sum(0)])
    assert compiled._report()["breaks"] == []


def test_gradients() -> None:
    function = FUNCTIONS["product"]
    compiled = tatara.compile(function)
    for seed in range(3):
        mine, own = _matrix(seed).requires_grad_(), _matrix(seed).requires_grad_()
        got, want = compiled(mine.conj()), function(own.conj())
        weight = _matrix(7)
        (got * weight).sum().abs().backward()
        (want * weight).sum().abs().backward()
        same([got.detach(), mine.grad], [want.detach(), own.grad])
        assert got.requires_grad
    assert "conjugate view" in compiled._report()["breaks"][0]["reason"]


def test_leaves() -> None:
    """A leaf gets its gradient itself."""
    compiled = tatara.compile(lambda x: (x * x).sum().abs())
    for seed in range(3):
        mine, own = (_matrix(seed).conj().requires_grad_() for _ in range(2))
        for _ in range(2):
            compiled(mine).backward()
            (own * own).sum().abs().backward()
        same([mine.grad], [own.grad])


def _whole(x: Tensor) -> Any:
    (x * x).sum().abs().backward()
    return x.grad * 2, x.is_leaf, x.requires_grad


def _by_grad(x: Tensor) -> Any:
    return torch.autograd.grad((x * x).sum().abs(), x)[0] * 2, x.is_leaf, x.grad


def _freed(x: Tensor) -> Any:
    with torch.no_grad():
        x.mul_(2)
    return x.detach() + 1, x.is_leaf


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("function", [_whole, _by_grad, _freed])
def test_passes_inside(function: Callable[[Tensor], Any], leaf: bool) -> None:
    compiled = tatara.compile(function)
    for seed in range(3):
        results: list[Any] = []
        for run in (compiled, function):
            z = _matrix(seed).requires_grad_(not leaf)
            x = z.conj().requires_grad_()
            if not leaf:
                x.retain_grad()
            made = (*run(x), x.grad, x.detach(), z.grad)
            tensors = [r for r in made if isinstance(r, torch.Tensor)]
            results.append((tensors, [r for r in made if not isinstance(r, torch.Tensor)]))
        same(results[0][0], results[1][0])
        assert results[0][1] == results[1][1]


def test_jvp_and_vmap() -> None:
    def pushed(x: Tensor, t: Tensor) -> Any:
        return torch.func.jvp(lambda a: a @ a + 1, (x,), (t,))

    compiled, mapped = tatara.compile(pushed), tatara.compile(torch.vmap(lambda row: torch.vdot(row, row) * row))
    for seed in range(3):
        x, t = _matrix(seed).conj(), _matrix(seed + 5)
        same(list(compiled(x, t)), list(pushed(x, t)))
        same([mapped(x)], [torch.vmap(lambda row: torch.vdot(row, row) * row)(x)])
    assert compiled._report()["breaks"] == []


def test_after_a_break() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.mH
        print(float(y.real.sum()) > 1e9, end="")
        return y @ x

    compiled = tatara.compile(function)
    for seed in range(3):
        x = _matrix(seed)
        same([compiled(x)], [function(x)])
