"""Programs in which data decide sizes, numbers and conditions, with operands for all kinds of outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tatara
from counters import counts

Tensor = torch.Tensor


def mask(x: Tensor, w: Tensor) -> Any:
    return (x[x[:, 0] > 0] @ w).sin() * 2 + 1


def prune(x: Tensor, w: Tensor) -> Any:
    keep = torch.nonzero((x @ w).mean(-1) > 0).squeeze(1)
    t = x.index_select(0, keep) * 2
    return torch.relu(t @ w).mean(-1), t.shape[0]


def repeat(x: Tensor, w: Tensor) -> Any:
    counted = (x[:, 0].abs() * 3).long()
    return (torch.repeat_interleave(x.sin(), counted, dim=0) @ w).cos()


def repeat_flat(x: Tensor, w: Tensor) -> Any:
    return torch.repeat_interleave(x[:, 0].exp(), x[:, 1].abs().long() + 1) * 2


def item(x: Tensor, w: Tensor) -> Any:
    n = (x.sum().abs().long() % 5 + 2).item()
    return x.new_zeros(n, 4) + x[:n].exp().sum(), n * 2


def whole_number(x: Tensor, w: Tensor) -> Any:
    n = x[:, 0].gt(0).sum()
    return x.new_ones(int(n), 3) * 2, [n.item()] * 2, torch.arange(n, device=x.device) * 2


def numbers(x: Tensor, w: Tensor) -> Any:
    a, b = (x.abs().sum(0).long()[:2] % 4 + 1).tolist()
    return torch.cat([x[:a].exp(), x[:b].sin()]) @ w


def split(x: Tensor, w: Tensor) -> Any:
    a, b = (x.abs().sum(0).long()[:2] % 3 + 1).tolist()
    p, q, r = torch.split(x, [a, b, 8 - a - b])
    return p.sin() @ w, q * 2, r.sum(0)


def unique(x: Tensor, w: Tensor) -> Any:
    u, inverse, counted = torch.unique((x[:, 0] * 3).long(), return_inverse=True, return_counts=True)
    return x.new_zeros(u.shape[0], x.shape[1]).index_add(0, inverse, x * 2) / counted.unsqueeze(1), u


def bins(x: Tensor, w: Tensor) -> Any:
    counted = torch.bincount((x[:, 0] * 2).abs().long())
    return counted * 2, counted.float() / counted.sum()


def unique_rows(x: Tensor, w: Tensor) -> Any:
    rows, inverse, counted = torch.unique((x[:, :2] * 2).long(), dim=0, return_inverse=True, return_counts=True)
    sums = x.new_zeros(rows.shape[0], x.shape[1]).index_add(0, inverse, x.sin())
    return sums / counted.unsqueeze(1), rows * 2


def without_types(x: Tensor, w: Tensor) -> Any:
    """Calls that have no kernel for tensors without data, whatever decides their sizes."""
    pairs = torch.combinations(x.detach()[:, 0][x[:, 0] > 0.3])
    spread = torch.cov(x.detach().t())
    return pairs.sin().sum(1) * 2, (x @ spread).cos()


def select(x: Tensor, w: Tensor) -> Any:
    return torch.masked_select(x * 2, x > 0).exp() + 1


def set_rows(x: Tensor, w: Tensor) -> Any:
    y = x.clone()
    y[x > 0] = (x * 3)[x > 0]
    return y * 2


def where(x: Tensor, w: Tensor) -> Any:
    i, j = torch.where(x > 0.5)
    return x[i, j].exp() + i - j


def experts(x: Tensor, w: Tensor) -> Any:
    out = torch.zeros_like(x)
    best, chosen = torch.softmax(x @ w[:, :4], -1).topk(2, -1)
    for expert in range(4):
        i, j = torch.where(chosen == expert)
        out.index_add_(0, i, torch.tanh(x[i] @ w) * best[i, j].unsqueeze(-1))
    return out


def parts(x: Tensor, w: Tensor) -> Any:
    return torch.cat([x[x[:, 0] > 0] * 2, x[x[:, 0] <= 0].sin()]) @ w


def layouts(x: Tensor, w: Tensor) -> Any:
    z = x[x[:, 0] > 0].view(-1, 2, 8).transpose(1, 2).contiguous()
    return z.reshape(z.shape[0], -1) @ w, z.stride(), z.is_contiguous()


def reductions(x: Tensor, w: Tensor) -> Any:
    y = x[x[:, 0] > 0].exp()
    return y.cumsum(0), y.flip(0), y.sum(0), y.mean(), torch.softmax(y @ w, 0), y + w[:1]


def random(x: Tensor, w: Tensor) -> Any:
    h = torch.nn.functional.dropout(x @ w, 0.3, True)
    y = h[h.sum(-1) > 0]
    return torch.nn.functional.dropout(y.sin(), 0.5, True) * 2 + torch.rand_like(y)


def asserted(x: Tensor, w: Tensor) -> Any:
    assert x.isfinite().all()
    torch._check(bool((x.abs() < 1e6).all()))
    return (x @ w).sin() * 2


def places(x: Tensor, w: Tensor) -> Any:
    rows = torch.nonzero(x[:, 0] > 0, as_tuple=False)
    i, j = (x > 0.5).nonzero(as_tuple=True)
    return x[rows[:, 0]].exp() @ w, (x > 0.5).nonzero(as_tuple=False) * 2, x[i, j] + rows.shape[0]


WHOLE = [
    mask,
    prune,
    repeat,
    repeat_flat,
    item,
    whole_number,
    numbers,
    split,
    unique,
    unique_rows,
    without_types,
    bins,
    select,
    set_rows,
    where,
    places,
    experts,
    parts,
    layouts,
    reductions,
    random,
    asserted,
]


def writes_before(x: Tensor, w: Tensor) -> Any:
    x.add_(1)
    return x[x[:, 0] > 1] * 2


def writes_behind(x: Tensor, w: Tensor) -> Any:
    y = x[x[:, 0] > 0] * 2
    x.add_(1)
    return y, x * 2


def signs(x: Tensor, w: Tensor) -> Any:
    n = (x.sum().long() % 3 - 1).item()
    return x[n:] * 2, abs(n), -n, n // 2, n % 2


def turns(x: Tensor, w: Tensor) -> Any:
    y = x
    for i in range((x.sum().abs().long() % 4).item()):
        y = y.sin() + i
    return y * 2


def float_of(x: Tensor, w: Tensor) -> Any:
    n = (x.sum().abs().long() % 4).item()
    return x * (n * 0.5) + n


def empty(x: Tensor, w: Tensor) -> Any:
    y = x[x[:, 0] > 0]
    return w * 2 if y.shape[0] == 0 else y.max(0).values * 3


def flags(x: Tensor, w: Tensor) -> Any:
    y = x.sin() if x[:, 0].sum() > 0 else x.cos()
    return (y @ w).sin() if bool((y > 0).any()) else y * 2


def wrong_mask(x: Tensor, w: Tensor) -> Any:
    return x[torch.arange(8, device=x.device) > 3] * 2


def texts(x: Tensor, w: Tensor) -> Any:
    n = x[:, 0].gt(0).sum().item()
    return {n: x * 2}[n], str(n), [0] * n, f"{n:3d}"


OTHERS = [
    writes_before,
    writes_behind,
    signs,
    turns,
    float_of,
    empty,
    flags,
    wrong_mask,
    texts,
]


def operands(call: int, dynamic: bool = False, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Of each kind of outcome some: no row, one row, all rows."""
    x = torch.randn(8 + (call % 3 if dynamic else 0), 16)
    if call % 5 in (1, 2):
        x[:, 0] = -x[:, 0].abs()
    if call % 5 == 2:
        x[3, 0] = 2
    if call % 5 == 3:
        x[:, 0] = x[:, 0].abs()
    return x.to(device), torch.randn(16, 16).to(device)


def outcome(function: Callable[..., Any], x: Tensor, w: Tensor, needs: bool, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    given, weight = x.clone().requires_grad_(needs), w.clone().requires_grad_(needs)
    operand = given * 1 if needs else given
    try:
        results = function(operand, weight)
    except Exception as error:
        return [type(error), operand.detach(), torch.rand(2)]
    results = list(results) if isinstance(results, tuple) else [results]
    gradients: list[Any] = []
    for result in results:
        if isinstance(result, Tensor) and result.requires_grad:
            gradients += torch.autograd.grad(result.sum(), [given, weight], retain_graph=True, allow_unused=True)
    return [*results, *gradients, operand.detach(), torch.rand(2)]


def compare(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected), (actual, expected)
    for a, b in zip(actual, expected, strict=True):
        if isinstance(b, Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
            assert (a.stride(), a.requires_grad) == (b.stride(), b.requires_grad)
        else:
            assert type(a) is type(b) and a == b


def check_program(program: Callable[..., Any], dynamic: bool, needs: bool, device: str = "cpu") -> None:
    """It does as eager over outcomes of all kinds, and is one graph if it is one of WHOLE."""
    compiled = tatara.compile(program, dynamic=True) if dynamic else tatara.compile(program)
    with counts() as grown:
        for call in range(11):
            x, w = operands(call, dynamic and program is not split, device)
            expected, actual = outcome(program, x, w, needs, call), outcome(compiled, x, w, needs, call)
            compare(actual, expected)
    assert grown["fallbacks"] == 0
    if program in WHOLE:
        assert (grown["graphs"], grown["breaks"], grown["recompiles"]) == (1, 0, 0)


def check_draws(program: Callable[[Tensor], Any], shape: tuple[int, ...], exact: bool) -> None:
    """The same values of the same random numbers, and the generator is left alike."""
    compiled = tatara.compile(program)
    for seed in range(4):
        x = torch.randn(shape)
        torch.manual_seed(seed)
        expected = [*program(x), torch.rand(2)]
        torch.manual_seed(seed)
        actual = [*compiled(x), torch.rand(2)]
        compare(actual, expected)
        assert not exact or all(a.equal(e) for a, e in zip(actual, expected, strict=True))
