"""The sweep of derivatives: a sample of a slice of the entries each, and that it finds what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gradients
import sweep
import tatara

NAMES = [
    "exp",
    "amax",
    "clamp",
    "var_mean",
    "matmul",
    "transpose",
    "split",
    "nn_functional_softmin",
    "nn_functional_gelu",
    "nn_functional_embedding",
    "torch_ops_aten__safe_softmax_default",
    "nn_functional_cross_entropy",
    "index_put",
    "cumsum",
]


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_entries(name: str) -> None:
    row = gradients.check_entry(sweep.entries_by_name()[name], "float64", 2, lambda _: None)
    assert row["wrong"] == []
    assert row["samples"] > 0


ALONE = [
    "nn_functional_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "nn_functional_instance_norm",
    "polar",
    "xlogy",
    "matmul",
]


@pytest.mark.parametrize("name", ALONE)
def test_each_input_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(gradients, "ONE", True)
    row = gradients.check_entry(sweep.entries_by_name()[name], "float64", 3, lambda _: None)
    assert row["wrong"] == []
    assert sum(row["counts"].values()) > row["samples"]


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return 3 * g

    def compiled(function: Any) -> Any:
        real = tatara._api.compile(function)

        def run(value: Any, /, *args: Any, **kwargs: Any) -> Any:
            return Tripled.apply(real(value, *args, **kwargs))

        run._report = real._report  # type: ignore[attr-defined]
        return run

    monkeypatch.setattr(gradients.tatara, "compile", compiled)
    monkeypatch.setattr(gradients.samples, "state_of", lambda *_: "native")
    row = gradients.check_entry(sweep.entries_by_name()["exp"], "float64", 1, lambda _: None)
    assert "gradient" in row["wrong"][0]
