"""A write to a view changes what it is a view of."""

import torch


def program(x):
    y = x.clone()
    y[1].mul_(3)
    y.diagonal().zero_()
    return y


CALLS = [(torch.ones(3, 3),)]
