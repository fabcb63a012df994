"""Passes of the engine of each kind: differentiated again, kept for another, with a hook on the leaf."""

import torch

WEIGHT = torch.ones(3, requires_grad=True)
BIAS = torch.ones(3, requires_grad=True)
BIAS.register_hook(lambda gradient: gradient * 2)


def program(x):
    loss = (x * WEIGHT + BIAS).square().sum()
    (first,) = torch.autograd.grad(loss, WEIGHT, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), WEIGHT, retain_graph=True)
    (third,) = torch.autograd.grad(loss, BIAS)
    return first.detach(), second, third


CALLS = [(torch.ones(2, 3),)]
