"""torch.asarray in compiled code: the tensor itself, a copy, another type or place, numbers, histories; no break."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: torch.asarray(x) is x,
    "of a result": lambda x: torch.asarray(x + 1) * 2,
    "the same type": lambda x: torch.asarray(x, dtype=x.dtype, device=x.device, copy=None) is x,
    "another type": lambda x: torch.asarray(x, dtype=torch.float64),
    "device as text": lambda x: torch.asarray(x, device="cpu") is x,
    "a copy": lambda x: torch.asarray(x, copy=True),
    "a copy of another type": lambda x: torch.asarray(x, dtype=torch.int8, copy=True),
    "no copy": lambda x: torch.asarray(x, copy=False) is x,
    "a write to it": lambda x: torch.asarray(x * 1).add_(1),
    "a write to a copy": lambda x: (torch.asarray(x, copy=True).add_(1), x * 2),
    "without a history": lambda x: torch.asarray(x * 2, requires_grad=False) + 1,
    "a number": lambda x: (x + torch.asarray(0.5), torch.asarray(3).dtype, torch.asarray(True), torch.asarray(1j)),
    "numbers": lambda x: torch.asarray([[1, 2], [3, 4]], dtype=torch.float32) + x.sum(),
    "a tuple": lambda x: torch.asarray((1.0, True), device="cpu") + x.sum(),
    "a size": lambda x: torch.asarray(x.shape[0]) + x.sum(),
}


def outcome(program: Callable[[Any], Any], x: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = program(x)
        except RuntimeError as error:  # integers with a gradient
            return [str(error)]
    rows: list[Any] = []
    for each in made if isinstance(made, tuple) else (made,):
        rows.append(each.tolist() if isinstance(each, torch.Tensor) else each)
        if isinstance(each, torch.Tensor):
            rows += [each.dtype, each.shape, each.stride(), each.requires_grad, each.is_leaf, each is x]
            rows.append(each.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())
    return [*rows, x.tolist(), x.requires_grad]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["plain", "turned", "of integers", "of two sizes", "with a gradient"])
def test_it_is_eagers(name: str, kind: str) -> None:
    def make(turn: int) -> Any:
        x = torch.arange(6.0).reshape(2, 3) + turn
        if kind == "of two sizes":
            return torch.ones(2 + turn, 3)
        if kind == "with a gradient":
            return x.requires_grad_()
        return {"plain": x, "turned": x.T, "of integers": x.long()}[kind]

    tatara.reset()
    run = tatara.compile(PROGRAMS[name])
    for turn in range(4):
        assert outcome(run, make(turn)) == outcome(PROGRAMS[name], make(turn))
    if kind != "with a gradient" or name != "a copy of another type":
        assert not tatara.explain(PROGRAMS[name])(make(0)).breaks


def test_what_may_not_be_copied_is_an_error() -> None:
    program = lambda x: torch.asarray(x + 1, dtype=torch.int8, copy=False)  # noqa: E731
    tatara.reset()
    run = tatara.compile(program)
    for _ in range(3):
        with pytest.raises(ValueError, match="can't alias"):
            run(torch.ones(2))


def test_gradients_go_where_eagers_do() -> None:
    def program(x: Any) -> Any:
        return (torch.asarray(x * 3, dtype=torch.float64) * x).sum()

    def gradient(function: Callable[[Any], Any]) -> Any:
        x = torch.arange(3.0, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(x).backward()
        return x.grad

    tatara.reset()
    run = tatara.compile(program)
    for _ in range(3):
        assert torch.equal(gradient(run), gradient(program))


def test_numbers_that_vary() -> None:
    def program(x: Any, n: int, p: float) -> Any:
        return x + torch.asarray(n) * torch.asarray([p, 1.0])

    tatara.reset()
    run = tatara.compile(program)
    x = torch.ones(2)
    for n, p in ((2, 0.5), (3, 0.25), (7, 1.5), (9, -2.0)):
        assert torch.equal(run(x, n, p), program(x, n, p))
