"""Gradients off for a part of the program."""

import torch


def program(x, w):
    with torch.no_grad():
        mean = (x * w).mean()
    return x * w - mean


CALLS = [(torch.ones(4), torch.ones(4, requires_grad=True))]
