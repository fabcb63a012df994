"""Derivatives where a rule takes another branch: at zeros, ones, ties and rows of zeros, backwards and forwards, as in eager."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import tatara
from results import same

_ROWS = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 3.0], [0.5, 0.0, 1.0], [-1.0, -1.0, 2.0]], dtype=torch.float64)
_OTHERS = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, -1.0], [0.5, 3.0, 1.0], [-1.0, 2.0, 2.0]], dtype=torch.float64)
_NORMS = (0, 0.5, 1, 1.5, 2, 3, -1, -2, float("inf"), float("-inf"))
REDUCTIONS = {
    **{f"vector_norm {p}": lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1) for p in _NORMS},
    **{f"norm {p}": lambda x, p=p: torch.norm(x, p, dim=1, keepdim=True) for p in _NORMS},
    "std": lambda x: x.std(1),
    "std without correction": lambda x: torch.std(x, dim=0, correction=0),
    "var": lambda x: x.var(1),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(0),
    "logsumexp": lambda x: x.logsumexp(1),
    "cumprod": lambda x: x.cumprod(1),
    "normalize": lambda x: torch.nn.functional.normalize(x, dim=1),
    "cosine_similarity": lambda x: torch.nn.functional.cosine_similarity(x, x.flip(0), dim=1),
}
BINARY = {
    name: getattr(torch, name)
    for name in (
        "pow",
        "xlogy",
        "copysign",
        "atan2",
        "hypot",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "fmod",
        "remainder",
        "div",
        "logaddexp",
        "logaddexp2",
        "float_power",
        "mul",
    )
} | {
    "xlog1py": torch.special.xlog1py,
    "sum of polar": lambda r, t: torch.view_as_real(torch.polar(r, t)).sum(-1),
}
_MORE_ARGUMENTS = (
    "fill", "frexp", "nn.functional.prelu", "nn.functional.threshold", "special.polygamma", "polygamma", "mvlgamma",
)  # fmt: skip
# Of one operand, without arguments: what torch's own suite knows.
UNARY = sorted(
    {
        op.name
        for op in op_db
        if type(op).__name__ == "UnaryUfuncInfo"
        and op.supports_autograd
        and op.supports_forward_ad
        and torch.float64 in op.supported_backward_dtypes("cpu")
        and op.name not in _MORE_ARGUMENTS
        and "dropout" not in op.name
    }
)


def _unary(name):
    ops = [op for op in op_db if op.name == name and type(op).__name__ == "UnaryUfuncInfo"]
    return ops[0].op


def _backwards(function):
    def both(*operands):
        leaves = [each.detach().requires_grad_() for each in operands]
        result = function(*leaves)
        return torch.autograd.grad(
            result, leaves, torch.linspace(0.5, 2, result.numel(), dtype=torch.float64).view(result.shape)
        )

    return both


def _forwards(function):
    def both(*operands):
        tangents = tuple(
            torch.linspace(-1, 2 + 3 * i, each.numel(), dtype=torch.float64).view(each.shape)
            for i, each in enumerate(operands)
        )
        return torch.func.jvp(function, operands, tangents)

    return both


def _compare(function, *operands):
    for direction in (_backwards, _forwards):
        try:
            expected = direction(function)(*operands)
        except (RuntimeError, NotImplementedError):
            continue  # eager has no such derivative
        compiled = tatara.compile(direction(function))
        for _ in range(2):
            same(compiled(*operands), expected, equal_nan=True, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name):
    _compare(_unary(name), _ROWS)


@pytest.mark.parametrize("name", BINARY)
def test_of_two_operands(name):
    _compare(BINARY[name], _ROWS, _OTHERS)
    _compare(lambda x: BINARY[name](x, _OTHERS), _ROWS)
    _compare(lambda y: BINARY[name](_ROWS, y), _OTHERS)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    _compare(REDUCTIONS[name], _ROWS)


def test_a_product_added_to_nothing_has_a_gradient_of_zeros():
    def function(x, a, b):
        return torch.autograd.grad(torch.addr(x, a, b, beta=0.0).sum(), (x, a, b))

    compiled = tatara.compile(function)
    for _ in range(3):
        operands = [torch.ones(size, requires_grad=True) for size in ((2, 3), (2,), (3,))]
        torch.testing.assert_close(compiled(*operands), function(*operands))
