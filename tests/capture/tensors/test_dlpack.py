"""Memory that goes out by DLPack and comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

import tatara
from results import same

pytestmark = pytest.mark.usefixtures("fresh")

WAYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a capsule of a result": lambda x: from_dlpack(to_dlpack(x * 2)) + 1,
    "a capsule of an argument": lambda x: from_dlpack(to_dlpack(x)) + 1,
    "torch.from_dlpack": lambda x: torch.from_dlpack(x * 2) + 1,
    "written through": lambda x: from_dlpack(to_dlpack(x)).add_(1),
}


@pytest.mark.parametrize("name", WAYS)
def test_as_in_eager_in_each_call(name: str) -> None:
    compiled = tatara.compile(lambda x: WAYS[name](x))
    for size in (2, 2, 3):
        x = torch.randn(size, 3)
        ours, theirs = x.clone(), x.clone()
        same(compiled(ours), WAYS[name](theirs))
        same(ours, theirs)
