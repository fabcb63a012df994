"""A torch-dispatch mode that is on for a pass of gradients alone sees eager's operators, though the forward pass was compiled."""

import gc

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import tatara

_weight = torch.linspace(-1, 1, 9).reshape(3, 3)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _broken(x):
    y = x * 2
    print(end="")  # the graph breaks here
    return y * 3


def _written(x):
    y = x.sin()
    y[0] = 1
    return y.mul_(2)


def _asks(x):
    return x.sin() * (2 if x.sum() > 100 else 3)


def _autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ _weight).float()


ONE_RESULT = {
    "arithmetic": lambda x: torch.relu(x @ _weight).sin() * x,
    "product": lambda x: (x @ _weight) @ x.T,
    "norm": lambda x: functional.layer_norm(functional.gelu(x), (3,)),
    "attention": lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "dropout": lambda x: functional.dropout(x.exp(), 0.5),
    "noise": lambda x: x * torch.rand(3) + torch.randn(3) * x.sum(),
    "broken": _broken,
    "written": _written,
    "asks": _asks,
    "no grad inside": lambda x: x * x.detach().sin(),
    "autocast": _autocast,
    "transform": lambda x: torch.func.vmap(lambda row: (row * row).sum())(x),
}
SEVERAL = {
    "chain": lambda x: (lambda h: (h, h * 2, (h * x).sum()))(x.sin()),
    "shared": lambda x: (lambda h: (h, (h.sin() * x.sum()).sum()))(torch.relu(x @ _weight)),
    "views": lambda x: (lambda h: (h, h[1:], h.T))(x * 2),
}


def _input(seed, rows=3):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def _total(results):
    return sum((each * each).sum() for each in (results if isinstance(results, tuple) else (results,)))


def _observed(function, x, again=False):
    torch.manual_seed(7)
    total = _total(function(x))
    state = torch.get_rng_state()
    gc.collect()
    with Seen() as seen:
        (gradient,) = torch.autograd.grad(total, x, create_graph=again)
    assert torch.equal(torch.get_rng_state(), state)
    if again:
        with Seen() as second:
            (twice,) = torch.autograd.grad((gradient * gradient).sum(), x)
        return seen.names, second.names, gradient, twice
    return seen.names, gradient


@pytest.mark.parametrize("name", ONE_RESULT)
def test_operators_of_a_pass(name):
    function = ONE_RESULT[name]
    compiled = tatara.compile(function)
    for call in range(3):
        names, gradient = _observed(function, _input(call))
        seen, found = _observed(compiled, _input(call))
        assert seen == names
        torch.testing.assert_close(found, gradient)


@pytest.mark.parametrize("name", SEVERAL)
def test_gradients_of_several_results(name):
    function = SEVERAL[name]
    compiled = tatara.compile(function)
    for call in range(3):
        names, gradient = _observed(function, _input(call))
        seen, found = _observed(compiled, _input(call))
        torch.testing.assert_close(found, gradient)
        for kind in ("mm", "mul", "cos", "threshold_backward"):  # sums of gradients come in another order
            assert sum(kind in each for each in seen) == sum(kind in each for each in names), kind


@pytest.mark.parametrize("name", [*ONE_RESULT, *SEVERAL])
def test_passes_that_can_be_differentiated(name):
    function = {**ONE_RESULT, **SEVERAL}[name]
    compiled = tatara.compile(function)
    for call in range(3):
        expected = _observed(function, _input(call), True)
        found = _observed(compiled, _input(call), True)
        torch.testing.assert_close(found[2:], expected[2:], rtol=1e-4, atol=1e-4)
        if name in ONE_RESULT and name != "written":
            assert found[0] == expected[0]


def test_gradients_that_nobody_wants_are_not_computed():
    other = _input(5)

    def function(x):
        return (x @ other).sin()

    compiled = tatara.compile(function)
    for call in range(3):
        assert _observed(compiled, _input(call))[0] == _observed(function, _input(call))[0]


def test_sizes_that_vary():
    function = ONE_RESULT["arithmetic"]
    compiled = tatara.compile(function, dynamic=True)
    for rows in (3, 5, 4, 7):
        names, gradient = _observed(function, _input(rows, rows))
        seen, found = _observed(compiled, _input(rows, rows))
        assert seen == names
        torch.testing.assert_close(found, gradient)


def test_inputs_that_are_gone_or_changed():
    compiled = tatara.compile(lambda x, scale: torch.relu(x * scale))
    for call in range(3):
        x = _input(call)
        scale = torch.full((3,), 2.0)
        total = compiled(x, scale).sum()
        with torch.no_grad():
            scale.zero_()  # eager refuses: it has saved the tensor
        with pytest.raises(RuntimeError, match="modified by an inplace operation"), Seen():
            torch.autograd.grad(total, x)
        total = compiled(x, torch.full((3,), 2.0)).sum()
        gc.collect()
        with Seen():
            (gradient,) = torch.autograd.grad(total, x)
        torch.testing.assert_close(gradient, 2.0 * (x > 0))


def test_floating_point_operations_are_counted():
    layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    counts = []
    for function in (layers, tatara.compile(layers)):
        for call in range(3):
            total = function(_input(call)).sum()
            counter = FlopCounterMode(display=False)
            with counter:
                total.backward()
            counts.append(counter.get_total_flops())
    assert len(set(counts)) == 1 and counts[0] > 0
