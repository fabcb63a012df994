"""Views of what a graph computes, as results: in memory they are laid out as eager's, whatever the graph computes of their base."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402
from results import same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

SHAPE = (4, 6, 5)
Step = Callable[[Any], Any]

COMPUTED: dict[str, Step] = {
    "elementwise": lambda x: x.abs(),
    "transposed": lambda x: x.abs().mT,
    "promoted": lambda x: x.double() * 2,
    "reduction": lambda x: x.sum(0, keepdim=True) + x,
    "softmax": lambda x: x.softmax(-1),
    "scan": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(-1)[0],
    "cat": lambda x: torch.cat([x, x], 1),
    "index": lambda x: x[[0, 1, 0]],
    "product": lambda x: x @ x.mT,
}

# Of a view like `y` and a dimension of it: a view of it, or None where there is no such view.
VIEWS: dict[str, Callable[[random.Random, Any, int], Step | None]] = {
    "select": lambda r, y, d: (lambda y, i=r.randrange(y.shape[d]): y.select(d, i)) if y.dim() else None,
    "narrow": lambda r, y, d: (
        (lambda y, n=r.randint(1, y.shape[d]): y.narrow(d, y.shape[d] - n, n)) if y.dim() else None
    ),
    "step": lambda r, y, d: (
        (lambda y, s=r.choice([2, 3]): y[(slice(None),) * d + (slice(None, None, s),)]) if y.dim() else None
    ),
    "chunk": lambda r, y, d: (lambda y: y.chunk(2, d)[0]) if y.dim() else None,
    "permute": lambda r, y, d: lambda y, order=r.sample(range(y.dim()), y.dim()): y.permute(order),
    "diagonal": lambda r, y, d: (lambda y: y.diagonal(dim1=0, dim2=-1)) if y.dim() > 1 else None,
    "unfold": lambda r, y, d: (lambda y: y.unfold(d, 2, 2)) if 0 < y.dim() < 5 and y.shape[d] > 1 else None,
    "expand": lambda r, y, d: (lambda y, n=r.choice([2, 3]): y.expand(n, *y.shape)) if y.dim() < 5 else None,
    "unsqueeze": lambda r, y, d: (lambda y: y.unsqueeze(d)) if y.dim() < 5 else None,
    "flatten": lambda r, y, d: (lambda y: y.flatten(0, 1)) if y.dim() > 1 else None,
    "detach": lambda r, y, d: lambda y: y.detach(),
    "view_as": lambda r, y, d: lambda y: y.view_as(y),
}


def _program(seed: int) -> Callable[[Any], list[Any]]:
    """One of COMPUTED, one to four views on each other, and the last of them and some others as results."""
    r = random.Random(seed)
    computed = COMPUTED[r.choice(list(COMPUTED))]
    y = computed(torch.ones(SHAPE))
    steps: list[tuple[Step, bool]] = []
    count = r.randint(1, 4)
    while len(steps) < count:
        step = VIEWS[r.choice(list(VIEWS))](r, y, r.randrange(max(y.dim(), 1)))
        if step is not None:
            y = step(y)
            steps.append((step, len(steps) + 1 == count or r.random() < 0.2))

    def run(x: Any) -> list[Any]:
        y, results = computed(x), []
        for step, wanted in steps:
            y = step(y)
            if wanted:
                results.append(y)
        return results

    return run


def _laid_out(tensors: list[Any]) -> list[Any]:
    """Strides, but of dimensions of one element, where they address nothing."""
    return [[stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1] for t in tensors]


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("first", range(0, 240, 40))
def test_laid_out_as_in_eager(first: int, history: bool) -> None:
    torch.manual_seed(first)
    for seed in range(first, first + 40):
        function = _program(seed)
        x = torch.randn(SHAPE, requires_grad=history)
        compiled = tatara.compile(function)
        with counts() as grown:
            ours = [compiled(x) for _ in range(2)][1]
        theirs = function(x)
        assert _laid_out(ours) == _laid_out(theirs), seed
        same(ours, theirs, strides=False)
        assert [grown[k] for k in ("graphs", "breaks", "fallbacks")] == [1, 0, 0], seed
        tatara.reset()


def test_a_column_of_a_large_result() -> None:
    """It alone is computed, with the strides that it has in the whole."""
    compiled = tatara.compile(lambda x: x.abs()[:, 1].detach())
    x = torch.randn(64, 128)
    compiled(x)
    with tatara.kernel_history() as history:
        y = compiled(x)
    assert y.stride() == (128,)
    assert y.untyped_storage().nbytes() == (63 * 128 + 1) * 4
    assert [e.kind for e in history.events] == ["launch"]


def test_what_repeats_is_not_written_out() -> None:
    compiled = tatara.compile(lambda x: x.abs().expand(3, 4, 6)[:, :, 1])
    x = torch.randn(4, 6)
    compiled(x)
    assert compiled(x).stride() == (0, 6)
