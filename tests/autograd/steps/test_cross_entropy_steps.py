"""The loss of a language model and its gradient: what is kept of the logits, and what is written."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
tatara = pytest.importorskip("tatara")

ROWS, WIDTH, CLASSES = 48, 16, 4001


def loss(hidden: torch.Tensor, table: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = (hidden @ table.t()).float()
    return torch.nn.functional.cross_entropy(logits, labels)


def operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH, dtype=dtype, requires_grad=True)
    table = torch.randn(CLASSES, WIDTH, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, CLASSES, (ROWS,))
    labels[5] = -100
    return hidden, table, labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_eagers(dtype: torch.dtype) -> None:
    hidden, table, labels = operands(dtype)
    expected = torch.autograd.grad(loss(hidden, table, labels), (hidden, table))
    compiled = tatara.compile(loss, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(torch.autograd.grad(compiled(hidden, table, labels), (hidden, table)), expected)


def test_no_tensor_of_the_classes_is_wider_than_the_logits() -> None:
    hidden, table, labels = operands(torch.bfloat16)
    compiled = tatara.compile(loss, fullgraph=True)
    torch.autograd.grad(compiled(hidden, table, labels), (hidden, table))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        value = loss(hidden, table, labels)
    assert max(t.nbytes for t in saved) == ROWS * CLASSES * 4  # eager's
    with tatara.kernel_history() as history:
        value = compiled(hidden, table, labels)
        torch.autograd.grad(value, (hidden, table))
    kernels = [event for event in history.events if event.kind == "launch"]
    assert not any("scatter_add" in event.operators for event in kernels)
    # The logits are read three times (two for the forward reductions and the look-up), their gradient is written once.
    logits = ROWS * CLASSES * 2
    assert sum(event.bytes for event in kernels) < 4.2 * logits


def test_labels_out_of_bounds_are_eagers_error() -> None:
    hidden, table, labels = operands(torch.float32)
    labels[3] = CLASSES
    with pytest.raises(IndexError) as expected:
        loss(hidden, table, labels)
    compiled = tatara.compile(loss)
    for _ in range(2):
        with pytest.raises(IndexError) as raised:
            compiled(hidden, table, labels)
        assert str(raised.value) == str(expected.value)


def test_second_derivatives() -> None:
    hidden, table, labels = operands(torch.float32)

    def penalty(function):
        (gradient,) = torch.autograd.grad(function(hidden, table, labels), hidden, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), (hidden, table))

    compiled = tatara.compile(loss)
    for _ in range(2):
        torch.testing.assert_close(penalty(compiled), penalty(loss), rtol=1e-4, atol=1e-6)
