"""Results that keep their gradients (`retain_grad`) in compiled steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def _net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def _hidden(net: Any, x: Any) -> Any:
    h = net[1](net[0](x))
    h.retain_grad()
    loss = net[2](h).square().mean()
    net.zero_grad()
    loss.backward()
    return loss.detach(), h.grad


def _several(net: Any, x: Any) -> Any:
    kept = []
    for layer in net:
        x = layer(x)
        x.retain_grad()
        kept.append(x)
    net.zero_grad()
    x.sin().sum().backward()
    return [k.grad.norm() for k in kept]


def _transposed(net: Any, x: Any) -> Any:
    h = net(x).t()
    h.retain_grad()
    net.zero_grad()
    (h.t() * torch.arange(2.0)).sum().backward()
    return h.grad


def _twice(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    net.zero_grad()
    h.sum().backward(retain_graph=True)
    before = h.grad
    h.square().sum().backward()
    return before, h.grad, before is h.grad


def _unused(net: Any, x: Any) -> Any:
    h, other = net(x), net(x * 2)
    other.retain_grad()
    h.retain_grad()
    net.zero_grad()
    h.sum().backward()
    return h.grad, other.grad is None


def _root(net: Any, x: Any) -> Any:
    loss = net(x).mean()
    loss.retain_grad()
    net.zero_grad()
    loss.backward()
    return loss.grad


def _written(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    h.mul_(3)
    net.zero_grad()
    h.square().sum().backward()
    return h.grad


def _of_a_leaf(net: Any, x: Any) -> Any:
    x = x.detach().requires_grad_()
    x.retain_grad()
    net.zero_grad()
    net(x).sum().backward()
    return x.grad


WHOLE = [_hidden, _several, _transposed, _twice, _unused, _root, _written, _of_a_leaf]


def _same(seen: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(seen, expected)
        assert (seen.stride(), seen.requires_grad) == (expected.stride(), expected.requires_grad)
        return
    if not isinstance(expected, list | tuple):
        assert seen == expected
        return
    assert type(seen) is type(expected)
    for a, b in zip(seen, expected, strict=True):
        _same(a, b)


def _compare(program: Callable[[Any, Any], Any]) -> tuple[dict[str, int], Any]:
    ours, theirs = _net(), _net()
    compiled = tatara.compile(lambda x: program(ours, x))
    for k in range(5):
        with counts() as grown:
            seen = compiled(X * (k + 1))
        _same(seen, program(theirs, X * (k + 1)))
        _same([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
    return grown, compiled


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_a_step_is_one_graph(program: Any) -> None:
    grown, compiled = _compare(program)
    assert not report_of(compiled).breaks
    assert (grown["graphs"], grown["recompiles"], grown["fallbacks"]) == (0, 0, 0)


def _returned(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    net.zero_grad()
    h.square().sum().backward()
    return h


def _backward_later(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    return h, h.square().sum()


def _break_in_between(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    print("h")
    net.zero_grad()
    h.square().sum().backward()
    return h.grad


def _break_behind(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    net.zero_grad()
    h.square().sum().backward()
    print("h")
    return h.grad * 2


def _by_inputs(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    (found,) = torch.autograd.grad(h.square().sum(), [net[0].weight])
    return found, h.grad


def _hooked_before(net: Any, x: Any) -> Any:
    h = net(x)
    h.register_hook(lambda g: g.clamp(-0.1, 0.1))
    h.retain_grad()
    net.zero_grad()
    h.square().sum().backward()
    return h.grad


def _double(gradient: Any) -> Any:
    return gradient * 2


def _hooked_after(net: Any, x: Any) -> Any:
    h = net(x)
    h.retain_grad()
    h.register_hook(_double)
    net.zero_grad()
    h.square().sum().backward()
    return h.grad


def _by_a_hooked_tensor(net: Any, x: Any) -> Any:
    h = net(x)
    h.register_hook(lambda g: g * 2)
    return torch.autograd.grad(h.square().sum(), h)


LEFT = [_break_in_between, _break_behind, _by_inputs, _hooked_before, _by_a_hooked_tensor]


@pytest.mark.parametrize("program", LEFT, ids=lambda p: p.__name__)
def test_what_no_graph_can_do(program: Any) -> None:
    grown, _ = _compare(program)
    assert (grown["graphs"], grown["recompiles"]) == (0, 0)


def test_a_hook_that_is_put_on_later() -> None:
    _compare(_hooked_after)


def test_results_that_outlive_the_call() -> None:
    ours, theirs = _net(), _net()
    whole, later = (tatara.compile(lambda x, p=p: p(ours, x)) for p in (_returned, _backward_later))
    for k in range(4):
        x = X * (k + 1)
        seen, expected = whole(x), _returned(theirs, x)
        assert (seen.retains_grad, seen.is_leaf) == (expected.retains_grad, expected.is_leaf) == (True, False)
        _same(seen.grad, expected.grad)
        with counts() as grown:
            (seen, loss), (expected, other) = later(x), _backward_later(theirs, x)
        loss.backward()
        other.backward()
        assert seen.retains_grad
        _same(seen.grad, expected.grad)
    assert (grown["graphs"], grown["recompiles"]) == (0, 0)


def test_the_error_of_a_tensor_without_a_history() -> None:
    def program(x: Any) -> Any:
        (x * 2).retain_grad()

    compiled = tatara.compile(program)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="can't retain_grad on Tensor that has requires_grad=False"):
            compiled(X)
