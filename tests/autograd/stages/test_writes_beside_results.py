"""Results that depend on each other, beside in-place writes to buffers: a loss and its logits behind a batch norm, say."""

import itertools

import pytest
import torch

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

_WIDTH = 6


class _Counted(torch.nn.Module):
    """A buffer that is read with gradients, written to, and read again."""

    def __init__(self, write):
        super().__init__()
        self.write = write
        self.register_buffer("scale", torch.linspace(0.5, 1.5, _WIDTH))

    def forward(self, x):
        before = x * self.scale.clone()
        with torch.no_grad():
            self.write(self.scale, x.mean(0))
        return before + x * self.scale.sum()


LAYERS = {
    "batch norm": lambda: torch.nn.BatchNorm1d(_WIDTH),
    "batch norm, cumulative": lambda: torch.nn.BatchNorm1d(_WIDTH, momentum=None),
    "batch norm twice": lambda: torch.nn.Sequential(
        torch.nn.BatchNorm1d(_WIDTH), torch.nn.Tanh(), torch.nn.BatchNorm1d(_WIDTH)
    ),
    "instance norm": lambda: torch.nn.Sequential(
        torch.nn.Unflatten(0, (1, -1)),
        torch.nn.InstanceNorm1d(8, track_running_stats=True, affine=True),
        torch.nn.Flatten(0, 1),
    ),
    "added to": lambda: _Counted(lambda s, m: s.add_(m)),
    "scaled": lambda: _Counted(lambda s, m: s.mul_(0.5)),
    "copied": lambda: _Counted(lambda s, m: s.copy_(m)),
    "moving average": lambda: _Counted(lambda s, m: s.lerp_(m, 0.1)),
}
HEADS = {
    "loss and logits": lambda h, w: (lambda y: (y.square().mean(), y))(h @ w),
    "logits, then loss": lambda h, w: (lambda y: (y, y.logsumexp(-1).sum(), y.detach()))(h @ w),
    "chain": lambda h, w: (lambda y: (h, y, y.sin(), (y * h.sum()).sum()))(h @ w),
    "views": lambda h, w: (lambda y: (y[0], y.mT, y.tanh().sum()))(h @ w),
}


class _Model(torch.nn.Module):
    def __init__(self, layer, head):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(_WIDTH, _WIDTH)
        self.layer = LAYERS[layer]()
        self.weight = torch.nn.Parameter(torch.randn(_WIDTH, 3))
        self.head = head

    def forward(self, x):
        return HEADS[self.head](self.layer(self.first(x)), self.weight)


def _step(run, model, x, by):
    """What a step leaves: results, gradients, buffers, counts of writes; an error's text in place of gradients."""
    results = run(x)
    try:
        results[by].sum().backward()
        problem = ""
    except RuntimeError as error:
        problem = str(error)[:60]
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    buffers = list(model.buffers())
    return [*results, *gradients, *buffers], [problem, *[b._version for b in buffers]]


@pytest.mark.parametrize("layer, head", list(itertools.product(LAYERS, HEADS)))
def test_steps(layer, head):
    eager, model = (_Model(layer, head).double() for _ in range(2))
    compiled = tatara.compile(model)
    count = len(HEADS[head](torch.ones(8, _WIDTH), torch.ones(_WIDTH, 3)))
    needing = [i for i in range(count) if not (head == "logits, then loss" and i == 2)]
    for call in range(2 * len(needing)):
        x = torch.randn(8, _WIDTH, dtype=torch.float64)
        expected, marks = _step(eager, eager, x, needing[call % len(needing)])
        found, own = _step(compiled, model, x, needing[call % len(needing)])
        assert own == marks
        same(found, expected, atol=1e-10, rtol=1e-10)
    assert tatara.stats()["fallbacks"] == 0
    assert tatara.stats()["breaks"] == 0


def _first_read_without(x):
    a = x * 2
    with torch.no_grad():
        b = x * 3
    v = b.expand(2, *x.shape)
    b.mul_(a)
    with torch.no_grad():
        w = v * 3
    return a, b, v, w, v * 2


def _last_call_without(x):
    a = x * 2
    with torch.no_grad():
        b = x * 3
    v = b.unsqueeze(0).expand(2, *x.shape)
    b.mul_(a)
    with torch.no_grad():
        w = a * 3
    return a, b, v, w


def _write_without(x):
    b = x * 3
    v = b.t()
    with torch.no_grad():
        b.mul_(2)
        w = v * 2
    return b, v, w, v * x.t()


@pytest.mark.parametrize("program", [_first_read_without, _last_call_without, _write_without])
def test_a_view_keeps_its_history_where_it_is_read_with_gradients_off(program):
    """Whether a view has a history is said where it is made, not where it is read after a write to its base."""
    compiled = tatara.compile(program, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=True)
        expected, found = program(x), compiled(x)
        assert [r.requires_grad for r in found] == [r.requires_grad for r in expected]
        for e, f in zip(expected, found, strict=True):
            torch.testing.assert_close(f, e)
        gradients = [
            torch.autograd.grad(sum(r.sum() for r in results if r.requires_grad), x)[0] for results in (expected, found)
        ]
        torch.testing.assert_close(*gradients)
