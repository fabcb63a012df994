"""Variables of a function around it."""

import torch


def make():
    weight = torch.full((4,), 3.0)
    times = 2

    def program(x):
        return x * weight * times

    return program


program = make()
CALLS = [(torch.ones(4),)]
