"""On a GPU: linear algebra of small matrices, a matrix a thread."""

from __future__ import annotations

import pytest
import torch

import tatara
from results import same
from small_matrices import DTYPES, KINDS, OPERATORS, RAISE, as_tuple, check, compiled, operands

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
QUIET = [name for name in OPERATORS if name not in RAISE]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", QUIET)
def test_as_eager(name: str, dtype: torch.dtype) -> None:
    for n in (2, 3, 4):
        tatara.reset()
        function = compiled(name)
        for kind in KINDS:
            for _ in range(2):
                check(name, function, operands(name, kind, n, (40,), dtype, 2), 1, "cuda")


@pytest.mark.parametrize("name", [name for name in QUIET if name != "cholesky_ex"])
def test_no_call_of_the_host(name: str) -> None:
    args = [arg.cuda() for arg in operands(name, "integers", 3, (300,), torch.float32, 2)]
    assert not tatara.explain(OPERATORS[name])(*args).host_calls


@pytest.mark.parametrize("name", RAISE)
def test_errors(name: str) -> None:
    """The host's own: some of its functions don't raise on a GPU."""
    function = compiled(name)
    good = [arg.cuda() for arg in operands(name, "integers", 3, (20,), torch.float64, 2)]
    bad = [good[0].clone(), *good[1:]]
    bad[0][7] = 0 if "cholesky" not in name or "inverse" in name else float("nan")
    for _ in range(2):
        same(as_tuple(function(*good)), as_tuple(OPERATORS[name](*good)))
    try:
        expected: object = as_tuple(OPERATORS[name](*bad))
    except RuntimeError as theirs:
        expected = str(theirs)
    if isinstance(expected, str):
        with pytest.raises(RuntimeError) as ours:
            function(*bad)
        assert str(ours.value) == expected
    else:
        same(as_tuple(function(*bad)), expected, equal_nan=True)


@pytest.mark.parametrize("name", ["det", "slogdet", "inv_ex", "triangular"])
def test_gradients(name: str) -> None:
    function = compiled(name)
    args = [arg.cuda() for arg in operands(name, "integers", 3, (70,), torch.float64, 2)]
    found = []
    for each in (OPERATORS[name], function, function):
        leaves = [arg.clone().requires_grad_() for arg in args]
        results = [r for r in as_tuple(each(*leaves)) if r.requires_grad]
        results[-1].sin().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    same(found[1], found[0], rtol=1e-7, atol=1e-9)
    same(found[2], found[0], rtol=1e-7, atol=1e-9)
