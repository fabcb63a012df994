"""Names of the module, and one that the program writes."""

import torch

OFFSET = 3
WEIGHT = torch.ones(4)
calls = 0


def program(x):
    global calls
    calls += 1
    return x * WEIGHT + OFFSET


CALLS = [(torch.ones(4),), (torch.ones(4),), (torch.ones(4),)]
