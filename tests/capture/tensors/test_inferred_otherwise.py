"""Where torch's meta kernel gives another type than the kernel, the first call shows it, and the program sees eager's in each."""

import pytest
import torch

import tatara


def _reads(x):
    found = torch.ops.aten.nonzero_static.default(x, size=3)
    return found, found.stride(), found.is_contiguous()


def _returns(x):
    return torch.ops.aten.nonzero_static.default(x, size=3)


@pytest.mark.parametrize("needs", [False, True])
def test_strides_that_the_program_reads(needs):
    compiled = tatara.compile(_reads)
    for _ in range(3):
        x = torch.eye(5).requires_grad_(needs)
        found, strides, dense = compiled(x)
        expected = _reads(x)
        assert torch.equal(found, expected[0])
        assert (found.stride(), strides, dense) == (expected[0].stride(), *expected[1:])


@pytest.mark.parametrize("needs", [False, True])
def test_strides_of_results(needs):
    compiled = tatara.compile(_returns)
    for _ in range(3):
        x = torch.eye(5).requires_grad_(needs)
        assert compiled(x).stride() == _returns(x).stride()


def test_in_a_forked_child_of_a_process_that_uses_a_gpu(monkeypatch):
    class Unreadable:
        def get_state(self):
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")

    monkeypatch.setattr(torch.cuda, "default_generators", (Unreadable(),))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    compiled = tatara.compile(_reads)
    for _ in range(3):
        assert compiled(torch.eye(5))[1] == _reads(torch.eye(5))[1]


@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
@pytest.mark.parametrize("count", [1, 2])
def test_lists_of_the_dispatcher(name, count):
    for function in (getattr(torch, name), getattr(torch.ops.aten, name), getattr(torch.ops.aten, name).Sequence):
        compiled = tatara.compile(lambda each, function=function: function(each))
        for _ in range(3):
            tensors = [torch.zeros(()), torch.ones(3)][:count]
            found, expected = compiled(tensors), function(tensors)
            assert type(found) is type(expected)
            assert [t.shape for t in found] == [t.shape for t in expected]


@pytest.mark.parametrize("count", [1, 2, 7, 33, 64])
@pytest.mark.parametrize("right", [False, True])
def test_boundaries_that_are_not_sorted(count, right):
    generator = torch.Generator().manual_seed(count)
    rows = torch.randn(4, count, generator=generator)
    values = torch.tensor([[-3.0, -0.5, 0.0, 0.25, float("nan"), float("inf")]] * 4)

    def function(rows, values):
        searched = torch.searchsorted(rows, values, right=right)
        return searched, torch.searchsorted(rows[0], values, right=right), torch.bucketize(values, rows[1], right=right)

    compiled = tatara.compile(function)
    for _ in range(3):
        for found, expected in zip(compiled(rows, values), function(rows, values), strict=True):
            assert torch.equal(found, expected)
