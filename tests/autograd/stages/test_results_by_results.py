"""Any result of a graph may be differentiated by any other, as in eager, also where some are views."""

import pytest
import torch

import tatara

_weight = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)

MAKERS = {
    "product": lambda a: a @ _weight,
    "fresh": lambda a: a * 2,
    "reshaped": lambda a: (a * 2).view(1, 3),
    "reshaped first": lambda a: a.view(1, 3) * 2,
    "view of the input": lambda a: a.view(3, 1),
    "turned": lambda a: (a[:, None] * a).t(),
    "part": lambda a: (a * 2)[1:],
    "flipped": lambda a: (a * 2).flip(0),
    "transposed product": lambda a: (_weight @ a[:, None]).mT,
    "diagonal": lambda a: torch.outer(a, a).diagonal(),
    "real part": lambda a: torch.complex(a, a * 2).real,
}
USERS = {
    "twice": lambda v: (v, v * 2),
    "function": lambda v: (v, v.sin(), v.sum()),
    "before": lambda v: (v.exp(), v),
    "chain": lambda v: (lambda w: (v, w, w.cos()))(v.sin()),
    "view of it": lambda v: (v, v[0], v.sin()),
    "view of the view": lambda v: (v, v.reshape(-1), v.reshape(-1)[1:].sin()),
    "part and whole": lambda v: (v[0], v[0] * 2, v.sum()),
    "views only": lambda v: (v, v.T, v.T[0]),
    "parts": lambda v: (lambda p: (*p, p[0] * 2))(v.unbind(-1)),
}


def _gradients(results, x):
    """Of each result by each other and by the input; the error's text where there is none."""
    found = []
    for one in results:
        for other in (*results, x):
            try:
                found += torch.autograd.grad(one.sum(), other, retain_graph=True)
            except RuntimeError as error:
                found.append(str(error))
    return found


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("user", USERS)
def test_results_by_results(maker, user):
    def function(a):
        return USERS[user](MAKERS[maker](a))

    compiled = tatara.compile(function)
    for call in range(3):
        x = torch.tensor([0.3, 0.7, -1.1 - call], dtype=torch.float64, requires_grad=True)
        expected, found = _gradients(function(x), x), _gradients(compiled(x), x)
        assert [type(each) for each in found] == [type(each) for each in expected]
        for mine, eager in zip(found, expected, strict=True):
            if isinstance(eager, str):
                assert mine == eager
            else:
                torch.testing.assert_close(mine, eager)
