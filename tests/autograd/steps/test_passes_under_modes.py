"""A torch-dispatch mode that is on for a pass of gradients alone sees eager's operators, though the forward pass was compiled."""

import gc

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
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


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * 2


class OwnResult(torch.autograd.Function):
    """Its backward reads what its forward gave, and makes numbers of its own."""

    @staticmethod
    def forward(ctx, x, y):
        result = (x * y).exp()
        ctx.save_for_backward(x, y, result)
        return result, result.detach() + 1

    @staticmethod
    def backward(ctx, gradient, other):
        x, y, result = ctx.saved_tensors
        with torch.no_grad():
            scale = torch.full_like(x, 0.5)
        return gradient * result * y + other * scale, gradient * result * x


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


def _own_results(x):
    first, second = OwnResult.apply(x * 0.5, x)
    return first + second.sin()


def _hooked(x):
    y = x.sin()
    y.register_hook(lambda gradient: gradient * 2 + 1)
    return y * x


def _region(x):
    return checkpoint(lambda h: (h @ _weight).tanh() * h, x * 2, use_reentrant=False).exp()


def _nested_regions(x):
    def outer(h):
        return checkpoint(lambda g: torch.relu(g) * g.sin(), h * 2, use_reentrant=False) + h.cos()

    return checkpoint(outer, x, use_reentrant=False)


def _region_with_function(x):
    return checkpoint(lambda h: Twice.apply(h * 2).tanh(), x, use_reentrant=False)


def _region_with_noise(x):
    return checkpoint(lambda h: functional.dropout(h.sin(), 0.5) * h, x, use_reentrant=False)


def _pass_inside(x):
    h = (x * x).sin().sum()
    (gradient,) = torch.autograd.grad(h, x, create_graph=True)
    return gradient * x


ONE_RESULT = {
    "function": lambda x: Twice.apply(x * 2).exp(),
    "functions": lambda x: Outer.apply(Twice.apply(x)) + Twice.apply(Outer.apply(x)),
    "own results": _own_results,
    "hook": _hooked,
    "region": _region,
    "nested regions": _nested_regions,
    "region with a function": _region_with_function,
    "region with noise": _region_with_noise,
    "pass inside": _pass_inside,
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
# Nodes of Python, and regions that are computed again, are gone through once for results and once for their gradients.
TWICE = {name for name in ONE_RESULT if "function" in name or "region" in name or name == "own results"}
# Which sum of gradients comes when is the engine's affair.
PASSED = ("aten.add.Tensor", "aten.detach.default")
SEVERAL = {
    "results of functions": lambda x: (lambda h: (h, Twice.apply(h), h[1:]))(Twice.apply(x)),
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


@pytest.mark.parametrize("name", [name for name in (*ONE_RESULT, *SEVERAL) if name != "hook"])
def test_passes_that_can_be_differentiated(name):
    function = {**ONE_RESULT, **SEVERAL}[name]
    compiled = tatara.compile(function)
    for call in range(3):
        expected = _observed(function, _input(call), True)
        found = _observed(compiled, _input(call), True)
        torch.testing.assert_close(found[2:], expected[2:], rtol=1e-4, atol=1e-4)
        if name in ONE_RESULT and name != "written":
            assert found[0] == expected[0]


@pytest.mark.parametrize("name", [name for name in ONE_RESULT if name not in ("hook", "written")])
@pytest.mark.parametrize("deep, results_too", [(2, False), (2, True), (3, False)])
def test_a_later_pass_alone_under_a_mode(name, deep, results_too):
    function = ONE_RESULT[name]

    def observed(function, x):
        torch.manual_seed(7)
        total = _total(function(x))
        for _ in range(deep - 1):
            (gradient,) = torch.autograd.grad(total, x, create_graph=True)
            total = (gradient * gradient).sum() + (total if results_too else 0)
        with Seen() as seen:
            (last,) = torch.autograd.grad(total, x)
        return sorted(n for n in seen.names if not n.startswith(PASSED)), last

    compiled = tatara.compile(function)
    for call in range(3):
        expected = observed(function, _input(call))
        found = observed(compiled, _input(call))
        torch.testing.assert_close(found[1], expected[1], rtol=1e-3, atol=1e-3)
        if deep == 2 and name not in TWICE:
            assert found[0] == expected[0]
        assert set(found[0]) == set(expected[0])


def test_gradients_of_gradients_through_a_hook_inside_are_refused():
    compiled = tatara.compile(_hooked)
    for call in range(3):
        total = compiled(_input(call)).square().sum()
        if call == 0:
            continue  # eager made that history
        with pytest.raises(RuntimeError, match="a hook on a tensor of its own"):
            total.backward(create_graph=True)


def test_hooks_are_called_in_the_second_pass_inside():
    def function(x):
        y = x.sin()
        y.register_hook(lambda gradient: gradient * 2 + 1)
        (gradient,) = torch.autograd.grad((y * x).square().sum(), x, create_graph=True)
        return torch.autograd.grad((gradient * gradient).sum(), x)

    compiled = tatara.compile(function)
    for call in range(3):
        torch.testing.assert_close(compiled(_input(call)), function(_input(call)))


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
