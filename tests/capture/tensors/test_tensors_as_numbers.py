"""Tensors without dimensions where the host wants a number, which it reads from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import optim  # noqa: E402

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]

# Kernels multiply by what the tensor holds.
SCALING: dict[str, Callable[..., Any]] = {
    "add": lambda x, s: torch.add(x, x + 1, alpha=s),
    "sub_": lambda x, s: x.sub_(x * 2, alpha=s),
    "addcmul_": lambda x, s: x.addcmul_(x + 2, x, value=s),
    "addcdiv": lambda x, s: x.addcdiv(x, x + 1, value=s),
    "computed": lambda x, s: x.addcdiv(x, x + 1, value=-s / (1 - s * s)),
    "foreach": lambda x, s: torch._foreach_add([x], [x * 2], alpha=s)[0],
}
OTHERS: dict[str, Callable[..., Any]] = {
    "index_add": lambda x, s: x.index_add(0, torch.tensor([0]), x[:1], alpha=s),
    "addmm": lambda x, s: torch.addmm(x[:1, None], x[:2, None], x[None], alpha=s),
    "addr": lambda x, s: torch.addr(x[:, None], x, x, beta=s),
    "add a number": lambda x, s: torch.add(x, 2, alpha=s),
    "leaky_relu": lambda x, s: torch.nn.functional.leaky_relu(-x, s),
}
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
FACTORS = [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64]

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "AdamW": lambda p, lr: optim.AdamW(p, lr=lr),
    "Adam": lambda p, lr: optim.Adam(p, lr=lr, foreach=False, amsgrad=True),
    "SGD": lambda p, lr: optim.SGD(p, lr=lr, momentum=0.9, nesterov=True),
    "Adagrad": lambda p, lr: optim.Adagrad(p, lr=lr, lr_decay=0.1),
    "RMSprop": lambda p, lr: optim.RMSprop(p, lr=lr, centered=True),
    "NAdam": lambda p, lr: optim.NAdam(p, lr=lr),
    "Adamax": lambda p, lr: optim.Adamax(p, lr=lr),
    "Adadelta": lambda p, lr: optim.Adadelta(p, lr=lr),
    "Muon": lambda p, lr: optim.Muon([x for x in p if x.dim() == 2], lr=lr),  # its update is bfloat16
}


def _outcome(function: Callable[..., Any], x: Any, factor: Any) -> tuple[Any, Any]:
    """The result, or the type of the error, and what is in the first operand afterwards."""
    x = x.clone()
    try:
        return function(x, factor), x
    except (RuntimeError, TypeError) as error:
        return type(error).__name__, x


def _check(function: Callable[..., Any], dtype: Any, *factors: Any) -> None:
    x = (torch.arange(6) / 3 + 0.1).to(dtype)
    compiled = tatara.compile(function)
    for factor in factors:
        same(_outcome(compiled, x, factor), _outcome(function, x, factor), equal_nan=True)


@pytest.mark.parametrize("name", SCALING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("of", [torch.float32, torch.float64], ids=str)
def test_in_the_kernel(name: str, dtype: Any, of: Any) -> None:
    """Read by the kernel in each call: one graph for all values."""
    with counts() as grown:
        _check(SCALING[name], dtype, *[torch.tensor(v, dtype=of) for v in (1.37, 0.5, -2.0)])
    assert [grown[k] for k in ("graphs", "breaks", "recompiles", "fallbacks")] == [1, 0, 0, 0]


# The other operands are cast to the type of the first, as eager casts them.
MIXED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, s: torch.add(x, y, alpha=s),
    "sub_": lambda x, y, s: (x * 1).sub_(y, alpha=s),
    "addcmul": lambda x, y, s: torch.addcmul(x, y, y + 1, value=s),
    "addcdiv_": lambda x, y, s: (x * 1).addcdiv_(y, x + 1, value=s),
}
NARROWER = [torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("narrower", NARROWER, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("history", [False, True])
def test_operands_of_two_types(name: str, narrower: Any, dtype: Any, history: bool) -> None:
    """One graph where the first operand's type is the widest and it has dimensions; in any case what eager gives."""
    x = (torch.arange(6) / 3 + 0.1).to(dtype)
    y = (torch.arange(6) / 7 + 0.3).to(narrower)
    compiled = tatara.compile(MIXED[name])
    with counts() as grown:
        for factor in (1.37, -2.0):
            _check_mixed(MIXED[name], compiled, (x, y), torch.tensor(factor), history)
    assert [grown[k] for k in ("graphs", "breaks", "recompiles", "fallbacks")] == [1, 0, 0, 0]
    for operands in ((x.sum(), y), (y, x), (x, y[0]), (x.sum(), y[0]), (x[:0], y[:0])):
        _check_mixed(MIXED[name], compiled, operands, torch.tensor(1.37), history)


def _check_mixed(function: Any, compiled: Any, operands: Any, factor: Any, history: bool) -> None:
    outcomes = []
    for f in (compiled, function):
        leaves = [x.clone().requires_grad_(history) for x in operands]
        try:
            result = f(*leaves, factor)
        except RuntimeError as error:
            outcomes.append(type(error).__name__)
            continue
        outcomes.append([result, *(torch.autograd.grad(result.sin().sum(), leaves) if history else ())])
    same(*outcomes)


@pytest.mark.parametrize("name", [*SCALING, *OTHERS])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whatever_it_is(name: str, dtype: Any) -> None:
    function = {**SCALING, **OTHERS}[name]
    for of in FACTORS:
        _check(function, dtype, torch.tensor(1.37).to(of), torch.tensor(0).to(of))


@pytest.mark.parametrize("no_grad", [False, True])
@pytest.mark.parametrize("name", [*SCALING, *OTHERS])
def test_no_number_with_a_history(name: str, no_grad: bool) -> None:
    """The host refuses a tensor that requires grad, whether it is a leaf or computed, also where gradients are off."""
    function = {**SCALING, **OTHERS}[name]
    with torch.set_grad_enabled(not no_grad):
        _check(function, torch.float32, torch.tensor(1.37, requires_grad=True))
        _check(lambda x, s: function(x, s * 2), torch.float32, torch.tensor(1.37, requires_grad=True))


def _train(make: Callable[..., Any], compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    rate = torch.tensor(1e-2)
    optimizer = make(model.parameters(), rate)
    x = torch.randn(5, 4)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tatara.compile(step) if compiled else step
    losses = []
    for _ in range(6):
        losses.append(run())
        rate.mul_(0.9)
    return [losses, *[p.detach() for p in model.parameters()]]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rates_of_optimizers(name: str) -> None:
    """A rate that is a tensor: one graph for the first step, which makes the state, and one for the others."""
    expected = _train(OPTIMIZERS[name], False)
    with counts() as grown:
        same(_train(OPTIMIZERS[name], True), expected)
    assert [grown[k] for k in ("graphs", "breaks", "fallbacks")] == [2, 0, 0]


# Operators whose sizes data decide have no meta form, and these parameters want a tensor.
TENSORS_ALONE: dict[str, Callable[[torch.Tensor], Any]] = {
    "one_hot": lambda x: torch.nn.functional.one_hot(x),
    "one_hot by the dispatcher": lambda x: torch.ops.aten.one_hot.default(x, -1),
    "nonzero": lambda x: torch.nonzero(x),
    "unique": lambda x: torch.unique(x),
    "repeat_interleave": lambda x: torch.repeat_interleave(x),
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "bincount": lambda x: torch.bincount(x),
    "matrix_rank": lambda x: torch.linalg.matrix_rank(x),
    "histc": lambda x: torch.histc(x.float(), 4),
    "isin": lambda x: torch.isin(x, torch.tensor([3])),
}


@pytest.mark.parametrize("name", TENSORS_ALONE)
def test_a_tensor_is_no_number_where_a_tensor_is_wanted(name: str) -> None:
    function = TENSORS_ALONE[name]
    compiled = tatara.compile(function)
    for number in (3, 3, 5):
        outcomes: list[Any] = []
        for call in (compiled, function):
            try:
                outcomes.append(call(torch.tensor(number)))
            except Exception as error:
                outcomes.append((type(error), str(error)))
        same(*outcomes)
