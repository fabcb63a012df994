"""Results and gradients of losses and normalizations lie in memory as eager's do, however the operands lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

CLASSES = 3
SHAPES = [(4, CLASSES), (4, CLASSES, 5), (1, CLASSES, 4), (2, CLASSES, 4, 5), (2, CLASSES, 4, 5, 2)]
Function = Callable[..., torch.Tensor]


def layouts(t: torch.Tensor) -> Iterator[torch.Tensor]:
    """The same values in memory: in order, two dimensions exchanged, backwards, channels last, with gaps."""
    yield t
    if t.dim() > 1:
        yield t.transpose(0, -1).contiguous().transpose(0, -1)
    if t.dim() > 2:
        backwards = tuple(reversed(range(t.dim())))
        yield t.permute(backwards).contiguous().permute(backwards)
    if t.dim() == 4:
        yield t.contiguous(memory_format=torch.channels_last)
    wide = torch.zeros(*t.shape[:-1], t.shape[-1] * 2, dtype=t.dtype)
    wide[..., ::2] = t
    yield wide[..., ::2]


BY_CLASS: dict[str, Function] = {
    "nll_loss": lambda x, t: F.nll_loss(x, t, reduction="none"),
    "cross_entropy": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "smoothed": lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=0.1),
    "weighted": lambda x, t: F.cross_entropy(x, t, reduction="none", weight=torch.arange(3.0), ignore_index=1),
    "smoothed and weighted": lambda x, t: F.cross_entropy(
        x, t, reduction="none", weight=torch.arange(3.0), ignore_index=1, label_smoothing=0.2
    ),
}

OF_ONE: dict[str, Function] = {
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "rms_norm of two": lambda x: F.rms_norm(x, x.shape[-2:], torch.ones(x.shape[-2:])),
    "rms_norm of all": lambda x: F.rms_norm(x, x.shape),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-2:]),
    "group_norm": lambda x: F.group_norm(x, CLASSES),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "normalize": lambda x: F.normalize(x, dim=1),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "probabilities": lambda x: F.cross_entropy(x, x.softmax(1), reduction="none"),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid(), reduction="none"),
    "kl_div": lambda x: F.kl_div(x, x.sigmoid(), reduction="none"),
    "huber_loss": lambda x: F.huber_loss(x, x * 2, reduction="none"),
    "gaussian_nll_loss": lambda x: F.gaussian_nll_loss(x, x * 2, x.exp(), reduction="none"),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, x.exp(), reduction="none"),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x * 2, dim=1),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x + 1),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, x.sign(), reduction="none"),
    "prelu": lambda x: F.prelu(x, torch.ones(CLASSES)),
}


def check(function: Function, *operands: Any) -> None:
    compiled = tatara.compile(function, dynamic=False)
    for _ in range(2):
        same(compiled(*operands), function(*operands), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BY_CLASS)
def test_losses_by_class(name: str) -> None:
    for shape in SHAPES:
        targets = torch.randint(0, CLASSES, (shape[0], *shape[2:]))
        for x, t in itertools.product(layouts(torch.randn(shape)), layouts(targets)):
            check(BY_CLASS[name], x, t)


@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_operand(name: str) -> None:
    for shape in SHAPES:
        for x in layouts(torch.randn(shape)):
            check(OF_ONE[name], x)


@pytest.mark.parametrize("name", ["rms_norm", "batch_norm", "group_norm", "softmax", "normalize"])
def test_gradients(name: str) -> None:
    function = OF_ONE[name]
    for shape in SHAPES:
        for x in layouts(torch.randn(shape, dtype=torch.float64)):
            check(torch.func.grad(lambda q: function(q).sin().sum()), x)


@pytest.mark.parametrize("shape", [(3, 2), (4, 4), (2, 3)])
def test_views_of_host_results(shape: tuple[int, int]) -> None:
    """Where the host's kernel lays a result out otherwise than it says beforehand, views of it lie as eager's, too."""

    def function(x: Any) -> Any:
        u, s, vh = torch.linalg.svd(x, full_matrices=False)
        return vh.mH, u.T[:1], vh.mH @ u.T * s.sum()

    compiled = tatara.compile(function)
    for seed in range(3):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        got, want = compiled(x), function(x)
        assert [g.stride() for g in got] == [w.stride() for w in want]
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)
