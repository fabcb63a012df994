"""A counter of an object."""

import torch


class Counter:
    def __init__(self):
        self.count = 10
        self.last = None


STATE = Counter()


def program(x):
    STATE.count += 1
    STATE.last = x * 2
    return STATE.last + 1


CALLS = [(torch.ones(4),), (torch.ones(4),), (torch.ones(4),)]
