"""An error that the program handles."""

import torch


def first(items, name):
    try:
        return items[name]
    except KeyError:
        return items["x"] * 2


def program(x):
    return first({"x": x}, "y") + 1


CALLS = [(torch.ones(4),)]
