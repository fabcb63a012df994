"""Parameters, buffers and plain attributes of a module."""

import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 3))
        self.register_buffer("shift", torch.zeros(4))
        self.scale = 0.5
        self.act = None

    def forward(self, x):
        y = torch.nn.functional.linear(x, self.weight) * self.scale + self.shift
        return y if self.act is None else self.act(y)


MODULE = Scaled()


def program(x):
    with torch.no_grad():
        return MODULE(x)


CALLS = [(torch.ones(2, 3),)]
