"""Operators that may hand back their very operand, or a view of it: outside of transforms, in vmap and nested in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402

OPERATORS: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "H": lambda x: x.H,
    "adjoint": lambda x: x.adjoint(),
    "transpose": lambda x: x.transpose(0, -1),
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "swapdims": lambda x: x.swapdims(-1, 0),
    "movedim": lambda x: x.movedim(0, -1),
    "permute": lambda x: x.permute(tuple(range(x.dim()))),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(x.dtype),
    "float": lambda x: x.float(),
    "type_as": lambda x: x.type_as(x),
    "expand_as": lambda x: x.expand_as(x),
    "expand": lambda x: x.expand(x.shape),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x)[1],
    "real": torch.real,
    "conj": lambda x: x.conj(),
    "resolve_conj": lambda x: x.resolve_conj(),
    "resolve_neg": lambda x: x.resolve_neg(),
    "conj_physical": lambda x: x.conj_physical(),
    "positive": lambda x: +x,
    "detach": lambda x: x.detach(),
    "view_as": lambda x: x.view_as(x),
    "reshape": lambda x: x.reshape(x.shape),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "squeeze": lambda x: x.squeeze(),
    "atleast_1d": lambda x: torch.atleast_1d(x),
    "slice": lambda x: x[...],
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, False),
    "sum_to_size": lambda x: x.sum_to_size(x.shape),
    "tile": lambda x: x.tile(1),
    "chain": lambda x: x.t().contiguous().transpose(0, -1).t(),
}
TENSORS: dict[str, Callable[[], Any]] = {
    "number": lambda: torch.randn(()),
    "row": lambda: torch.randn(3),
    "matrix": lambda: torch.randn(3, 4),
    "turned": lambda: torch.randn(4, 3).t(),
    "complex": lambda: torch.randn((), dtype=torch.complex64),
    "whole": lambda: torch.tensor(2),
}
PLACES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "plain": lambda op, x: (op, x),
    "vmap": lambda op, x: (torch.vmap(op), torch.stack([x, x])),
    "last": lambda op, x: (torch.vmap(op, in_dims=-1, out_dims=-1), torch.stack([x, x], -1)),
    "nested": lambda op, x: (torch.vmap(torch.vmap(op)), torch.stack([torch.stack([x, x])] * 3)),
}


def _describe(function: Any, x: Any) -> Any:
    try:
        out = function(x)
    except Exception as error:  # noqa: BLE001 - which one is compared
        return type(error)
    same_memory = out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    return out is x, same_memory, out.shape, out.stride(), out.dtype, out.is_conj()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", OPERATORS)
def test_results_are_the_operand_where_eagers_are(fresh: None, name: str, place: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, make in TENSORS.items():
            function, x = PLACES[place](OPERATORS[name], make())
            tatara.reset()
            compiled = tatara.compile(lambda y, function=function: function(y))
            wanted = _describe(function, x)
            for turn in ("first", "second"):
                assert _describe(compiled, x) == wanted, f"{kind}, {turn} call"


@pytest.mark.parametrize("kind", ["vmap", "jvp", "grad"])
def test_results_that_a_function_gives_twice(kind: str) -> None:
    """Are one object in eager, in the first call and in later ones."""

    def program(x: torch.Tensor) -> Any:
        def inner(x: torch.Tensor) -> Any:
            h = torch.tanh(x * 2)
            return h, [h, h.sum()], h

        if kind == "vmap":
            return torch.func.vmap(inner)(x)
        if kind == "jvp":
            return torch.func.jvp(inner, (x,), (torch.ones_like(x),))[1]
        return torch.func.grad(lambda x: (inner(x)[0].sum(), inner(x)), has_aux=True)(x)[1]

    compiled = tatara.compile(program, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3, 4)
        for first, (again, total), last in (program(x), compiled(x)):
            assert again is first and last is first and total is not first
