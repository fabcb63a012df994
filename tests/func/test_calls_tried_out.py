"""Calls in levels whose types no kernel for tensors without data tells: they are tried out on other numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tatara
from results import same

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]


def check(f: Any, *args: Tensor) -> None:
    state = torch.get_rng_state()
    expected = f(*args)
    compiled = tatara.compile(f, fullgraph=True)
    for _ in range(3):
        same(compiled(*args), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_batches_of_what_has_no_meta_kernel() -> None:
    check(lambda x: torch.vmap(torch.geqrf)(x), torch.randn(2, 4, 3))
    check(lambda x: torch.vmap(lambda v: torch.histogram(v, 4).hist)(x) + 1, torch.randn(3, 9))
    check(lambda a, b: torch.vmap(torch.linalg.lstsq)(a, b).solution.sin(), torch.randn(2, 5, 3), torch.randn(2, 5, 2))


def test_tangents_of_it() -> None:
    def f(a: Tensor, b: Tensor) -> Any:
        return torch.func.jvp(lambda m: torch.linalg.lstsq(m, b).solution, (a,), (a.cos(),))

    a, b = torch.randn(5, 3), torch.randn(5, 2)
    compiled = tatara.compile(f)
    for _ in range(3):
        same(compiled(a, b), f(a, b))
    assert not tatara.explain(f)(a, b).breaks


def test_sizes_that_data_decide_are_not_tried() -> None:
    def f(x: Tensor, mask: Tensor) -> Any:
        return torch.func.jvp(lambda v: torch.masked_select(v, mask).sum(), (x,), (x,))

    x = torch.randn(6)
    compiled = tatara.compile(f)
    for mask in (x > 0, x > 9, x < 9):
        same(compiled(x, mask), f(x, mask))


class TestNormsInLevels:
    """Without statistics, or where these are used and not written, or are written as in eager."""

    def test_batches(self) -> None:
        x, mean, var = torch.randn(3, 4, 5), torch.zeros(5), torch.ones(5)
        check(lambda x: torch.vmap(lambda v: F.batch_norm(v, None, None, training=True))(x) * 2, x)
        check(lambda x: torch.vmap(lambda v: F.batch_norm(v, mean, var))(x) * 2, x)
        check(lambda x: torch.vmap(lambda v: F.instance_norm(v))(x) * 2, torch.randn(3, 2, 4, 5))

    def test_tangents_and_gradients_write_statistics(self) -> None:
        def tangents(x: Tensor, mean: Tensor, var: Tensor) -> Any:
            return torch.func.jvp(lambda v: F.batch_norm(v, mean, var, training=True), (x,), (x.sin(),))

        def instances(x: Tensor, mean: Tensor, var: Tensor) -> Any:
            x = x.reshape(2, 5, 2)
            return torch.func.jvp(lambda v: F.instance_norm(v, mean, var, use_input_stats=True), (x,), (x.sin(),))

        for f in (tangents, instances):
            compiled = tatara.compile(f, fullgraph=True)
            x = torch.randn(4, 5)
            ours, theirs = ([torch.zeros(5), torch.ones(5)] for _ in range(2))
            for _ in range(3):
                same(compiled(x, *ours), f(x, *theirs))
                same(ours, theirs)


def test_what_a_meta_kernel_tells_wrong_is_tried() -> None:
    """These tell another dtype of the saved statistics, and another shape of a loss."""

    def norm(x: Tensor) -> Any:
        return torch.ops.aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)

    def loss(x: Tensor) -> Any:
        return F.multilabel_margin_loss(x, torch.zeros(3, dtype=torch.long), reduction="none") * 2

    for f, x in ((norm, torch.randn(4, 3, dtype=torch.bfloat16)), (loss, torch.randn(3))):
        expected = f(x)
        compiled = tatara.compile(f, fullgraph=True)
        for _ in range(3):
            same(compiled(x), expected)
