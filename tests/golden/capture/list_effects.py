"""A list from outside grows: an effect that later calls repeat."""

import torch

SEEN = []


def program(x):
    SEEN.append(len(SEEN))
    y = x + len(SEEN)
    SEEN.append(y)
    return y


CALLS = [(torch.ones(4),)]
