"""Gradients of gradients inside of a compiled function: `create_graph=True`, in one graph with what uses them."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import results  # noqa: E402
import tatara  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")
nn = torch.nn
same = functools.partial(results.same, strides=False)
grad = torch.autograd.grad


def net(*widths: int, act: Any = nn.Tanh) -> Any:
    layers: list[Any] = []
    for a, b in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1]).double()


def flat(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [x for each in result for x in flat(each)]
    return [result]


def compiled_in_one_graph(compiled: Any, entries: int = 1) -> None:
    report = report_of(compiled)
    assert not report.breaks, report
    assert all(not g.fallback and not g.problem for g in report.graphs), report
    assert report.kernels
    assert len(report.graphs) == entries


def check_step(step: Callable[..., Any], make: Callable[[], Any], data: Callable[[], Any]) -> None:
    """Whole steps: results, parameters and gradients as in eager, in one graph. The first step finds no gradients, the others do."""
    ours = make()
    theirs = copy.deepcopy(ours)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (ours, theirs)]
    optimizers[0].zero_grad()
    compiled = tatara.compile(step)
    for _ in range(4):
        batch = data()
        mine, other = ([t.detach().clone().requires_grad_(t.requires_grad) for t in batch] for _ in range(2))
        same(compiled(ours, optimizers[0], *mine), step(theirs, optimizers[1], *other))
        for a, b in zip(mine, other, strict=True):
            same(a.grad, b.grad)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            same([p, p.grad], [q, q.grad])
    compiled_in_one_graph(compiled, entries=2)
    assert tatara.stats()["recompiles"] == 1


def pinn(model: Any, optimizer: Any, x: Any) -> Any:
    """The residual of u'' + sin(x) = 0: second derivatives in the loss, third ones in the gradient."""
    optimizer.zero_grad()
    u = model(x)
    u_x = grad(u.sum(), x, create_graph=True)[0]
    u_xx = grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
    loss = (u_xx + torch.sin(x)).square().mean() + u_x.square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach(), u_x.requires_grad


def test_physics_informed_network() -> None:
    check_step(pinn, lambda: net(1, 16, 16, 1), lambda: [torch.randn(8, 1, dtype=torch.double, requires_grad=True)])


@pytest.mark.parametrize("act", [nn.ReLU, nn.GELU, nn.Softplus, nn.Sigmoid], ids=lambda a: a.__name__)
def test_activations(act: Any) -> None:
    check_step(
        pinn, lambda: net(1, 8, 8, 1, act=act), lambda: [torch.randn(8, 1, dtype=torch.double, requires_grad=True)]
    )


def test_force_field() -> None:
    """Forces are gradients of an energy by positions; the network is trained on both."""

    def step(model: Any, optimizer: Any, positions: Any, energy: Any, forces: Any) -> Any:
        optimizer.zero_grad()
        distance = (positions[:, None] - positions[None] + 1e-3).square().sum(-1).sqrt()
        ours = model(distance.reshape(1, -1)).sum()
        force = -grad(ours, positions, create_graph=True)[0]
        loss = (ours - energy).square() + (force - forces).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), force.detach()

    def data() -> Any:
        return [torch.randn(5, 3).double().requires_grad_(), torch.randn(()).double(), torch.randn(5, 3).double()]

    check_step(step, lambda: net(25, 16, 1), data)


def test_gradient_penalty_in_two_passes() -> None:
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        penalty = (grad(out.sum(), x, create_graph=True)[0].norm(2, dim=1) - 1).square().mean()
        out.mean().backward(retain_graph=True)
        penalty.backward()
        optimizer.step()
        return penalty.detach()

    check_step(step, lambda: net(3, 8, 1), lambda: [torch.randn(4, 3).double().requires_grad_()])


def check_function(function: Callable[..., Any], *inputs: Any) -> Any:
    compiled = tatara.compile(function)
    for _ in range(3):
        same(compiled(*inputs), function(*inputs))
    compiled_in_one_graph(compiled)
    assert tatara.stats()["breaks"] == 0
    return compiled


@pytest.mark.smoke
def test_hessian_vector_product() -> None:
    model = net(6, 8, 1)
    parameters = list(model.parameters())
    vectors = [torch.randn_like(p) for p in parameters]
    x = torch.randn(4, 6).double()

    def product(x: Any) -> Any:
        gradients = grad(model(x).square().sum(), parameters, create_graph=True)
        return grad(sum((g * v).sum() for g, v in zip(gradients, vectors, strict=True)), parameters)

    check_function(product, x)


def test_forward_derivative_by_two_backward_passes() -> None:
    weight = torch.randn(4, 4).double()

    def jvp(x: Any, v: Any, dummy: Any) -> Any:
        y = torch.tanh(x @ weight)
        g = grad(y, x, dummy, create_graph=True)[0]
        return grad(g, dummy, v)[0]

    x, dummy = torch.randn(3, 4).double().requires_grad_(), torch.zeros(3, 4).double().requires_grad_()
    check_function(jvp, x, torch.randn(3, 4).double(), dummy)


def test_fourth_derivative() -> None:
    def f(x: Any) -> Any:
        y = (x.sin() * x).sum()
        for _ in range(3):
            y = grad(y, x, create_graph=True)[0].sum()
        return grad(y, x)[0]

    check_function(f, torch.randn(5).double().requires_grad_())


def test_gradients_that_are_constant_have_no_history() -> None:
    def f(x: Any, w: Any) -> Any:
        linear = grad((3 * x).sum(), x, create_graph=True)[0]
        weighted = grad((w * x).sum(), x, create_graph=True)[0]
        kinked = grad(x.relu().sum(), x, create_graph=True)[0]
        compared = grad((x * (x > 0)).sum(), x, create_graph=True)[0]
        return linear.requires_grad, weighted.requires_grad, kinked.requires_grad, compared.requires_grad, linear

    check_function(f, torch.randn(5).requires_grad_(), torch.randn(5).requires_grad_())


def test_second_derivative_of_a_kink_is_zero() -> None:
    def f(x: Any) -> Any:
        g = grad(x.relu().sum(), x, create_graph=True)[0]
        return grad(g.sum(), x, allow_unused=True)

    check_function(f, torch.randn(5).requires_grad_())


def test_a_used_up_graph_of_gradients_is_eagers_error() -> None:
    def f(x: Any) -> Any:
        g = grad(x.sin().sum(), x, create_graph=True)[0]
        first = grad(g.sum(), x)[0]
        return first + grad(g.sum(), x)[0]

    x = torch.randn(5).requires_grad_()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            tatara.compile(f)(x)


def no_change(result: Any) -> None:
    pass


def check_later(
    function: Callable[..., Any], *inputs: Any, later: Callable[[Any], None] = no_change, model: Any = None
) -> Any:
    """Results, and after `later` (a backward pass outside) the gradients of inputs and parameters, beside eager."""
    compiled = tatara.compile(function)
    for _ in range(3):
        found = []
        for call in (compiled, function):
            given = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
            for p in model.parameters() if model else ():
                p.grad = None
            result = call(*given)
            later(result)
            tensors = [*given, *(model.parameters() if model else ()), *flat(result)]
            leaves = [t for t in tensors if isinstance(t, torch.Tensor) and t.is_leaf]
            found.append(
                (
                    result,
                    [t.requires_grad for t in leaves],
                    [None if t.grad is None else t.grad.clone() for t in leaves],
                )
            )
        same(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]
        same(found[0][2], found[1][2])
    return compiled


def through_all(results: Any) -> None:
    sum(t.square().sum() for t in flat(results) if t.requires_grad).backward()


def test_forces_that_are_differentiated_outside() -> None:
    model = net(3, 8, 1)

    def f(x: Any) -> Any:
        energy = model(x).sum()
        return energy, -grad(energy, x, create_graph=True)[0]

    x = torch.randn(4, 3).double().requires_grad_()
    compiled_in_one_graph(check_later(f, x, later=through_all, model=model))


def test_a_loss_that_is_differentiated_outside() -> None:
    model = net(3, 8, 1)

    def f(x: Any) -> Any:
        penalty = (grad(model(x).sum(), x, create_graph=True)[0].norm(2, dim=1) - 1).square().mean()
        return penalty + model(x).mean()

    compiled_in_one_graph(check_later(f, torch.randn(4, 3).double().requires_grad_(), later=through_all, model=model))


def test_an_input_that_becomes_a_leaf() -> None:
    model = net(3, 8, 1)

    def f(x: Any) -> Any:
        x.requires_grad_()
        energy = model(x).sum()
        return energy, -grad(energy, x, create_graph=True)[0]

    compiled_in_one_graph(check_later(f, torch.randn(4, 3).double(), later=through_all, model=model))
    for assigned in (False, True):

        def g(x: Any, assigned: bool = assigned) -> Any:
            if assigned:
                x.requires_grad = True
            else:
                x.requires_grad_(True)
            x.sin().sum().backward()
            return x.grad, x.requires_grad, x.is_leaf

        compiled_in_one_graph(check_later(g, torch.randn(4, 3)))


def test_leaves_made_inside() -> None:
    model = net(3, 8, 1)

    def attack(x: Any) -> Any:
        x = x.clone().detach().requires_grad_(True)
        model(x).square().sum().backward()
        return x.detach() + 0.1 * x.grad.sign()

    def leaf_returned(x: Any) -> Any:
        x = x.detach().clone().requires_grad_()
        assert x.is_leaf
        assert x.grad is None
        x.sin().sum().backward()
        return x

    def factory(x: Any) -> Any:
        w = torch.zeros(3, dtype=torch.double, requires_grad=True)
        g = grad(((x + w) ** 3).sum(), w, create_graph=True)[0]
        return grad(g.sum(), w)[0], w.requires_grad

    def trained_later(x: Any) -> Any:
        x = x.detach().requires_grad_()
        energy = model(x).sum()
        return grad(energy, x, create_graph=True)[0].square().sum() + energy

    x = torch.randn(4, 3).double()
    for f in (attack, leaf_returned, factory, trained_later):
        later = through_all if f is trained_later else no_change
        compiled_in_one_graph(check_later(f, x, later=later, model=model))


def test_leaves_that_the_graph_cannot_follow_stay_in_eager() -> None:
    def used_before(x: Any) -> Any:
        a = x.detach()
        b = a * 2
        a.requires_grad_()
        return grad((a * b).sum(), a)[0]

    def shared(x: Any) -> Any:
        x = x.clone()
        a = x.detach().requires_grad_()
        b = a.sin()
        x.mul_(2)
        return grad((b * 1).sum(), a, allow_unused=True)[0] if x.numel() == 0 else a * 1

    def dangling(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return grad((x**3).sum(), x, create_graph=True)[0]

    for f in (used_before, shared, dangling):
        check_later(f, torch.randn(4, 3).double())


def test_a_result_beside_a_backward_pass() -> None:
    model = net(3, 8, 1)

    def f(x: Any) -> Any:
        out = model(x)
        out.square().mean().backward(retain_graph=True)
        return out

    compiled_in_one_graph(check_later(f, torch.randn(4, 3).double(), later=through_all, model=model))


NORMS: dict[str, Callable[..., Any]] = {
    "layer": lambda x, w, b: nn.functional.layer_norm(x, (4,), w, b),
    "group": lambda x, w, b: nn.functional.group_norm(x, 2, w, b),
    "batch": lambda x, w, b: nn.functional.batch_norm(x, None, None, w, b, True),
    "batch, known statistics": lambda x, w, b: nn.functional.batch_norm(
        x, torch.zeros(4).double(), torch.ones(4).double(), w, b, False
    ),
    "instance": lambda x, w, b: nn.functional.instance_norm(x, None, None, w, b, True),
    "rms": lambda x, w, b: nn.functional.rms_norm(x, (4,), w) + b,
}


@pytest.mark.parametrize("name", NORMS)
def test_histories_of_normalisations_are_those_of_eagers_nodes(name: str) -> None:
    """Which gradients have a history, and which of their gradients are None, for each choice of operands."""

    def derive(function: Any, needs: tuple[bool, ...]) -> Any:
        generator = torch.Generator().manual_seed(5)
        shapes = ((3, 4, 4), (4,), (4,))
        tensors = [
            torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_(n)
            for s, n in zip(shapes, needs, strict=True)
        ]
        wanted = [t for t in tensors if t.requires_grad]
        out = function(*tensors)
        first = grad(out.sin().sum(), wanted, create_graph=True)
        plain = grad(function(*tensors), wanted, torch.ones_like(out), create_graph=True)
        roots = [g for g in plain if g.requires_grad]
        second = [grad(r, wanted, torch.ones_like(r), allow_unused=True, retain_graph=True) for r in roots]
        return [*first, *plain, [list(s) for s in second]]

    for needs in itertools.product((False, True), repeat=3):
        if not any(needs):
            continue
        tatara.reset()
        compiled = tatara.compile(NORMS[name], fullgraph=True)
        for _ in range(2):
            same(derive(compiled, needs), derive(NORMS[name], needs))
