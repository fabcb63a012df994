"""A float that varies is an input of the graph."""

import torch


def program(x, scale):
    return x * scale


CALLS = [(torch.ones(4), 0.5), (torch.ones(4), 0.25), (torch.ones(4), 2.0)]
