"""A function of ten lines: a helper, a branch on a value, a size that varies."""

import torch

import tatara


def scaled(x, weight):
    return x * weight + 1


def program(x, weight):
    y = scaled(x, weight)
    y = torch.relu(y)
    if y.shape[0] > 100:
        return y
    total = y.sum()
    if total.item() > 3:
        y = y / total
    else:
        y = y - total
    return y.softmax(0)


compiled = tatara.compile(program)
for size in (4, 6, 6):
    compiled(torch.ones(size), 2)
