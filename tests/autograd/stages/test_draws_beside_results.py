"""Random numbers come in eager's order, also where results that depend on each other cut the graph into training stages."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import tatara

pytestmark = pytest.mark.usefixtures("fresh")

_attention = torch.nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.4).double()
DRAWS = {
    "dropout": lambda v: F.dropout(v, 0.4),
    "attention": lambda v: F.scaled_dot_product_attention(v[None], v[None], v[None], dropout_p=0.4)[0],
    "attention layer": lambda v: v + _attention(v[None], v[None], v[None], need_weights=False)[0][0],
    "uniform": lambda v: v * torch.rand(3, 4, dtype=torch.float64),
    "normal like": lambda v: v + torch.randn_like(v),
    "normal of it": lambda v: v + torch.normal(v.detach(), 0.5),
    "permutation": lambda v: v[torch.randperm(3)],
    "exponential": lambda v: v * torch.empty(3, 4, dtype=torch.float64).exponential_(),
    "gumbel": lambda v: v + F.gumbel_softmax(v, hard=True),
    "bernoulli": lambda v: v * torch.bernoulli(torch.full((3, 4), 0.5, dtype=torch.float64)),
    "leaky": lambda v: F.rrelu(v, training=True),
    "feature dropout": lambda v: F.alpha_dropout(v, 0.3, training=True),
}


@pytest.mark.parametrize("first, second", list(itertools.product(DRAWS, DRAWS)))
@pytest.mark.parametrize("returned", ["begin", "middle", "all"])
def test_order(first, second, returned):
    def program(x):
        begin = x * 2
        middle = DRAWS[first](begin.sin())
        end = DRAWS[second](middle.cos()) if returned == "middle" else DRAWS[second](middle)
        results = {"begin": (begin, end), "middle": (middle, end), "all": (begin, middle, end)}
        return results[returned]

    compiled = tatara.compile(program)
    for call in range(3):
        outcomes = []
        for run in (program, compiled):
            torch.manual_seed(call)
            x = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
            results = run(x)
            (gradient,) = torch.autograd.grad(sum(r.square().sum() for r in results), x)
            outcomes.append([*(r.detach() for r in results), gradient, torch.get_rng_state()])
        for mine, theirs in zip(outcomes[1], outcomes[0], strict=True):
            torch.testing.assert_close(mine, theirs)
