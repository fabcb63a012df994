"""A whole step: the pass of the engine is a call on the tape."""

import torch

WEIGHT = torch.ones(3, requires_grad=True)


def program(x):
    loss = (x * WEIGHT).square().sum()
    loss.backward()
    gradient = WEIGHT.grad
    WEIGHT.grad = None
    return loss.detach(), gradient


CALLS = [(torch.ones(2, 3),)]
