"""Steps with two models and two optimizers, as GANs have: what one loss uses up leaves the other, whatever breaks the step.
Losses, parameters, buffers, gradients, flags and the random state are eager's, in every call.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tatara  # noqa: E402
from results import same  # noqa: E402

CALLS = 6
NORMS = {
    "none": lambda conv: conv,
    "spectral": nn.utils.spectral_norm,
    "parametrized": nn.utils.parametrizations.spectral_norm,
    "weight": nn.utils.parametrizations.weight_norm,
    "batch": lambda conv: nn.Sequential(conv, nn.BatchNorm2d(8)),
}
BETWEEN = {
    "leaky": lambda: nn.LeakyReLU(0.2, inplace=True),
    "dropout": lambda: nn.Dropout(0.3),
    "dropout2d": lambda: nn.Dropout2d(0.3),
    "alpha": lambda: nn.AlphaDropout(0.3),
    "in place": lambda: nn.Dropout(0.3, inplace=True),
}


class Models:
    def __init__(self, norm: str, between: str, optimizer: str) -> None:
        torch.manual_seed(0)
        self.g = nn.Linear(4, 64)
        first = NORMS[norm](nn.Conv2d(1, 8, 4, 2, 1))
        self.d = nn.Sequential(first, BETWEEN[between](), nn.Flatten(), nn.Linear(128, 1))
        made = getattr(torch.optim, optimizer)
        self.of_g, self.of_d = made(self.g.parameters(), 1e-2), made(self.d.parameters(), 1e-2)

    def state(self) -> Any:
        tensors = [t for m in (self.g, self.d) for t in (*m.parameters(), *m.buffers())]
        return [(t.detach().clone(), t.requires_grad, t.is_leaf, t.grad) for t in tensors]


def _one_loss(m: Models, x: Any, z: Any) -> Any:
    m.of_d.zero_grad()
    fake = m.g(z).view(-1, 1, 8, 8)
    loss = m.d(x).mean() - m.d(fake.detach()).mean()
    loss.backward()
    m.of_d.step()
    m.of_g.zero_grad()
    other = m.d(fake).mean()
    other.backward()
    m.of_g.step()
    return loss.detach(), other.detach()


def _two_losses(m: Models, x: Any, z: Any) -> Any:
    m.of_d.zero_grad()
    fake = m.g(z).view(-1, 1, 8, 8)
    real, false = m.d(x).mean(), -m.d(fake.detach()).mean()
    real.backward()
    print(end="")
    false.backward()
    m.of_d.step()
    m.of_g.zero_grad()
    other = m.d(fake).mean()
    other.backward()
    m.of_g.step()
    return real.item(), false.detach(), other.detach()


def _frozen(m: Models, x: Any, z: Any) -> Any:
    m.d.requires_grad_(True)
    m.of_d.zero_grad()
    fake = m.g(z).view(-1, 1, 8, 8)
    loss = m.d(x).mean() - m.d(fake.detach()).mean()
    loss.backward()
    m.of_d.step()
    m.d.requires_grad_(False)
    m.of_g.zero_grad()
    other = m.d(fake).mean()
    other.backward()
    m.of_g.step()
    return loss.item(), other.detach()


STEPS = {"one loss": _one_loss, "two losses": _two_losses, "frozen": _frozen}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("norm", "between"),
    [
        ("none", "dropout2d"),
        ("spectral", "leaky"),
        ("spectral", "dropout2d"),
        ("spectral", "in place"),
        ("parametrized", "alpha"),
        ("parametrized", "dropout2d"),
        ("weight", "dropout"),
        ("batch", "leaky"),
        ("batch", "dropout2d"),
    ],
)
def test_steps_of_two_models(norm: str, between: str, step: str) -> None:
    # A bias before a BatchNorm has no gradient but rounding, which Adam would blow up.
    optimizer = "Adam" if between in ("leaky", "dropout") and norm != "batch" else "SGD"
    theirs, ours = (Models(norm, between, optimizer) for _ in range(2))
    compiled = tatara.compile(lambda x, z: STEPS[step](ours, x, z))
    for i in range(CALLS):
        torch.manual_seed(100 + i)
        x, z = torch.randn(3, 1, 8, 8), torch.randn(3, 4)
        outcomes = []
        for f, models in ((lambda x, z: STEPS[step](theirs, x, z), theirs), (compiled, ours)):
            torch.manual_seed(i)
            result = f(x, z)
            outcomes.append((result[-1], [float(r) for r in result], models.state(), torch.get_rng_state()))
        (_, numbers, *rest), (_, expected, *others) = outcomes[1], outcomes[0]
        assert numbers == pytest.approx(expected, rel=1e-3, abs=1e-4)
        same(rest, others, rtol=1e-3, atol=1e-4)
