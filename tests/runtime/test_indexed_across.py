"""Places that data tell, in operands that lie across the order of the result: tiles cannot hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "index_select": lambda x, i: x.index_select(0, i),
    "of another operation": lambda x, i: x.index_select(0, (i + 1) % 3),
    "gather": lambda x, i: x.gather(0, i[:, None, None].expand(-1, x.size(1), x.size(2))),
    "sorted": lambda x, i: x[torch.argsort(i)] + x.index_select(0, torch.argsort(i)),
    "beside a tile": lambda x, i: x.index_select(0, i) + x,
    "reduced": lambda x, i: (x.index_select(0, i) * x).sum(-1),
    "rows": lambda x, i: x.index_select(1, i)[..., None] * 2,
}


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward(name: str, order: tuple[int, ...]) -> None:
    shape = [0, 0, 0]
    for d, size in zip(order, (3, 16, 32), strict=True):
        shape[d] = size
    f, i = CASES[name], torch.tensor([2, 0, 1])
    x = torch.randn(shape).permute(order)
    assert x.shape == (3, 16, 32)
    report = tatara.explain(f)(x, i)
    assert [each.fallback for each in report.graphs] == [""]
    same(report.result, f(x, i), rtol=1e-5, atol=1e-5)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    tatara.compile(f)(ours, i).square().sum().backward()
    f(theirs, i).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
