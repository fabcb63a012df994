"""torch.func.jvp inside of the program."""

import torch


def program(x, v):
    return torch.func.jvp(torch.sin, (x,), (v,))


CALLS = [(torch.ones(4), torch.ones(4))]
