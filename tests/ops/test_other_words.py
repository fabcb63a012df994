"""Calls that a trace makes in other words: views by einsum, new_tensor of data. Eager's values, layouts and memory, in one graph."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import numpy as np
import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

# ---- einsum of one operand ---------------------------------------------------------------------------------------------

EQUATIONS = [
    *("ii->i", "ii->", "ii", "ij->ji", "ij->ij", "ij->i", "ij->j", "ij->", "ij", "ba", "ijk->kij", "iij->ij", "iij->j"),
    *("iij->ji", "iji->j", "iii->i", "ijij->ij", "iijj->", "...ij->...ji", "...ii->...i", "...ii->...", "i...->...i"),
    *("...ij->...j", "...->...", "...ij", "i...j->j...i", "i j -> j i", "...ij->ij", "Ab->bA", "aB", "ii...->...i"),
]


def _operand(equation: str) -> torch.Tensor:
    left = equation.split("->")[0].replace(" ", "")
    sizes = {"i": 3, "j": 4, "k": 2, "a": 2, "b": 5, "A": 3, "B": 2}
    shape = [s for part in left.replace("...", ".") for s in ([2, 3] if part == "." else [sizes[part]])]
    return torch.linspace(-1, 1, int(np.prod(shape))).reshape(shape)


def _where(result: torch.Tensor, x: torch.Tensor) -> Any:
    apart = result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    return None if apart else result.storage_offset()


@pytest.mark.parametrize("equation", EQUATIONS)
def test_values_layouts_and_memory(equation: str) -> None:
    def f(x: Any) -> Any:
        return torch.einsum(equation, x), torch.einsum(equation, x * 2).sin()

    compiled = tatara.compile(f, fullgraph=True)
    for _ in range(4):
        for x in (_operand(equation), _operand(equation).to(torch.int64), _operand(equation).double()):
            ours, theirs = compiled(x), f(x)
            same(ours, theirs)
            assert _where(ours[0], x) == _where(theirs[0], x)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_gradients_of_einsum(equation: str) -> None:
    def step(x: Any) -> Any:
        loss = (torch.einsum(equation, x) * 3).sin().sum() + torch.einsum(equation, x * x).sum()
        loss.backward()
        return loss.detach()

    compiled = tatara.compile(step, fullgraph=True)
    for _ in range(4):
        x, y = (_operand(equation).requires_grad_() for _ in range(2))
        same(compiled(x), step(y))
        same(x.grad, y.grad)


@pytest.mark.parametrize("equation", ["ii->i", "ij->ji", "iij->ij", "...ij->...ji"])
def test_writes_through_einsum(equation: str) -> None:
    def f(x: Any) -> Any:
        w = x * 1
        torch.einsum(equation, w).add_(5)
        torch.einsum(equation, x).mul_(2)
        return w

    compiled = tatara.compile(f)
    for _ in range(4):
        x, y = _operand(equation), _operand(equation)
        same(compiled(x), f(y))
        same(x, y)


@pytest.mark.parametrize(
    "equation", ["ij->k", "ijk->i", "ii->ii", "i->ij", "i.j->i", "ij,jk->ik", "1j->j", "....->..."]
)
def test_what_einsum_refuses(equation: str) -> None:
    def f(x: Any) -> Any:
        return torch.einsum(equation, x)

    compiled = tatara.compile(f)
    for _ in range(3):
        said = []
        for call in (compiled, f):
            with pytest.raises(RuntimeError) as error:
                call(torch.ones(3, 3))
            said.append(str(error.value))
        assert said[0] == said[1]


@pytest.mark.parametrize("sizes", list(itertools.product((0, 1, 2), (0, 1, 2))))
def test_small_sizes_of_einsum(sizes: tuple[int, int]) -> None:
    for equation in ("ij->ji", "ij->i", "ij->", "ij->j"):

        def f(x: Any, equation: str = equation) -> Any:
            return torch.einsum(equation, x) + 0

        compiled = tatara.compile(f)
        for _ in range(3):
            same(compiled(torch.ones(sizes)), f(torch.ones(sizes)))


def test_batches_and_autocast_of_einsum() -> None:
    def f(x: Any) -> Any:
        y = torch.vmap(lambda m: torch.einsum("ii->i", m))(x)
        with torch.autocast("cpu", torch.bfloat16):
            return y, torch.einsum("bij->bji", x), torch.func.grad(lambda m: torch.einsum("bii->b", m).prod())(x)

    compiled = tatara.compile(f)
    for _ in range(3):
        x = torch.linspace(-1, 1, 18).reshape(2, 3, 3)
        same(compiled(x), f(x))


# ---- new_tensor --------------------------------------------------------------------------------------------------------

DATA: dict[str, Any] = {
    "float": 1.5,
    "int": 3,
    "bool": True,
    "list": [1, 2, 3],
    "floats": [1.9, -2.2],
    "nested": [[1.0, 2], [3, 4]],
    "tuple": (1, 2),
    "empty": [],
    "bools": [True, False],
    "nested and empty": [[], []],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dtype": {"dtype": torch.int64},
    "device": {"device": "cpu"},
    "none": {"dtype": None, "device": None},
    "a leaf": {"requires_grad": True, "dtype": torch.float64},
}
SELVES = {
    "float32": torch.ones(2, 3),
    "int64": torch.arange(3),
    "bool": torch.tensor([True]),
    "float64": torch.ones((), dtype=torch.float64),
    "complex64": torch.ones(2, dtype=torch.complex64),
    "parameter": torch.nn.Parameter(torch.ones(2)),
}


@pytest.mark.parametrize("of", SELVES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("data", DATA)
def test_new_tensor(data: str, options: str, of: str) -> None:
    given, more = DATA[data], OPTIONS[options]

    def f(x: Any) -> Any:
        made = x.new_tensor(given, **more)
        return made, made * 2, torch.Tensor.new_tensor(x, data=given, **more)

    compiled = tatara.compile(f, fullgraph="requires_grad" not in more)
    for _ in range(3):
        same(compiled(SELVES[of]), f(SELVES[of]))
    assert compiled(SELVES[of])[0] is not compiled(SELVES[of])[0]


def test_new_tensor_of_what_varies() -> None:
    def f(x: Any, n: int, c: float) -> Any:
        made = x.new_tensor([x.shape[0], n, c])
        made[0] += 1
        return made, x.new_tensor(x.shape), x.new_tensor([[n]], dtype=torch.long), x.new_tensor(c) * x

    compiled = tatara.compile(f)
    for n, c in ((1, 0.5), (1, 0.5), (2, 1.5), (3, 2.5), (4, -1.0), (5, 3.0)):
        x = torch.ones(n + 2, 2)
        same(compiled(x, n, c), f(x, n, c))


@pytest.mark.parametrize("data", [[1j], [[1], [2, 3]], ["a"], None], ids=str)
def test_what_new_tensor_refuses(data: Any) -> None:
    def f(x: Any) -> Any:
        return x.new_tensor(data)

    compiled = tatara.compile(f)
    for _ in range(3):
        said = []
        for call in (compiled, f):
            with pytest.raises((TypeError, ValueError, RuntimeError)) as error:
                call(torch.ones(2))
            said.append((type(error.value), str(error.value)))
        assert said[0] == said[1]


def test_new_tensor_of_tensors_and_arrays() -> None:
    def f(x: Any, a: Any) -> Any:
        return x.new_tensor(a), x.new_tensor(np.arange(3)) + x

    compiled = tatara.compile(f)
    for _ in range(3):
        with pytest.warns(UserWarning):
            same(compiled(torch.ones(3), torch.arange(3)), f(torch.ones(3), torch.arange(3)))


# ---- fill_diagonal_ ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(4, 4), (2, 5), (5, 2), (7, 2), (0, 3), (1, 1)], ids=str)
def test_fill_diagonal(sizes: tuple[int, int]) -> None:
    def f(x: Any) -> Any:
        y = x * 2
        given = y.fill_diagonal_(-1e9)
        return y, given is y, (x.T + 1).fill_diagonal_(3).sum(), y._version

    compiled = tatara.compile(f, fullgraph=True)
    for _ in range(4):
        for x in (torch.rand(sizes), torch.ones(sizes, dtype=torch.int32), torch.rand(sizes).requires_grad_()):
            same(compiled(x)[1:], f(x)[1:])
            same(compiled(x)[0].detach(), f(x)[0].detach())


def test_gradients_of_fill_diagonal() -> None:
    def step(x: Any) -> Any:
        s = x @ x.T
        s.fill_diagonal_(-1e9)
        loss = s.softmax(1).square().sum()
        loss.backward()
        return loss.detach()

    compiled = tatara.compile(step, fullgraph=True)
    for _ in range(4):
        x, y = (torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_() for _ in range(2))
        same(compiled(x), step(y))
        same(x.grad, y.grad)


@pytest.mark.parametrize("wrap", [False, True])
def test_other_forms_of_fill_diagonal(wrap: bool) -> None:
    def f(x: Any) -> Any:
        return (x + 1).fill_diagonal_(2, wrap=wrap), (x + 1).fill_diagonal_(fill_value=4)

    compiled = tatara.compile(f)
    for sizes in ((7, 2), (3, 3, 3), (2, 2)):
        for _ in range(3):
            same(compiled(torch.zeros(sizes)), f(torch.zeros(sizes)))
    leaf = torch.ones(3, 3, requires_grad=True)
    for call in (tatara.compile(lambda x: x.fill_diagonal_(1)), lambda x: x.fill_diagonal_(1)):
        for _ in range(3):
            with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used"):
                call(leaf)


# ---- Tensors of plain numbers that the registry lacks ------------------------------------------------------------------


@pytest.mark.parametrize("window", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows_beside_gradients(window: str) -> None:
    make = getattr(torch, f"{window}_window")

    def step(x: Any) -> Any:
        w = make(x.shape[0], periodic=False)
        loss = (x * w).sin().sum()
        loss.backward()
        w.add_(1)
        return loss.detach(), w, make(5, dtype=torch.float64)

    compiled = tatara.compile(step, fullgraph=True)
    results = []
    for _ in range(4):
        x, y = (torch.linspace(-1, 1, 16).requires_grad_() for _ in range(2))
        results.append(compiled(x))
        same(results[-1], step(y))
        same(x.grad, y.grad)
    assert len({each[1].data_ptr() for each in results}) == len(results)
