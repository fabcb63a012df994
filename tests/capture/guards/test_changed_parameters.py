"""Parameters that get other memory, layouts or types between calls of one compiled module."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tatara

Change = Callable[[torch.nn.Linear], object]


def _resized(layer: torch.nn.Linear) -> None:
    storage = layer.weight.untyped_storage()
    bytes_ = storage.nbytes()
    storage.resize_(0)
    storage.resize_(bytes_)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape))


CHANGES: dict[str, Change] = {
    "data": lambda layer: setattr(layer.weight, "data", torch.randn(8, 8)),
    "strides": lambda layer: setattr(layer.weight, "data", torch.randn(8, 8).t()),
    "offset": lambda layer: setattr(layer.weight, "data", torch.randn(80)[16:].view(8, 8)),
    "in place": lambda layer: layer.weight.data.add_(1),
    "replaced": lambda layer: setattr(layer, "weight", torch.nn.Parameter(torch.randn(8, 8))),
    "set_": lambda layer: layer.weight.set_(torch.randn(8, 8)),
    "storage": _resized,
    "negative view": lambda layer: setattr(layer.weight, "data", torch._neg_view(torch.randn(8, 8))),
    "swapped": lambda layer: torch.utils.swap_tensors(layer.weight, torch.nn.Parameter(torch.randn(8, 8))),
    "double and back": lambda layer: (layer.double(), layer.float()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_parameter_is_seen(name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    compiled = tatara.compile(model)
    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(compiled(x), model(x))
        before = compiled(x)
        CHANGES[name](model[2])
        expected = model(x)
        if name != "double and back":
            assert not torch.equal(before, expected)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), expected)


@pytest.mark.smoke
def test_another_type_of_a_parameter_is_seen() -> None:
    model = torch.nn.Linear(8, 8)
    compiled = tatara.compile(model)
    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        model.double()
        assert compiled(x.double()).dtype == torch.float64
        with pytest.raises(RuntimeError):
            compiled(x)
