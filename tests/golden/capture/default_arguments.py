"""Defaults and keywords."""

import torch


def program(x, scale=2, *, shift=None, name="a"):
    y = x * scale
    return y if shift is None else y + shift


CALLS = [(torch.ones(4),)]
KEYWORDS = [{"name": "b"}]
