"""Results that see the memory of an input, or of another result, as elements of another type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "real": lambda z: z.real,
    "imaginary": lambda z: z.imag,
    "both": lambda z: (z.real, z.imag),
    "parts": torch.view_as_real,
    "part of a part": lambda z: z[1:].imag[:, 1],
    "back": lambda z: torch.view_as_complex(torch.view_as_real(z)[1:]),
    "of a result": lambda z: (z * 2).real,
    "of a result, both": lambda z: (lambda y: (y.real, y.imag[0]))(z * 2),
    "with the result": lambda z: (lambda y: (y, y.imag, torch.view_as_real(y)[0]))(z * 2),
    "complex of a result": lambda z: torch.view_as_complex((torch.view_as_real(z) * 2)[:, 1:]),
}
INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(3, 4, dtype=torch.complex64),
    "double": lambda: torch.randn(3, 4, dtype=torch.complex128),
    "part": lambda: torch.randn(5, 7, dtype=torch.complex64)[1:4, 2:6],
    "transposed": lambda: torch.randn(4, 3, dtype=torch.complex64).T,
}


def _memory(tensors: list[torch.Tensor]) -> list[list[bool]]:
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [[a == b for b in places] for a in places]


@pytest.mark.parametrize("of", INPUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_views_with_another_element_type(name: str, of: str) -> None:
    program = PROGRAMS[name]
    compiled = tatara.compile(program)
    for _ in range(3):
        z = INPUTS[of]()
        expected, results = program(z), compiled(z)
        same(results, expected)
        pairs = [
            results if isinstance(results, tuple) else (results,),
            expected if isinstance(expected, tuple) else (expected,),
        ]
        assert _memory([z, *pairs[0]]) == _memory([z, *pairs[1]])
    assert tatara.stats()["fallbacks"] == 0


def test_writes_show_in_both() -> None:
    compiled = tatara.compile(lambda z: z.imag)
    z = torch.zeros(3, dtype=torch.complex64)
    for _ in range(3):
        compiled(z).add_(1)
    assert torch.equal(z, torch.full((3,), 3j))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_through_them(name: str) -> None:
    """Recorded gradients go through views that the host makes: such a graph may run in eager, and its results are eager's."""

    def total(z: torch.Tensor) -> torch.Tensor:
        results = PROGRAMS[name](z)
        return sum(r.abs().sum() for r in (results if isinstance(results, tuple) else (results,)))

    leaves = [torch.randn(3, 4, dtype=torch.complex64, requires_grad=True) for _ in range(2)]
    leaves[1].data.copy_(leaves[0].data)
    compiled = tatara.compile(PROGRAMS[name])
    for _ in range(2):
        results = compiled(leaves[0])
        sum(r.abs().sum() for r in (results if isinstance(results, tuple) else (results,))).backward()
        total(leaves[1]).backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("layout", INPUTS)
def test_gradients_of_views_of_parts(name: str, layout: str) -> None:
    program = PROGRAMS[name]
    compiled = tatara.compile(program)
    z = INPUTS[layout]()
    for _ in range(3):
        found = []
        for function in (compiled, program):
            leaf = z.clone().requires_grad_()
            result = function(leaf)
            results = [*result] if isinstance(result, tuple) else [result]
            places = _memory([leaf, *results])
            gradients = torch.autograd.grad(
                results, leaf, [torch.ones_like(r) * (2 + i) for i, r in enumerate(results)]
            )
            found.append(([r.detach() for r in results], gradients, places))
        same(found[0][::2], found[1][::2])
        same(found[0][1], found[1][1], strides=False)
    assert tatara.stats()["fallbacks"] == 0
