"""What a comparison of floats that vary gives is a guard."""

import torch


def program(x, scale):
    if scale * 2 > 1.0:
        return x * scale
    return x


CALLS = [(torch.ones(4), 0.75), (torch.ones(4), 0.875), (torch.ones(4), 1.5)]
