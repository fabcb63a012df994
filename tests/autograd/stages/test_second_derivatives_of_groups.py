"""Second derivatives of a stage whose results have nodes of their own: what one node saves, another one keeps."""

import torch
import torch.nn.functional as F

import tatara


def _turns(x, w, b):
    h = b.expand(x.shape[0], -1)
    c = torch.ones_like(h)
    seen = []
    rest = x.transpose(0, 1) * 1.0
    for row, t in zip(x.movedim(1, 0), range(x.shape[1] - 1, -1, -1), strict=True):
        if t < 5:
            h = torch.sin((c @ w) + (t % 3)) + 0 * h
        else:
            inner = (h + F.linear(h + (b / (1.5 + x[:, t].abs())), w))[:, 1:]
            h = (c + torch.cat([inner, (c + row)[:, :1]], 1).clamp(-1, 1) * 0.9) * 0.5
        seen.append(h)
    return rest.sum(0), h, torch.stack(seen), tuple(seen)


def _weighed(results):
    flat = [part for each in results for part in (each if isinstance(each, tuple) else (each,))]
    return sum((part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view(part.shape)).sum() for part in flat)


def _second(function, draw):
    generator = torch.Generator().manual_seed(draw)
    leaves = [
        (torch.randn(*shape, dtype=torch.float64, generator=generator) * 0.4).requires_grad_()
        for shape in ((3, 9, 4), (4, 4), (4,))
    ]
    grads = torch.autograd.grad(_weighed(function(*leaves)), leaves, create_graph=True)
    return torch.autograd.grad(_weighed([g * 1.0 for g in grads]), leaves)


def test_what_one_node_saves_another_one_keeps():
    compiled = tatara.compile(_turns)
    for draw in range(3):
        torch.testing.assert_close(_second(compiled, draw), _second(_turns, draw))
