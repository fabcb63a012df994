"""Random numbers are drawn anew in each call."""

import torch


def program(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(4)


CALLS = [(torch.ones(4),)]
