"""Hooks of modules on gradients (`register_full_backward_hook`), and validated distributions, in compiled steps: torch's own
functions around them are no programs, so nothing is traced anew once the calls have settled.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from counters import counts  # noqa: E402
from tatara.report._report import report_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def _hooked(kind: str) -> Any:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    seen: dict[str, Any] = {}
    if kind == "keeps":
        net[1].register_full_backward_hook(lambda module, given, made: seen.__setitem__("v", (given[0], made[0])))
    elif kind == "changes":
        net[1].register_full_backward_hook(lambda module, given, made: (given[0] * 2,))
    else:
        net[1].register_full_backward_pre_hook(lambda module, made: (made[0] * 2,))

    def step(x: Any) -> Any:
        out = net(x)
        net.zero_grad()
        out.square().sum().backward()
        return [net[0].weight.grad.clone(), *seen.get("v", ())]

    return step


@pytest.mark.parametrize("kind", ["keeps", "changes", "before"])
def test_nothing_is_traced_anew(kind: str) -> None:
    program, ours = _hooked(kind), _hooked(kind)
    compiled = tatara.compile(ours)
    for k in range(8):
        x = X * (k + 1)
        with counts() as grown:
            seen = compiled(x)
        for a, b in zip(seen, program(x), strict=True):
            torch.testing.assert_close(a, b)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)
    folder = torch.__file__.rsplit("/", 1)[0] + "/nn/modules/_functions.py"
    assert not [b for b in report_of(compiled).breaks if b.file == folder]


def test_validated_distributions() -> None:
    nets = [torch.nn.Linear(4, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())

    def step(net: Any, x: Any) -> Any:
        loss = -torch.distributions.Normal(net(x), 1.0).log_prob(x[:, :2]).mean()
        net.zero_grad()
        loss.backward()
        return loss.detach()

    compiled = tatara.compile(lambda x: step(nets[0], x))
    for k in range(5):
        x = X * (k + 1)
        with counts() as grown:
            seen = compiled(x)
        torch.testing.assert_close(seen, step(nets[1], x))
        torch.testing.assert_close(nets[0].weight.grad, nets[1].weight.grad)
    assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (0, 0, 0)
    with pytest.raises(ValueError, match="found invalid values"):
        compiled(X * float("nan"))


@pytest.mark.parametrize("name", ["_is_all_true", "_is_any_true"])
def test_answers_of_all_and_any(name: str) -> None:
    compiled = tatara.compile(lambda x: getattr(torch, name)(x > 0).float() + 1)
    for x in (X, X.abs() + 1, -X.abs(), X[:0]):
        torch.testing.assert_close(compiled(x), getattr(torch, name)(x > 0).float() + 1)
    assert not report_of(compiled).breaks
