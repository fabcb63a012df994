"""`Tensor.type(...)` converts, by a dtype or one of torch's older names of types, in the graph."""

import pytest
import torch

import tatara
from results import same

CALLS = {
    "dtype": lambda t: t.type(torch.float64),
    "its own dtype": lambda t: t.type(torch.float32),
    "integers": lambda t: t.type(torch.int64),
    "keyword": lambda t: t.type(dtype=torch.float16),
    "non blocking": lambda t: t.type(torch.float64, non_blocking=True),
    "class": lambda t: t.type(torch.LongTensor),
    "name": lambda t: t.type("torch.DoubleTensor"),
    "half": lambda t: t.type(torch.HalfTensor),
    "bool": lambda t: t.type("torch.BoolTensor"),
}
OTHERS = {
    "asked": lambda t: t.type(),
    "default": lambda t: t.type(torch.Tensor),
    "another device": lambda t: t.type(torch.cuda.FloatTensor),
    "unknown": lambda t: t.type("torch.NoTensor"),
    "no name": lambda t: t.type("FloatTensor"),
    "sparse": lambda t: t.type(torch.sparse.FloatTensor),
}
INPUTS = (torch.float32, torch.float64, torch.int32, torch.bool)


def _observed(function, x):
    x = x.clone()
    if x.is_floating_point():
        x.requires_grad_()
    try:
        y, same = function(x)
    except Exception as error:
        return type(error), str(error)
    gradient = torch.autograd.grad(y.sum(), x)[0] if isinstance(y, torch.Tensor) and y.requires_grad else None
    return y, same, gradient


def _assert_same(found, expected):
    assert getattr(found[0], "stride", tuple)() == getattr(expected[0], "stride", tuple)()
    same(found, expected, strides=False, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", INPUTS, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *OTHERS])
def test_calls(name, dtype):
    convert = {**CALLS, **OTHERS}[name]

    def function(x):
        h = x.t()
        y = convert(h)
        return (y, y is h) if isinstance(y, torch.Tensor) else (y, False)

    compiled = tatara.compile(function)
    for call in range(3):
        x = (torch.randn(3, 4, generator=torch.Generator().manual_seed(call)) * 3).to(dtype)
        _assert_same(_observed(compiled, x), _observed(function, x))


@pytest.mark.parametrize("name", CALLS)
def test_conversions_are_in_the_graph(name):
    compiled = tatara.compile(lambda x: CALLS[name](x * 2) * 3, fullgraph=True)
    for _ in range(2):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), CALLS[name](x * 2) * 3)
