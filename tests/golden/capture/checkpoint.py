"""A region that gradients compute again."""

import torch
from torch.utils.checkpoint import checkpoint


def inner(x, w):
    return torch.tanh(x * w)


def program(x, w):
    return checkpoint(inner, x, w, use_reentrant=False).sum()


CALLS = [(torch.ones(4), torch.ones(4, requires_grad=True))]
