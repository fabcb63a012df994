"""A leaf that the call makes, and a hook on a result."""

import torch


def program(x):
    leaf = (x + 1).detach().requires_grad_()
    scaled = leaf * 3
    scaled.register_hook(lambda gradient: gradient * 2)
    scaled.sum().backward()
    return leaf.grad


CALLS = [(torch.ones(3),)]
