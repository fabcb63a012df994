"""Two arguments that are one tensor."""

import torch


def program(x, y):
    return x * 2 if x is y else x + y


X = torch.ones(4)
CALLS = [(X, X), (X, torch.ones(4))]
