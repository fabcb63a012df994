"""How results of programs with hooks are compared."""

from __future__ import annotations

from typing import Any

import torch


def same(expected: Any, actual: Any) -> None:
    assert type(expected) is type(actual)
    if isinstance(expected, torch.Tensor):
        assert expected.stride() == actual.stride()
        assert expected.requires_grad == actual.requires_grad
        torch.testing.assert_close(actual, expected)
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(actual)
        for x, y in zip(expected, actual, strict=True):
            same(x, y)
    else:
        assert expected == actual
