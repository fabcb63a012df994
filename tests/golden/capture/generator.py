"""A generator runs inside of the trace."""

import torch


def parts(x):
    for i in range(3):
        yield x[i] * i


def program(x):
    return sum(parts(x))


CALLS = [(torch.ones(3, 4),)]
