"""A program may write in place to what a compiled function gave it, with gradients, whatever part of memory that is."""

import itertools

import pytest
import torch

import tatara

MAKERS = {
    "whole": lambda x: x * 2,
    "reshaped": lambda x: (x * 2).view(-1),
    "columns": lambda x: (x * 2)[:, 1:],
    "rows": lambda x: (x * 2)[1:],
    "every other": lambda x: (x.sin() * x)[:, ::2],
    "one row": lambda x: (x * 2)[0],
    "one element": lambda x: (x * 2)[0, 1],
    "transposed": lambda x: (x * 2).t(),
    "part of a transposed one": lambda x: (x * 2).t()[1:, :2],
    "part of a product": lambda x: (x @ x.t())[:, 1:],
    "diagonal": lambda x: (x @ x.t()).diagonal(),
    "narrowed": lambda x: (x + 1).narrow(1, 1, 3),
    "parts of parts": lambda x: (x * 2).reshape(-1)[3:].reshape(-1, 1)[1:],
    "part of a permuted one": lambda x: (x * 2).view(3, 5, 1).permute(1, 2, 0)[1:],
    "real part": lambda x: torch.complex(x, x * 2).real,
    "part of a convolution": lambda x: torch.nn.functional.conv1d(x[None], torch.ones(2, 3, 2, dtype=x.dtype))[
        :, :, 1:
    ],
}
WRITES = {
    "scaled": lambda y: y.mul_(3),
    "added to": lambda y: y.add_(y.detach()),
    "augmented": lambda y: y.__imul__(0.5),
    "an element": lambda y: y.view_as(y).flatten()[:1] if y.dim() == 0 else y.select(0, 0).mul_(2),
    "filled": lambda y: y.masked_fill_(y > 0, 0.5),
    "twice": lambda y: y.mul_(2).sin_(),
}


def _stop():
    print("", end="")


def _returned(maker, write):
    def program(x):
        return MAKERS[maker](x)

    return program, lambda run, x: (lambda y: (WRITES[write](y), y)[1])(run(x))


def _behind_a_break(maker, write):
    def program(x):
        y = MAKERS[maker](x)
        _stop()
        WRITES[write](y)
        return y

    return program, lambda run, x: run(x)


def _outcome(program, x):
    x = x.clone().requires_grad_()
    try:
        y = program(x)
        (gradient,) = torch.autograd.grad((y * y).sum(), x)
    except RuntimeError as error:
        return str(error)[:40]
    return y.detach().clone(), gradient, y.stride(), y._version


@pytest.mark.parametrize("maker, write", list(itertools.product(MAKERS, WRITES)))
@pytest.mark.parametrize("make", [_returned, _behind_a_break])
def test_writes(maker, write, make):
    program, use = make(maker, write)
    compiled = tatara.compile(program)
    for _ in range(3):
        x = torch.randn(3, 5, dtype=torch.float64)
        expected = _outcome(lambda x: use(program, x), x)
        found = _outcome(lambda x: use(compiled, x), x)
        if isinstance(expected, str):
            assert found == expected
            continue
        assert not isinstance(found, str), found
        for mine, theirs in zip(found[:2], expected[:2], strict=True):
            torch.testing.assert_close(mine, theirs)
        assert found[2:] == expected[2:]
