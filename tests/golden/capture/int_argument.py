"""An int that varies becomes a symbol."""

import torch


def program(x, n):
    return x[:n] * n


CALLS = [(torch.ones(8), 3), (torch.ones(8), 4), (torch.ones(8), 5)]
