"""Fake quantisation by numbers and by tensors: values, gradients and errors are eager's, to the bit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tatara  # noqa: E402
from counters import counts  # noqa: E402

STEPS = [
    (0.1, 3),
    (1e-6, 0),
    (torch.tensor(0.03), torch.tensor(-5, dtype=torch.int32)),
    (torch.tensor([0.7]), torch.tensor([2], dtype=torch.int32)),
]
RANGES = [(-128, 127), (0, 255), (-8, 7), (3, 3)]


def _quantize(x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    return torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high)


def _outcome(f: Any, x: Any, *args: Any) -> list[Any]:
    x = x.clone().requires_grad_()
    try:
        y = f(x, *args)
    except RuntimeError as error:
        return [str(error)]
    w = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    return [y.detach(), y.requires_grad, *torch.autograd.grad(y, x, w)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (7,), (4, 5), (3, 0), (300,)])
@pytest.mark.parametrize("steps", STEPS, ids=["numbers", "small", "tensors", "tensors of one"])
def test_as_eager(steps: Any, shape: Any, dtype: Any) -> None:
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)) * 5
    if x.numel() > 5:
        x.view(-1)[:5] = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e30, -1e30], dtype=dtype)
    for limits in RANGES:
        compiled = tatara.compile(_quantize)
        for _ in range(2):
            ours, theirs = _outcome(compiled, x, *steps, *limits), _outcome(_quantize, x, *steps, *limits)
            assert len(ours) == len(theirs)
            for a, b in zip(ours, theirs, strict=True):
                if isinstance(b, torch.Tensor):
                    assert a.stride() == b.stride()
                    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
                else:
                    assert a == b


def test_layouts() -> None:
    compiled = tatara.compile(_quantize)
    for x in (torch.randn(4, 6).t(), torch.randn(4, 6)[:, ::2], torch.randn(3, 1, 4).expand(3, 5, 4)):
        for steps in STEPS:
            a, b = compiled(x, *steps, -8, 7), _quantize(x, *steps, -8, 7)
            assert a.stride() == b.stride()
            assert torch.equal(a, b)


def test_bad_arguments() -> None:
    x = torch.randn(4)
    for args in [(0.1, 300, 0, 255), (0.1, 0, 5, -5), (torch.ones(2), torch.zeros(2, dtype=torch.int32), 0, 7)]:
        compiled = tatara.compile(_quantize)
        for _ in range(2):
            ours, theirs = _outcome(compiled, x, *args), _outcome(_quantize, x, *args)
            assert str(ours) == str(theirs)


def test_second_derivative() -> None:
    def f(x: Any, s: Any, z: Any) -> Any:
        y = torch.fake_quantize_per_tensor_affine(x * x, s, z, -8, 7)
        (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    x = torch.randn(9, requires_grad=True)
    args = (torch.tensor(0.3), torch.tensor(1, dtype=torch.int32))
    compiled = tatara.compile(f)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, *args), f(x, *args))


def test_training_is_one_graph() -> None:
    class FakeQuantize(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor(1.0))
            self.register_buffer("zero", torch.tensor(0, dtype=torch.int32))

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                low, high = torch.aminmax(x.detach())
                self.scale.copy_(((high - low) / 255).clamp(min=1e-6))
                self.zero.copy_((-torch.round(low / self.scale)).clamp(0, 255).to(torch.int32))
            return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, 0, 255)

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), FakeQuantize(), torch.nn.Linear(8, 2))

    def step(x: Any) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        return [loss.detach(), *[p.grad.clone() for p in net.parameters()], net[1].scale.clone(), net[1].zero.clone()]

    x = torch.randn(5, 6)
    expected = step(x)
    with counts() as count:
        compiled = tatara.compile(step)
        for _ in range(3):
            for a, b in zip(compiled(x), expected, strict=True):
                torch.testing.assert_close(a, b)
    assert count["graphs"] == 1
    assert count["breaks"] == 0
