"""A list of tensors through zip and enumerate."""

import torch


def program(tensors, weights):
    scaled = [t * w for t, w in zip(tensors, weights)]
    return torch.stack([t + i for i, t in enumerate(scaled)])


CALLS = [([torch.ones(3), torch.zeros(3)], (2, 3))]
