"""torch.func.grad inside of the program."""

import torch


def program(x):
    return torch.func.grad(lambda a: (a**3).sum())(x)


CALLS = [(torch.ones(4),)]
