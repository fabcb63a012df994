"""*args and **kwargs."""

import torch


def program(first, *rest, **named):
    for tensor in rest:
        first = first + tensor
    return first * named["scale"]


CALLS = [(torch.ones(4), torch.ones(4), torch.ones(4))]
KEYWORDS = [{"scale": 3}]
